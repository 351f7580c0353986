// What a reader can do with a page: sort and filter tables, read values of charts, choose a length, light and dark.
"use strict";
(() => {
  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };

  // -- light and dark --

  const root = document.documentElement, isDark = matchMedia("(prefers-color-scheme: dark)");
  const remembered = (theme) => {
    try { // a browser may refuse to keep anything for a file
      if (theme) localStorage.setItem("assay-theme", theme);
      return localStorage.getItem("assay-theme");
    } catch { return null; }
  };
  const toggle = element("button", {type: "button"});
  const showTheme = (theme) => {
    if (theme === "dark" || theme === "light") root.dataset.theme = theme;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : isDark.matches;
    toggle.textContent = dark ? "Light" : "Dark";
    toggle.setAttribute("aria-label", `Switch to ${dark ? "light" : "dark"} colours`);
  };
  toggle.addEventListener("click", () => {
    const theme = toggle.textContent.toLowerCase();
    remembered(theme);
    showTheme(theme);
  });
  isDark.addEventListener("change", () => showTheme());
  document.querySelector("main").before(element("header", {class: "tools"}, toggle));
  showTheme(remembered());

  // -- tables: sort --

  const NUMBER = /^[<>=~×x]?\s*([-+−]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?)(?![\w^.])(?:\/(\d+\.?\d*))?/i;
  const RATIO = /^([\d,]+) of ([\d,]+)/;
  const number = (text) => parseFloat(text.replaceAll(",", "").replace("−", "-"));
  const lineOf = (cell) => (cell.firstChild?.nodeValue ?? cell.textContent).trim();
  const isEmpty = (text) => /^[-–—?]?$/.test(text);
  // What a cell is sorted by: [a number, a second one for equal ones], null for none. "3 of 5" is the share.
  const measure = (text) => {
    const ratio = RATIO.exec(text);
    if (ratio) return [number(ratio[1]) / (number(ratio[2]) || 1), number(ratio[2])];
    const found = NUMBER.exec(text);
    return found && [number(found[1]), number(found[2] ?? "0")];
  };
  const words = new Intl.Collator("en", {numeric: true, sensitivity: "base"});
  const sortable = (table) => {
    const body = table.tBodies[0], header = table.tHead?.rows[0];
    if (!header || body.rows.length < 3) return;
    const original = [...body.rows];
    for (const heading of header.cells) {
      const column = heading.cellIndex, button = element("button", {type: "button"}, ...heading.childNodes);
      if (!heading.textContent && !button.textContent) button.setAttribute("aria-label", "Sort by name");
      heading.append(button);
      button.addEventListener("click", () => {
        const texts = new Map(original.map((row) => [row, lineOf(row.cells[column])]));
        const known = original.filter((row) => !isEmpty(texts.get(row)));
        const measures = new Map(known.map((row) => [row, measure(texts.get(row))]));
        const numeric = known.every((row) => measures.get(row));
        const order = numeric
          ? (a, b) => measures.get(a)[0] - measures.get(b)[0] || measures.get(a)[1] - measures.get(b)[1]
          : (a, b) => words.compare(texts.get(a), texts.get(b));
        // Numbers begin with the largest, words with the first; a third click restores the table's own order.
        const turns = numeric ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
        const turn = turns[(turns.indexOf(heading.getAttribute("aria-sort") ?? "none") + 1) % 3];
        for (const other of header.cells) other.removeAttribute("aria-sort");
        if (turn !== "none") heading.setAttribute("aria-sort", turn);
        const sign = turn === "ascending" ? 1 : -1;
        const sorted = known.sort((a, b) => sign * order(a, b));
        const last = original.filter((row) => isEmpty(texts.get(row)));
        body.append(...(turn === "none" ? original : [...sorted, ...last]));
      });
    }
  };

  // -- tables: filter --

  const LONG = 10; // rows
  const filterable = (table, number) => {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < LONG) return;
    const id = `filter-${number}`, input = element("input", {type: "search", id, autocomplete: "off"});
    const count = element("output", {for: id, "aria-live": "polite"}), label = element("label", {for: id}, "Filter rows");
    const texts = rows.map((row) => [...row.cells].map((cell) => cell.innerText ?? cell.textContent).join(" ").toLowerCase());
    const show = () => {
      const parts = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let left = 0;
      rows.forEach((row, i) => {
        row.hidden = !parts.every((part) => texts[i].includes(part));
        left += !row.hidden;
      });
      count.textContent = parts.length ? `${left} of ${rows.length} rows` : "";
    };
    input.addEventListener("input", show);
    table.closest(".wide").before(element("div", {class: "filter", role: "search"}, label, input, count));
  };

  // -- tooltips of charts --

  const MARKS = "[role=graphics-symbol][aria-label]:not([aria-roledescription=axis], [aria-roledescription=legend], "
    + "[aria-roledescription=title])";
  const tooltip = element("div", {class: "tooltip", role: "status", hidden: ""});
  document.body.append(tooltip);
  let marked = null;
  const hide = () => {
    marked?.classList.remove("shown");
    marked = null;
    tooltip.hidden = true;
  };
  const show = (mark, x, y) => {
    if (mark !== marked) {
      hide();
      marked = mark;
      mark.classList.add("shown");
      tooltip.textContent = mark.getAttribute("aria-label").split("; ").join("\n");
    }
    tooltip.hidden = false;
    const width = tooltip.offsetWidth, height = tooltip.offsetHeight;
    tooltip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
    tooltip.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 10) : y + 18}px`;
  };
  const readable = (figure) => {
    const marks = [...figure.querySelectorAll(MARKS)];
    if (!marks.length) return;
    figure.tabIndex = 0;
    figure.setAttribute("aria-description", "Arrow keys read the values");
    figure.addEventListener("pointermove", (event) => {
      const mark = event.target.closest?.(MARKS);
      if (mark) show(mark, event.clientX, event.clientY);
      else hide();
    });
    figure.addEventListener("pointerleave", hide);
    figure.addEventListener("blur", hide);
    figure.addEventListener("keydown", (event) => {
      const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      const now = marks.indexOf(marked), next = now < 0 ? (step > 0 ? 0 : marks.length - 1) : now + step;
      const mark = marks[Math.max(0, Math.min(next, marks.length - 1))];
      mark.scrollIntoView({block: "nearest", inline: "nearest"});
      const box = mark.getBoundingClientRect();
      show(mark, box.right - 8, box.bottom - 12);
    });
  };
  document.querySelectorAll("figure").forEach(readable);
  globalThis.assayPage = {element, readable}; // for the script of a live page
  addEventListener("scroll", () => marked && document.activeElement?.tagName !== "FIGURE" && hide(), {passive: true});

  // -- accuracies at a chosen length --

  const nearest = (lengths, wanted) =>
    lengths.reduce((best, length) => (Math.abs(length - wanted) < Math.abs(best - wanted) ? length : best));
  const lengthsOf = (place, number) => {
    const tasks = JSON.parse(place.querySelector("script").textContent);
    const lengths = [...new Set(tasks.flatMap((task) => task.lengths))].sort((a, b) => a - b);
    const models = [...new Set(tasks.flatMap((task) => Object.keys(task.models)))];
    const id = `length-${number}`, start = lengths.findIndex((length) => length > Math.max(...tasks.map((task) => task.trained)));
    const slider = element("input", {type: "range", id, min: 0, max: lengths.length - 1, value: Math.max(start, 0)});
    const output = element("output", {for: id});
    const heads = tasks.map((task) => element("th", {scope: "col"}, task.task, element("small")));
    const cells = models.map(() => tasks.map(() => element("td")));
    const head = element("thead", {}, element("tr", {}, element("th", {scope: "col"}, "model"), ...heads));
    const body = models.map((model, i) => element("tr", {}, element("th", {scope: "row"}, model), ...cells[i]));
    const caption = element("caption", {}, "Right sequences in % at the chosen length");
    const table = element("table", {}, caption, head, element("tbody", {}, ...body));
    const update = () => {
      const wanted = lengths[slider.value];
      output.textContent = `${wanted.toLocaleString("en")}`;
      slider.setAttribute("aria-valuetext", `length ${wanted}`);
      tasks.forEach((task, j) => {
        const isTested = wanted >= task.lengths[0] && wanted <= task.lengths.at(-1);
        const length = nearest(task.lengths, wanted), at = task.lengths.indexOf(length);
        const trained = length <= task.trained ? "as in training" : `${+(length / task.trained).toPrecision(3)}x training`;
        heads[j].lastChild.textContent = isTested ? `at ${length.toLocaleString("en")}: ${trained}` : "not tested";
        models.forEach((model, i) => {
          const share = isTested ? task.models[model]?.[at] : null;
          cells[i][j].textContent = share == null ? "-" : share === 100 ? "100" : share.toFixed(1);
          cells[i][j].style.background = share ? `rgba(66,146,198,${(0.006 * share).toFixed(2)})` : "";
        });
      });
    };
    slider.addEventListener("input", update);
    const label = element("label", {for: id}, "Length", slider, output);
    place.append(label, element("div", {class: "wide"}, table));
    place.hidden = false;
    update();
  };

  document.querySelectorAll(".lengths").forEach(lengthsOf);
  document.querySelectorAll("section .wide > table").forEach((table, number) => {
    if (table.closest(".lengths")) return;
    sortable(table);
    filterable(table, number);
  });

  // What is wider than the screen can be scrolled with the keyboard.
  const scrollable = () => {
    for (const box of document.querySelectorAll(".wide")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  addEventListener("resize", scrollable);
  scrollable();
})();
