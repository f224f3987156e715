// The page is whole without its script, of which this is the first part. With it, curves tell their values under the pointer,
// timelines can be zoomed into, and one can move through the time of a run.
  const SVG = "http://www.w3.org/2000/svg";
  const data = JSON.parse(document.getElementById("data").textContent);
  document.documentElement.classList.add("script");

  const number = (value) => {
    if (value === null || !Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(2);
    return String(Number(value.toPrecision(4)));
  };
  const element = (name, options = {}, parent = null) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(options)) key === "text" ? (made.textContent = value) : made.setAttribute(key, value);
    if (parent) parent.append(made);
    return made;
  };
  // Where a pointer is, in the units of the drawing.
  const inside = (svg, event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    return [at.x, at.y];
  };
  // Puts a tip beside a place of the drawing, on the side that has room.
  const show = (tip, svg, x, y) => {
    const box = tip.parentElement.getBoundingClientRect();
    const at = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
    const left = at.x - box.left, width = tip.offsetWidth + 14;
    const fits = at.x + width < document.documentElement.clientWidth;
    tip.style.left = `${fits ? left + 14 : Math.max(0, left - width)}px`;
    tip.style.top = `${at.y - box.top - 12}px`;
    tip.style.visibility = "visible";
  };

  // The last place of a sorted list that is not beyond a value; -1 where all are.
  const before = (places, value) => {
    let low = 0, high = places.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (places[middle] <= value) low = middle + 1; else high = middle;
    }
    return low - 1;
  };

  const valueAt = (one, x) => {
    if (one.x.length === 1) return [one.mean[0], one.error[0]];
    let place = before(one.x, x);
    const last = one.x.length - 1;
    if (place < 0) return null;
    if (place < last && !one.steps && x - one.x[place] > one.x[place + 1] - x) place += 1;
    return [one.mean[place], one.error[place]];
  };

  const curves = (figure) => {
    const svg = figure.querySelector("svg.plot"), about = data.panels[figure.dataset.panel];
    const [low, high, first, last] = about.x, [bottom, top, lowest, highest] = about.y;
    const rule = svg.querySelector(".rule"), tip = element("div", { class: "tip", role: "status" }, figure);
    const dots = about.series.map((one) => {
      const dot = document.createElementNS(SVG, "circle");
      dot.setAttribute("r", 4.5);
      dot.setAttribute("class", "dot");
      dot.setAttribute("fill", one.colour);
      dot.style.visibility = "hidden";
      svg.append(dot);
      return dot;
    });
    const boxes = about.series.map((one) => [...figure.closest(".curves").querySelectorAll(".series input")].find((box) => box.value === one.label));
    let x = null;
    const hide = () => {
      x = null;
      for (const one of [rule, tip, ...dots]) one.style.visibility = "hidden";
    };
    const tell = () => {
      const at = first + ((x - low) / (high - low)) * (last - first);
      rule.setAttribute("x1", at);
      rule.setAttribute("x2", at);
      rule.style.visibility = "visible";
      const found = [];
      about.series.forEach((one, place) => {
        const value = boxes[place].checked ? valueAt(one, x) : null;
        dots[place].style.visibility = value ? "visible" : "hidden";
        if (!value) return;
        dots[place].setAttribute("cx", at);
        dots[place].setAttribute("cy", lowest + ((value[0] - bottom) / (top - bottom)) * (highest - lowest));
        found.push([one, ...value]);
      });
      found.sort((one, other) => other[1] - one[1]);
      tip.replaceChildren(element("b", { text: `${about.title} ${number(x)}` }));
      for (const [one, mean, error] of found) {
        const entry = element("div", { class: "entry" }, tip);
        element("i", { style: `background:${one.colour}` }, entry);
        element("span", { class: "what", text: one.label }, entry);
        element("span", { class: "number", text: number(mean) + (error === null ? "" : ` ± ${number(Number(error.toPrecision(2)))}`) }, entry);
      }
      show(tip, svg, at, Math.min(lowest, highest));
    };
    svg.addEventListener("pointermove", (event) => {
      const [at] = inside(svg, event);
      if (at < first - 4 || at > last + 4) return hide();
      x = low + (Math.min(last, Math.max(first, at)) - first) / (last - first) * (high - low);
      if (about.title === "evaluations") x = Math.round(x);
      tell();
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") return hide();
      if (!way) return;
      event.preventDefault();
      const step = about.title === "evaluations" ? Math.max(1, Math.round((high - low) / 100)) : (high - low) / 100;
      x = Math.min(high, Math.max(low, x === null ? low : x + way * step));
      tell();
    });
  };

  const roundStep = (rough) => {
    const power = 10 ** Math.floor(Math.log10(rough));
    return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * (1 - 1e-9));
  };

  const timeline = (figure) => {
    const about = data.timelines[figure.dataset.timeline], svg = figure.querySelector("svg.plot");
    const tip = element("div", { class: "tip", role: "status" }, figure), brush = svg.querySelector(".brush");
    const bottom = about.top + about.row * about.agents.length, least = about.end / 2000;
    const shown = figure.querySelector(".shown"), buttons = Object.fromEntries([...figure.querySelectorAll(".tools button")].map((one) => [one.dataset.act, one]));
    let [from, to] = [0, about.end], held = null, moment = null;
    const scale = () => (about.right - about.left) / (to - from);
    const at = (time) => Number((about.left + (time - from) * scale()).toFixed(1));
    const time = (x) => from + (Math.min(about.right, Math.max(about.left, x)) - about.left) / scale();
    const edge = (row, share) => Number((about.top + (row + 0.5 + share) * about.row).toFixed(1));
    const point = () => {
      svg.querySelector(".moment").setAttribute("d", moment === null || moment < from || moment > to ? "" : `M${at(moment)} ${about.top}V${bottom}`);
    };
    const mark = (path, found, size) => {
      path.setAttribute("d", found.filter(([, when]) => when >= from && when <= to).map(([row, when]) => size(at(when), edge(row, 0))).join(""));
    };
    const cross = (x, y) => `M${x - 4} ${y - 4}L${x + 4} ${y + 4}M${x + 4} ${y - 4}L${x - 4} ${y + 4}`;
    const triangle = (x, y) => `M${x - 4} ${y - 7}H${x + 4}L${x} ${y - 0.5}z`;
    const draw = () => {
      for (const layer of about.layers) {
        const parts = [];
        for (const [row, begin, end] of layer.bars) {
          if (end <= from || begin >= to) continue;
          const left = at(Math.max(begin, from)), right = at(Math.min(end, to));
          parts.push(`M${left} ${edge(row, layer.top)}H${right}V${edge(row, layer.bottom)}H${left}z`);
        }
        svg.querySelector(`[data-layer="${layer.name}"]`).setAttribute("d", parts.join(""));
      }
      point();
      mark(svg.querySelector(".crashed"), about.crashed, triangle);
      mark(svg.querySelector(".lost"), about.lost, cross);
      const step = roundStep((to - from) / 10), ticks = svg.querySelector(".ticks");
      const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
      ticks.replaceChildren();
      for (let place = Math.ceil(from / step - 1e-9); place * step <= to + 1e-9 * step; place += 1) {
        const line = document.createElementNS(SVG, "path"), text = document.createElementNS(SVG, "text");
        line.setAttribute("class", "grid");
        line.setAttribute("d", `M${at(place * step)} ${about.top}V${bottom}`);
        text.setAttribute("class", "tick-x");
        text.setAttribute("x", at(place * step));
        text.setAttribute("y", bottom + 17);
        text.textContent = (place * step).toFixed(digits);
        ticks.append(line, text);
      }
      const whole = from === 0 && to === about.end;
      shown.textContent = whole ? "the whole run" : `${number(from)} to ${number(to)} of ${number(about.end)}`;
      buttons.whole.disabled = buttons.out.disabled = whole;
      buttons.left.disabled = from === 0;
      buttons.right.disabled = to === about.end;
    };
    const look = (begin, end) => {
      const span = Math.min(about.end, Math.max(least, end - begin));
      from = Math.min(Math.max(0, begin), about.end - span);
      to = from + span;
      if (about.end - span < 1e-9 * about.end) [from, to] = [0, about.end];
      tip.style.visibility = "hidden";
      draw();
    };
    const zoom = (factor, centre = (from + to) / 2) => look(centre - (centre - from) * factor, centre + (to - centre) * factor);
    const acts = {
      in: () => zoom(0.5), out: () => zoom(2), whole: () => look(0, about.end),
      left: () => look(from - (to - from) / 2, to - (to - from) / 2), right: () => look(from + (to - from) / 2, to + (to - from) / 2),
    };
    for (const [name, button] of Object.entries(buttons)) button.addEventListener("click", acts[name]);
    svg.addEventListener("keydown", (event) => {
      const act = { ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", 0: "whole", Escape: "whole" }[event.key];
      if (!act) return;
      event.preventDefault();
      acts[act]();
    });
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(event.deltaY < 0 ? 0.8 : 1.25, time(inside(svg, event)[0]));
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" || event.button !== 0) return;
      held = inside(svg, event)[0];
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointerup", (event) => {
      const start = held, end = inside(svg, event)[0];
      held = null;
      brush.style.visibility = "hidden";
      if (start === null) return;
      if (Math.abs(end - start) > 4) look(time(Math.min(start, end)), time(Math.max(start, end)));
      else figure.dispatchEvent(new CustomEvent("chosen", { detail: time(end) }));
    });
    svg.addEventListener("pointercancel", () => { held = null; brush.style.visibility = "hidden"; });
    svg.addEventListener("dblclick", acts.whole);
    figure.addEventListener("moment", (event) => { moment = event.detail; point(); });
    svg.addEventListener("pointerleave", () => { tip.style.visibility = "hidden"; });
    svg.addEventListener("pointermove", (event) => {
      const [x, y] = inside(svg, event);
      if (held !== null) {
        const begin = Math.max(about.left, Math.min(held, x)), end = Math.min(about.right, Math.max(held, x));
        brush.setAttribute("x", begin);
        brush.setAttribute("width", Math.max(0, end - begin));
        brush.style.visibility = "visible";
        tip.style.visibility = "hidden";
        return;
      }
      const row = Math.floor((y - about.top) / about.row), when = time(x);
      if (row < 0 || row >= about.agents.length || x < about.left || x > about.right) { tip.style.visibility = "hidden"; return; }
      tip.replaceChildren(element("b", { text: `agent ${about.agents[row]}, at ${number(when)}` }));
      for (const layer of about.layers) {
        for (const [mine, begin, end] of layer.bars) {
          if (Math.round(mine) !== row || begin > when || end < when || layer.name === "waiting") continue;
          element("div", { text: `${layer.name}: ${number(begin)} to ${number(end)}` }, tip);
        }
      }
      for (const [mine, begin, end, step, origin, value] of about.evaluations) {
        if (mine !== row || begin > when || end < when) continue;
        const told = value === null ? "no value" : `${about.metric} ${number(value)}`;
        element("div", { text: `${step ? `step ${step}` : "initial"} (${origin}): ${told}` }, tip);
      }
      if (tip.childElementCount === 1) element("div", { text: "waiting" }, tip);
      show(tip, svg, x, y);
    });
    draw();
  };

  document.querySelectorAll("figure[data-panel]").forEach(curves);
  document.querySelectorAll("figure[data-timeline]").forEach(timeline);
