// A store on the page: asks for its state every two seconds. Whatever a record says is set as text, never as markup.
"use strict";
(() => {
  const {element, readable} = globalThis.assayPage;
  const SIGNS = {
    __proto__: null, // a verdict may be any text: "constructor" has no sign either
    solved: "●", refuted: "◆", "partly solved": "◑", collapsed: "▼", diverged: "✕", censored: "○", failed: "!",
    "under way": "◌", waiting: "·",
  };
  const POLL = 2000, CALM = 10000; // milliseconds between two questions: while runs are left, and afterwards
  const place = document.getElementById("live"), summary = document.getElementById("summary");
  const kind = (verdict) => (SIGNS[verdict] ? verdict.replace(" ", "-") : "unknown");
  const count = (number) => number.toLocaleString("en");
  const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
  const clock = (seconds) => {
    const whole = Math.round(seconds), pad = (part) => String(part).padStart(2, "0");
    const minutes = Math.floor(whole / 60) % 60, hours = Math.floor(whole / 3600);
    return hours ? `${hours}:${pad(minutes)}:${pad(whole % 60)}` : `${minutes}:${pad(whole % 60)}`;
  };
  const listed = (counts) => Object.entries(counts).map(([name, number]) => `${count(number)} ${name}`).join(", ");

  // -- the parts of the page --

  const section = (title, ...children) => {
    const made = element("section", {"aria-label": title}, element("h2", {}, title), ...children);
    place.append(made);
    return made;
  };
  const trouble = element("p", {class: "trouble", role: "alert", hidden: ""});
  const bar = element("progress", {max: 1, value: 0, "aria-label": "Runs that have ended"});
  place.append(trouble, bar);
  const legend = element("p", {class: "legend"});
  for (const [name, sign] of Object.entries(SIGNS)) {
    legend.append(element("span", {class: `dot ${kind(name)}`}, sign), ` ${name}   `);
  }
  const row = (...names) => element("tr", {}, ...names.map((name) => element("th", {scope: "col"}, name)));
  const table = (title, ...names) => {
    const body = element("tbody");
    const made = element("table", {}, element("caption", {class: "hidden"}, title), element("thead", {}, row(...names)), body);
    return [element("div", {class: "wide", tabindex: 0, role: "region", "aria-label": title}, made), body];
  };
  const [grid, groupRows] = table("Members", "task", "model", "", "runs", "");
  const more = element("p", {class: "legend"});
  section("Members", legend, grid, more);
  const news = element("ol", {class: "news"});
  section("Newest verdicts", news);
  const curvesNote = element("p"), curves = element("div", {class: "curves"});
  section("Curves", curvesNote, curves);
  const [workers, workerRows] = table("Processes at work", "process", "device", "since", "what its workers do");
  section("Processes at work", workers);

  // -- members --

  const rows = new Map();
  let chosen = null, isChosenByReader = false;
  const dots = (group) => {
    const one = (verdict, title) => element("span", {class: `dot ${kind(verdict)}`, title}, SIGNS[verdict] ?? "?");
    const drawn = group.runs.map(([seed, verdict]) => one(verdict, `seed ${seed}: ${verdict}`));
    const space = Math.max(0, 400 - drawn.length);
    for (const [name, number] of [["under way", group.under_way], ["waiting", group.waiting]]) {
      for (let i = 0; i < Math.min(number, space); i += 1) drawn.push(one(name, name));
    }
    return drawn;
  };
  const numbers = (group) => listed({
    ...group.counts,
    ...(group.under_way && {"under way": group.under_way}),
    ...(group.waiting && {waiting: group.waiting}),
  });
  const keyOf = (group) => JSON.stringify([group.task, group.model]);
  const showGroups = (groups) => {
    for (const group of groups) {
      const key = keyOf(group), content = JSON.stringify(group);
      let known = rows.get(key);
      if (!known) {
        const button = element("button", {type: "button", "aria-pressed": false}, "curves");
        button.setAttribute("aria-label", `Curves of ${group.model} on ${group.task}`);
        button.addEventListener("click", () => {
          isChosenByReader = true;
          choose(group);
        });
        const cells = ["", "", "dots", "", ""].map((name) => element("td", name ? {class: name} : {}));
        cells[0].append(group.task);
        cells[1].append(group.model);
        cells[4].append(button);
        known = {cells, button, content: ""};
        rows.set(key, known);
        groupRows.append(element("tr", {}, ...cells));
      }
      if (known.content === content) continue;
      known.content = content;
      known.cells[2].replaceChildren(...dots(group));
      known.cells[2].setAttribute("aria-label", numbers(group));
      known.cells[3].textContent = numbers(group);
      if (chosen && keyOf(chosen) === key) choose(group);
    }
  };

  // -- curves --

  const SVG = "http://www.w3.org/2000/svg", W = 340, H = 200, LEFT = 54, BOTTOM = 26, TOP = 20;
  const svg = (name, attributes, ...children) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const chart = (title, runs, value, low, high, shown) => {
    const steps = Math.max(1, ...runs.flatMap((run) => run.points.map((point) => point[0])));
    const x = (step) => LEFT + (step / steps) * (W - LEFT - 8);
    const y = (number) => TOP + (1 - (number - low) / (high - low || 1)) * (H - TOP - BOTTOM);
    const text = (at, down, content, anchor) => svg("text", {x: at, y: down, "text-anchor": anchor}, content);
    const made = svg("svg", {viewBox: `0 0 ${W} ${H}`});
    made.append(svg("path", {class: "frame", d: `M${LEFT},${TOP}V${H - BOTTOM}H${W - 8}`}));
    made.append(text(LEFT, 12, title, "start"), text(W - 8, H - 8, `${count(steps)} steps`, "end"), text(LEFT, H - 8, "0", "middle"));
    made.append(text(LEFT - 4, TOP + 8, shown(high), "end"), text(LEFT - 4, H - BOTTOM, shown(low), "end"));
    for (const run of runs) {
      const points = run.points.map((point) => [point[0], value(point)]).filter((point) => point[1] !== null);
      if (!points.length) continue;
      const last = points.at(-1), rate = run.rate === null ? "" : `, rate ${run.rate}`;
      const label = `seed ${run.seed}${rate}: ${run.verdict}; ${shown(last[1])} at step ${count(last[0])}`;
      const line = points.map(([step, number], i) => `${i ? "L" : "M"}${x(step).toFixed(1)},${y(number).toFixed(1)}`).join("");
      const d = points.length > 1 ? line : `${line}h0`; // one point is a dot
      const kinds = kind(run.verdict) + (points.length > 1 ? "" : " point");
      made.append(svg("path", {class: kinds, d, role: "graphics-symbol", "aria-label": label}));
    }
    return element("figure", {"aria-label": title}, made);
  };
  const showCurves = (answer) => {
    const runs = answer.runs ?? [], losses = runs.flatMap((run) => run.points.map((point) => point[1])).filter((loss) => loss > 0);
    const says = `${answer.model} on ${answer.task}: `;
    curvesNote.textContent = answer.error ?? (runs.length
      ? `${says}${counted(runs.length, "run")} that ended, the newest 20 at most. A run under way is drawn when it has ended.`
      : `${says}no run that ended has a curve.`);
    curves.replaceChildren();
    if (!runs.length) return;
    const logs = losses.map(Math.log10), low = Math.min(...logs, 0), high = Math.max(...logs, low + 0.1);
    const loss = (point) => (point[1] > 0 ? Math.log10(point[1]) : null);
    const percent = (share) => `${Math.floor(share * 1000) / 10} %`;
    curves.append(
      chart("training loss (logarithmic)", runs, loss, low, high, (number) => (10 ** number).toPrecision(2)),
      chart("right sequences in validation", runs, (point) => point[2], 0, 1, percent),
    );
    curves.querySelectorAll("figure").forEach(readable);
  };
  const choose = async (group) => {
    chosen = group;
    for (const [key, known] of rows) known.button.setAttribute("aria-pressed", String(key === keyOf(group)));
    const query = new URLSearchParams({task: group.task, model: group.model});
    try {
      const answer = await (await fetch(`curves.json?${query}`)).json();
      if (chosen === group) showCurves(answer);
    } catch {
      curvesNote.textContent = "The curves could not be read.";
    }
  };

  // -- the state --

  const show = (state) => {
    trouble.hidden = !state.error;
    trouble.textContent = state.error ?? "";
    if (state.error) {
      summary.textContent = "The store cannot be read.";
      return;
    }
    bar.max = Math.max(1, state.total);
    bar.value = state.ended;
    const verdicts = listed(state.verdicts), parts = [`${count(state.ended)} of ${counted(state.total, "run")} ended`];
    if (verdicts) parts[0] += ` (${verdicts})`;
    if (!state.complete) {
      parts.push(`${count(state.under_way)} under way`);
      parts.push(state.seconds_left ? `about ${clock(state.seconds_left)} left` : "time left not known yet");
    }
    const text = `${parts.join(", ")}.`;
    if (summary.textContent !== text) summary.textContent = text;
    showGroups(state.groups);
    more.textContent = state.more_groups ? `and ${counted(state.more_groups, "more group")}` : "";
    news.replaceChildren(...state.newest.map((one) => element("li", {},
      element("span", {class: `dot ${kind(one.verdict)}`}, SIGNS[one.verdict] ?? "?"),
      ` ${one.task} ${one.model} seed ${one.seed}: ${one.verdict}${one.detail && `, ${one.detail}`}`)));
    workerRows.replaceChildren(...state.processes.map((process) => element("tr", {},
      element("td", {}, process.name), element("td", {}, process.device), element("td", {}, clock(process.seconds)),
      element("td", {}, element("ul", {class: "says"}, ...process.says.map((text) => element("li", {}, text)))))));
    workers.parentElement.hidden = !state.processes.length;
    const newest = state.newest[0] ?? state.groups.find((group) => group.runs.length);
    if (!isChosenByReader && newest && (!chosen || keyOf(chosen) !== keyOf(newest))) choose(newest);
  };
  const poll = async () => {
    let wait = POLL;
    try {
      const state = await (await fetch("state.json")).json();
      show(state);
      if (state.complete) wait = CALM;
    } catch {
      trouble.hidden = false;
      trouble.textContent = "assay serve does not answer; this is its last picture.";
    }
    setTimeout(poll, document.hidden ? CALM : wait);
  };
  poll();
})();
