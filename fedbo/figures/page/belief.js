  // What an agent believed before a decision: curves in one input, and maps in two.
  const drawn = (name, options, parent) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(options)) key === "text" ? (made.textContent = value) : made.setAttribute(key, value);
    parent.append(made);
    return made;
  };
  // The native value of an input at a share of its range.
  const native = (input, share) => number(input.log ? input.low * (input.high / input.low) ** share : input.low + share * (input.high - input.low));

  const beliefCurves = (target, found, points, input) => {
    const [mean, spread, acquisition] = found.maps.map((map) => map.values), last = mean.length - 1;
    const svg = drawn("svg", { viewBox: "0 0 560 330", role: "img", "aria-label": `belief about ${input.name}` }, target);
    const x = (share) => 40 + 505 * share;
    const axis = (low, high, top, bottom) => (value) => bottom - ((value - low) / (high - low || 1)) * (bottom - top);
    const lower = mean.map((value, place) => value - spread[place]), upper = mean.map((value, place) => value + spread[place]);
    const y = axis(Math.min(...lower, ...found.values), Math.max(...upper, ...found.values), 12, 200);
    const below = axis(Math.min(...acquisition), Math.max(...acquisition), 225, 285);
    const line = (values, to) => values.map((value, place) => `${x(place / last).toFixed(1)} ${to(value).toFixed(1)}`);
    drawn("path", { class: "band", fill: "#2C6AA0", d: `M${line(upper, y).join("L")}L${line(lower, y).reverse().join("L")}z` }, svg);
    drawn("path", { class: "line", stroke: "#2C6AA0", d: `M${line(mean, y).join("L")}` }, svg);
    drawn("path", { class: "line", stroke: "#E8743B", d: `M${line(acquisition, below).join("L")}` }, svg);
    points.slice(0, found.count).forEach(([share], place) => drawn("circle", { class: "dot", fill: "#1f242c", r: 3.5, cx: x(share), cy: y(found.values[place]) }, svg));
    drawn("path", { class: "rule", style: "visibility: visible", d: `M${x(found.chosen[0])} 12V285` }, svg);
    drawn("path", { class: "frame", d: "M40 290H545" }, svg);
    for (const share of [0, 0.5, 1]) drawn("text", { class: "tick-x", x: x(share), y: 306, text: native(input, share) }, svg);
    drawn("text", { class: "x-name", x: 292, y: 325, text: input.name }, svg);
  };

  const beliefMap = (target, name, map, found, points) => {
    const figure = element("figure", {}, target), side = 10 * map.side;
    element("figcaption", { text: `${name}: ${number(map.low)} to ${number(map.high)}` }, figure);
    const canvas = element("canvas", { width: side, height: side, role: "img", "aria-label": `${name}, dark where large` }, figure);
    const pen = canvas.getContext("2d"), bytes = atob(map.bytes);
    for (let place = 0; place < bytes.length; place += 1) {
      const share = bytes.charCodeAt(place) / 255, mix = (pale, dark) => Math.round(pale + share * (dark - pale));
      pen.fillStyle = `rgb(${mix(247, 8)}, ${mix(249, 48)}, ${mix(251, 107)})`;
      // The first input runs to the right, the second one upwards.
      pen.fillRect(10 * Math.floor(place / map.side), side - 10 * (place % map.side + 1), 10, 10);
    }
    const dot = ([first, second], size, colour) => {
      pen.beginPath();
      pen.arc(5 + first * (side - 10), side - 5 - second * (side - 10), size, 0, 2 * Math.PI);
      pen.fillStyle = colour;
      pen.fill();
      pen.strokeStyle = "#fff";
      pen.stroke();
    };
    points.slice(0, found.count).forEach((point) => dot(point, 4, "#1f242c"));
    dot(found.chosen, 7, "#E8743B");
  };

  // Draws the belief of an agent with this number; says why where there is none.
  const drawBelief = (target, run, agent, now) => {
    const mine = run.beliefs[agent], place = mine ? before(mine.moments.map((one) => one.time), now) : -1;
    if (target.dataset.drawn === `${agent} ${place}`) return;
    target.dataset.drawn = `${agent} ${place}`;
    target.replaceChildren();
    if (!mine) return void element("p", { class: "faint", text: `What agent ${agent} believes is not shown: ${run.without}.` }, target);
    if (place < 0) return void element("p", { class: "faint", text: `Agent ${agent} has no surrogate before its first decision.` }, target);
    const found = mine.moments[place], two = run.inputs.length === 2;
    const chosen = two ? "orange dot" : "dashed line", axes = two ? ` To the right: ${run.inputs.map((one) => `${one.name}, ${native(one, 0)} to ${native(one, 1)}`).join("; upwards: ")}.` : "";
    element("p", { class: "faint", text: `Its own surrogate before step ${found.step}, at ${number(found.time)}, from ${found.count} observations: mean, spread (standard deviation) and ${mine.name}, in standard deviations of the values as it models them; larger is better. It chose the ${chosen} (${found.origin}).${axes}` }, target);
    const maps = element("div", { class: two ? "maps" : "maps line" }, target);
    if (two) ["mean", "spread", mine.name].forEach((name, at) => beliefMap(maps, name, found.maps[at], found, mine.points));
    else beliefCurves(maps, found, mine.points, run.inputs[0]);
  };
