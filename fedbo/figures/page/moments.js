  // Moves through the time of one run: what its agents do, which messages are on their way, and what one agent believes.
  const CLOSED = {
    arrived: "when the message of # arrived", late: "when a late message of # arrived", rejected: "when a message of # was refused",
    finished: "when # finished its step", done: "when # was done", crashed: "when # crashed", absent: "when # left", "": "with no message at that time, as at a deadline", withheld: "",
  };

  const moments = (section) => {
    const key = section.dataset.moments, run = data.moments[key], { log, sent, rounds } = run;
    const figure = document.querySelector(`figure[data-timeline="${key}"]`), part = (selector) => section.querySelector(selector);
    const named = (attribute) => Object.fromEntries([...section.querySelectorAll(`[data-${attribute}]`)].map((one) => [one.dataset[attribute], one]));
    const choice = named("choice"), buttons = named("act"), clock = part(".clock"), link = part(".link"), summary = part(".summary");
    const name = (row) => (row < 0 ? "the coordinator" : `agent ${run.agents[row]}`);
    const list = (rows, tell = (row) => String(run.agents[row])) => rows.slice(0, 8).map(tell).join(", ") + (rows.length > 8 ? ` and ${rows.length - 8} more` : "");
    const closes = rounds.map((one) => one[1]), because = (place) => (run.words[place] ? ` (${run.words[place]})` : "");
    const clocked = (time) => String(Number(time.toPrecision(5)));
    const rising = (times) => [...new Set(times.filter((time) => time !== null))].sort((one, other) => one - other);
    const failed = sent.fate.flatMap((fate, place) => (fate && sent.end[place] !== null ? [place] : [])).sort((one, other) => sent.end[one] - sent.end[other]);
    // Lost messages to the coordinator, each with the time at which it is sent again or given up.
    const repeated = failed.filter((place) => sent.up[place] && run.fates[sent.fate[place]] === "lost").map((place) => {
      const [agent, count, end] = [sent.agent[place], sent.number[place], sent.end[place]];
      const again = sent.begin.find((begin, other) => begin > end && sent.up[other] && sent.agent[other] === agent && sent.number[other] === count);
      return [place, again ?? log.time.find((time, other) => time > end && log.agent[other] === agent && run.words[log.why[other]] === "given up") ?? end];
    });
    const beliefs = (row) => run.beliefs[run.agents[row]];
    const every = rising([...log.time, ...sent.begin, ...sent.end, ...run.lives.flatMap((life) => life[0]), ...Object.values(run.beliefs).flatMap((one) => one.moments.map((each) => each.time))]);
    const where = (test) => rising(log.time.filter((_, place) => test(place)));
    const stops = {
      all: () => every, round: () => rising(closes), lost: () => rising(failed.map((place) => sent.end[place])),
      trouble: () => where((place) => run.trouble.includes(log.kind[place])), own: () => where((place) => log.agent[place] === chosen),
      best: () => rising(run.bests[chosen][0]), belief: () => (beliefs(chosen) ? rising(beliefs(chosen).moments.map((one) => one.time)) : []),
    };
    let now = 0, chosen = 0, playing = null, stamp = null, moved = false;

    const activity = (row, when) => {
      const [times, doing, steps] = run.lives[row], place = Math.max(0, before(times, when));
      const word = run.doing[doing[place]], step = steps[place];
      return { word: word === "lost" ? "crashed for good" : step === null ? word : `${word} step ${step}`, doing: word, since: times[place], until: times[place + 1] ?? null };
    };
    const onTheirWay = (when) => sent.begin.flatMap((begin, place) => (begin <= when && (sent.end[place] === null || when < sent.end[place]) ? [place] : []));
    const told = (place) => (sent.up[place] ? `message of step ${sent.number[place]} of ${name(sent.agent[place])}` : `answer ${sent.number[place]} to ${name(sent.agent[place])}`);
    const cell = (made, text) => { if (made.textContent !== text) made.textContent = text; };
    const moment = (time, row) => `#${key}@${time}${row === undefined ? "" : `&agent=${run.agents[row]}`}`;
    const shortly = (value) => (value === null ? "" : number(value));

    const body = part("tbody");
    const rows = run.agents.map((agent, row) => {
      const line = element("tr", {}, body);
      line.addEventListener("click", () => choose(row));
      element("th", { scope: "row", text: agent }, line);
      const is = element("td", {}, line);
      const swatch = element("span", { class: "state", "aria-hidden": "true" }, is), word = element("span", {}, is);
      return { line, swatch, word, cells: ["", "", "", "number", "number"].map((kind) => element("td", kind ? { class: kind } : {}, line)) };
    });
    run.agents.forEach((agent, row) => element("option", { value: row, text: agent }, choice.agent));
    cell(part(".behind"), !run.values ? "" : rounds.length ? "Behind: rounds that have closed after the one of the agent's last answer." : run.ticks.length ? "Behind: messages that have reached the coordinator since the agent's last answer left." : "");

    // The number of the round that is open after so many; null after the last one of a run that has ended.
    const opened = (closed) => (rounds[closed + 1] ? rounds[closed + 1][0] : run.running && rounds.length ? rounds[closed][0] + 1 : null);
    const waitsFor = (row, state, way, closed, awaited) => {
      if (state.doing !== "waiting") return "";
      if (awaited.has(row)) return "its lost message";
      const mine = way.filter((place) => sent.agent[place] === row);
      const up = mine.find((place) => sent.up[place]), down = mine.find((place) => !sent.up[place]);
      if (up !== undefined) return "its message";
      if (down !== undefined) return `answer ${sent.number[down]}`;
      return opened(closed) === null ? "" : `round ${opened(closed)}`;
    };
    const tellRounds = (states, way, closed, awaited) => {
      const target = part(".rounds");
      target.replaceChildren();
      const say = (text) => element("p", { text }, target);
      if (!rounds.length) return void say(!run.values ? "Messages are not shown: this study is private." : run.ticks.length ? `There are no rounds. ${before(run.ticks, now) + 1} messages have reached the coordinator.` : "No message reaches the coordinator in this run.");
      const coming = new Set(way.filter((place) => sent.up[place]).map((place) => sent.agent[place]));
      const answered = new Map(way.filter((place) => !sent.up[place]).map((place) => [sent.agent[place], `waits for answer ${sent.number[place]}`]));
      // Who has crashed or left since is not waited for any more.
      const since = closed < 0 ? 0 : closes[closed], come = (place) => sent.up[place] && !sent.fate[place] && sent.end[place] > since && sent.end[place] <= now;
      const there = new Set(sent.agent.filter((_, place) => come(place)));
      const lostOf = (row) => (awaited.has(row) ? `message lost, until ${clocked(awaited.get(row))}` : undefined);
      const state = (row) => (coming.has(row) ? "message on its way" : lostOf(row) ?? (states[row].doing === "waiting" ? answered.get(row) : states[row].word));
      const missing = run.agents.map((_, row) => row).filter((row) => !["done", "lost"].includes(states[row].doing) && !there.has(row) && state(row));
      if (opened(closed) !== null && !run.values) say(`Round ${opened(closed)} is open since ${clocked(since)}.`);
      else if (opened(closed) !== null) say(`Round ${opened(closed)} is open since ${clocked(since)}. Not there yet: ${list(missing, (row) => `${run.agents[row]} (${state(row)})`) || "nobody"}.`);
      if (closed < 0) return;
      const [count, time, previous, row, kind] = rounds[closed], begin = closed ? closes[closed - 1] : 0;
      const gap = kind === "arrived" && previous !== null ? `, ${number(time - previous)} after the one before` : "";
      say(`Round ${count} closed at ${clocked(time)} ${CLOSED[kind].replace("#", row === null ? "" : name(row))}${gap}.`.replace(" .", "."));
      if (row === null) return;
      const spent = {};
      run.lives[row][0].forEach((from, place) => {
        const to = run.lives[row][0][place + 1] ?? run.end, length = Math.min(to, time) - Math.max(from, begin), word = run.doing[run.lives[row][1][place]];
        if (length > 0) spent[word] = (spent[word] ?? 0) + length;
      });
      const lost = failed.filter((place) => sent.agent[place] === row && sent.end[place] > begin && sent.end[place] <= time);
      const came = sent.end.findIndex((end, place) => end === time && sent.up[place] && sent.agent[place] === row && sent.fate[place] === 0);
      const travelled = came < 0 ? "" : `; its message took ${number(time - sent.begin[came])}`;
      const much = Object.entries(spent).sort((one, other) => other[1] - one[1]).map(([word, length]) => `${word} for ${number(length)}`).join(", ");
      say(`In round ${count}, ${name(row)} was ${much}${lost.map((place) => `; its ${told(place).replace(/ (of|to) agent \d+$/, "")} was ${run.fates[sent.fate[place]]} at ${clocked(sent.end[place])}${because(sent.why[place])}`).join("")}${travelled}.`);
    };
    const fill = (selector, items, nothing) => {
      const target = part(selector);
      target.replaceChildren(...items);
      if (!items.length) element("li", { class: "faint", text: nothing }, target);
    };
    const line = (place) => `${clocked(log.time[place])}: ${name(log.agent[place])} ${run.sentences[log.kind[place]].replace("#", log.number[place] ?? "")}${because(log.why[place])}`;
    const tellMessages = (way) => {
      const items = way.slice(0, 8).map((place) => element("li", { text: `${told(place)}, since ${clocked(sent.begin[place])}${sent.end[place] === null ? "; its end is not in the log" : `, until ${clocked(sent.end[place])}: ${run.fates[sent.fate[place]]}`}` }));
      if (way.length > 8) items.push(element("li", { text: `and ${way.length - 8} more` }));
      const none = run.values ? "none" : "not shown: this study is private";
      fill(".way", items, none);
      const ended = failed.slice(0, before(failed.map((place) => sent.end[place]), now) + 1), some = ended.slice(-5).reverse();
      const lost = some.map((place) => {
        const item = element("li", { text: `${told(place)}: ${run.fates[sent.fate[place]]}${because(sent.why[place])} at ` });
        element("a", { href: moment(sent.end[place], sent.agent[place]), text: clocked(sent.end[place]) }, item);
        return item;
      });
      if (ended.length > some.length) lost.push(element("li", { text: `and ${ended.length - some.length} before` }));
      fill(".losses", lost, none);
      const last = before(log.time, now), shown = Array.from({ length: Math.min(7, last + 1) }, (_, back) => last - back);
      fill(".events", shown.map((place) => element("li", { text: line(place), ...(log.time[place] === now ? { class: "now" } : {}) })), "none");
    };
    const tellAgent = (state) => {
      cell(part(".who"), `Agent ${run.agents[chosen]}`);
      const target = part(".own"), [times, steps, values] = run.bests[chosen], place = before(times, now), end = times.length - 1;
      target.replaceChildren(`It is ${state.word} since ${clocked(state.since)}. `);
      if (place >= 0) target.append(`Its best ${run.metric} so far is ${shortly(values[place])}, found at ${clocked(times[place])} in step ${steps[place]}. `);
      if (end >= 0) {
        target.append(`Its best of the whole run, ${shortly(values[end])}, is found in step ${steps[end]}, at `);
        element("a", { href: moment(times[end], chosen), text: clocked(times[end]) }, target);
        target.append(".");
      }
      drawBelief(part(".belief"), run, run.agents[chosen], now);
    };
    const tell = () => {
      const states = run.agents.map((_, row) => activity(row, now)), way = onTheirWay(now), closed = before(closes, now), ticked = before(run.ticks, now) + 1;
      const awaited = new Map(repeated.filter(([place, until]) => sent.end[place] <= now && now < until).map(([place, until]) => [sent.agent[place], until]));
      const counts = run.doing.map((word) => [states.filter((one) => one.doing === word).length, word === "lost" ? "crashed for good" : word]).filter(([count]) => count);
      rows.forEach(({ line: mine, swatch, word, cells }, row) => {
        const state = states[row], [when, counted] = run.known[row], answered = before(when, now), [times, , values] = run.bests[row], best = before(times, now);
        mine.classList.toggle("chosen", row === chosen);
        swatch.style.background = run.colours[state.doing];
        cell(word, state.word);
        const behind = when.length ? String(ticked - (answered < 0 ? 0 : counted[answered])) : "–";
        [clocked(state.since), state.until === null ? "" : clocked(state.until), waitsFor(row, state, way, closed, awaited), behind, best < 0 ? "–" : shortly(values[best])].forEach((text, place) => cell(cells[place], text));
      });
      tellRounds(states, way, closed, awaited);
      tellMessages(way);
      tellAgent(states[chosen]);
      const travelling = run.values ? `; ${way.length} message${way.length === 1 ? "" : "s"} on the way` : "";
      return counts.map(([count, word]) => `${count} ${word}`).join(", ") + travelling;
    };
    let words = "";
    const go = (time, again = false) => {
      now = Math.min(run.end, Math.max(0, time));
      const place = `${before(every, now)} ${chosen}`;
      if (again || place !== stamp || every[before(every, now)] === now) { stamp = place; words = tell(); }
      cell(summary, `At ${clocked(now)} of ${clocked(run.end)}: ${words}.`);
      clock.value = now;
      clock.setAttribute("aria-valuetext", `${clocked(now)} of ${clocked(run.end)}`);
      link.setAttribute("href", moment(now, chosen));
      figure.dispatchEvent(new CustomEvent("moment", { detail: now }));
    };
    const choose = (row) => { chosen = row; choice.agent.value = row; moved = true; go(now, true); };
    const step = (way) => {
      const times = stops[choice.kind.value](), place = before(times, now);
      const next = way > 0 ? times[place + 1] : times[times[place] === now ? place - 1 : place];
      if (next !== undefined) { moved = true; go(next); }
    };
    const play = (on) => {
      if (playing !== null) cancelAnimationFrame(playing);
      playing = null;
      buttons.play.setAttribute("aria-pressed", String(on));
      cell(buttons.play, on ? "pause" : "play");
      summary.setAttribute("aria-live", on ? "off" : "polite");
      if (!on) return;
      if (now >= run.end) go(0);
      moved = true;
      let last = performance.now();
      const frame = (time) => {
        go(now + (Math.max(0, time - last) / 1000 / Number(choice.speed.value)) * run.end);
        last = time;
        if (now >= run.end) play(false); else playing = requestAnimationFrame(frame);
      };
      playing = requestAnimationFrame(frame);
    };
    const acts = { back: () => step(-1), next: () => step(1), play: () => play(playing === null) };
    for (const [act, button] of Object.entries(buttons)) button.addEventListener("click", acts[act]);
    const leap = (time) => { moved = true; go(time); };
    clock.max = run.end;
    clock.addEventListener("input", () => leap(Number(clock.value)));
    clock.addEventListener("keydown", (event) => {
      const act = {
        ArrowRight: acts.next, ArrowUp: acts.next, ArrowLeft: acts.back, ArrowDown: acts.back, " ": acts.play, Home: () => leap(0), End: () => leap(run.end),
        PageUp: () => leap(now + run.end / 20), PageDown: () => leap(now - run.end / 20),
      }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
    choice.agent.addEventListener("change", () => choose(Number(choice.agent.value)));
    figure.addEventListener("chosen", (event) => leap(event.detail));
    const follow = () => {
      const found = /^#(.+)(?:@|%40)([-+.\de]+)(?:&agent=(\d+))?$/.exec(location.hash);
      if (!found || found[1] !== key || !Number.isFinite(Number(found[2]))) return false;
      const row = run.agents.indexOf(Number(found[3]));
      if (row >= 0) choose(row);
      leap(Number(found[2]));
      return true;
    };
    addEventListener("hashchange", follow);
    if (follow()) section.scrollIntoView();
    else go(run.running ? run.end : 0, true);
    return { rests: () => playing === null, address: () => (moved ? link.getAttribute("href") : "") };
  };

  const moving = [...document.querySelectorAll("section[data-moments]")].map(moments);
  // A page of a run in progress is asked for again, but not while somebody works on it; the moment at hand stays.
  const refresh = data.refresh && setInterval(() => {
    if (document.activeElement !== document.body || !moving.every((one) => one.rests())) return;
    clearInterval(refresh); // a second request would end the first, which may take longer than the interval
    const address = moving.map((one) => one.address()).find(Boolean);
    if (address) history.replaceState(null, "", address);
    location.reload();
  }, 1000 * data.refresh);
