"use strict";
// Shows, beside a text, the step under the pointer or the keyboard: why it drafted as much as it did, and its tree.
// The strip below the text has a column per step. Texts are set as text, never as HTML.
(() => {
  const { names, strings, reasons, answers, why } = JSON.parse(document.getElementById("data").textContent);
  const visible = (text) => text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ | $/g, "·");

  function make(tag, look, ...inside) {
    const element = document.createElement(tag);
    if (look) element.className = look;
    element.append(...inside);
    return element;
  }

  function count(n, one, many = one + "s") {
    return `${n} ${n === 1 ? one : many}`;
  }

  // A node of the draft; `state` is yes (accepted), not, or lookahead.
  function node(token, belief, source, state) {
    const told = { yes: "accepted", not: "not accepted", lookahead: "a lookahead node" }[state];
    const label = make("span", "sr", `, ${told}, believed`);
    const element = make("span", `node ${state} c${source % 5}`, visible(strings[token]), label, make("small", "", `${belief}%`));
    element.title = `${names[source]}: ${told}, believed ${belief} %`;
    return element;
  }

  // Nested lists: a run of only children is one line, and branches hang below it.
  function drawTree([tokens, parents, belief, sources, path, lookahead]) {
    const accepted = new Set(typeof path === "number" ? [...tokens.keys()].slice(0, path) : path);
    const children = new Map();
    tokens.forEach((_, i) => {
      const parent = parents ? parents[i] : i - 1;
      children.set(parent, [...(children.get(parent) ?? []), i]);
    });
    const one = (i) =>
      node(tokens[i], belief[i] ?? belief, sources[i] ?? sources, accepted.has(i) ? "yes" : lookahead && lookahead[i] ? "lookahead" : "not");
    const branches = (from, look) => {
      const list = make("ul", look);
      for (const first of children.get(from) ?? []) {
        const item = make("li");
        let at = first;
        item.append(one(at));
        for (let below = children.get(at) ?? []; below.length === 1; below = children.get(at) ?? []) {
          at = below[0];
          item.append(one(at));
        }
        if (children.has(at)) item.append(branches(at, ""));
        list.append(item);
      }
      return list;
    };
    return branches(-1, "tree");
  }

  function drawOrigin(copied, [source, first, length, place, inPrompt, before, context, after]) {
    const run = copied.slice(first, first + length).map((token) => strings[token]).join("");
    const where = `${inPrompt ? "the prompt" : "the answer"}, token ${place}`;
    const said = context.length ? "after the same words" : "though after other words";
    return [
      make("p", "", `${names[source]} copied “`, make("i", `c${source % 5}`, visible(run)), `”; ${said} it last stood in ${where}:`),
      make("blockquote", "excerpt", "… ", before, make("u", "", context), make("mark", "", run), after, " …"),
    ];
  }

  // Tokens that a step copied: said, or those on the accepted path of its tree.
  function copiedOf([, , , said, , tree]) {
    if (said || !tree) return said || [];
    const [tokens, , , , path] = tree;
    return typeof path === "number" ? tokens.slice(0, path) : path.map((i) => tokens[i]);
  }

  function gain(step) {
    return copiedOf(step).length + (step[4] >= 0 ? 1 : 0);
  }

  function because(said) {
    if (said === -1) return "";
    const [reason, tokens, ms] = said;
    const expected = tokens === undefined ? "" : ` Expected: ${count(tokens, "token")} in ${ms} ms.`;
    return `${reasons[reason][0].toUpperCase()}${reasons[reason].slice(1)}.${expected}`;
  }

  // Marks the step's column in the strip; returns what its columns and keys do.
  function liven(strip, steps, said, show) {
    const rows = [...strip.children];
    const cells = Number(strip.dataset.cells);
    const here = document.createElementNS(rows[0].namespaceURI, "rect");
    const marks = { class: "here", width: 1, height: 24, y: 0 };
    for (const [name, value] of Object.entries(marks)) here.setAttribute(name, value);
    const aria = { role: "slider", "aria-valuemin": 1, "aria-valuemax": steps.length, "aria-valuenow": 1 };
    for (const [name, value] of Object.entries(aria)) strip.setAttribute(name, value);
    strip.tabIndex = 0;
    let current = 0;

    const at = (event) => {
      const row = event.target.closest("svg");
      if (!row) return -1;
      const { left, width } = row.getBoundingClientRect();
      return rows.indexOf(row) * cells + Math.floor(((event.clientX - left) / width) * cells);
    };
    strip.addEventListener("pointermove", (event) => event.pointerType === "mouse" && show(at(event)));
    strip.addEventListener("click", (event) => show(at(event)));
    strip.addEventListener("focus", () => show(current));
    strip.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: cells, ArrowUp: -cells }[event.key];
      const to = event.key === "Home" ? 0 : event.key === "End" ? steps.length - 1 : by ? current + by : -1;
      if (!steps[to]) return;
      event.preventDefault();
      show(to);
    });
    return (index) => {
      current = index;
      here.setAttribute("x", index % cells);
      rows[Math.floor(index / cells)].append(here);
      strip.setAttribute("aria-valuenow", index + 1);
      strip.setAttribute("aria-valuetext", `step ${index + 1}, ${count(gain(steps[index]), "token")}. ${because(said[index])}`);
    };
  }

  function draw(panel, index, step, said) {
    const [context, ms, pass, , own, tree, origins] = step;
    const tokens = copiedOf(step);
    const copied = tokens.length;
    const close = make("button", "close", "Close");
    close.type = "button";
    const parts = [close, make("h4", "", `Step ${index + 1}: ${count(gain(step), "token")}`)];
    parts.push(make("p", "hint", `after ${count(context, "token")} · ${ms} ms, ${pass} ms of it the model’s pass`));
    if (because(said)) parts.push(make("p", "", because(said)));
    if (tree) {
      parts.push(make("p", "", `Drafted ${count(tree[0].length, "node")}, accepted ${copied}. Percentages are what the drafter believed.`));
      parts.push(drawTree(tree));
    } else if (copied) {
      parts.push(make("p", "", `Accepted ${count(copied, "token")}; the tree of this step was not kept.`));
    } else {
      parts.push(make("p", "", "Nothing was drafted: a plain step."));
    }
    if (own >= 0) {
      parts.push(make("p", "", "The model’s own token: ", make("span", "node own", visible(strings[own]))));
    }
    panel.replaceChildren(...parts, ...origins.flatMap((origin) => drawOrigin(tokens, origin)));
    panel.hidden = false;
  }

  document.documentElement.classList.add("live");
  const narrow = matchMedia("(max-width: 61.99rem)");
  for (const text of document.querySelectorAll(".text[data-answer]")) {
    const steps = answers[text.dataset.answer];
    const spans = [...text.children].filter((child) => child.tagName === "SPAN");
    const said = why[text.dataset.answer];
    const panel = text.closest(".reader").querySelector(".panel");
    const strip = text.closest(".reader").querySelector(".effort");
    let current = -1;
    let mark = () => {};

    const show = (index) => {
      if (!spans[index] || (index === current && !panel.hidden)) return;
      spans[current]?.classList.remove("on");
      if (spans[current]) spans[current].tabIndex = -1;
      current = index;
      spans[current].classList.add("on");
      spans[current].tabIndex = 0;
      mark(index);
      draw(panel, index, steps[index], said[index]);
    };
    const hide = () => {
      panel.hidden = true;
      spans[current]?.classList.remove("on");
    };
    const at = (event) => spans.indexOf(event.target.closest(".text > span"));

    text.addEventListener("pointerover", (event) => event.pointerType === "mouse" && at(event) >= 0 && show(at(event)));
    text.addEventListener("click", (event) => at(event) >= 0 && show(at(event)));
    text.addEventListener("focusin", (event) => at(event) >= 0 && show(at(event)));
    text.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const to = event.key === "Home" ? 0 : event.key === "End" ? spans.length - 1 : step ? current + step : -1;
      if (event.key === "Escape") hide();
      if (spans[to]) {
        event.preventDefault();
        show(to);
        spans[to].focus();
      }
    });
    panel.addEventListener("click", (event) => event.target.closest(".close") && hide());
    if (strip) {
      mark = liven(strip, steps, said, show);
      strip.addEventListener("keydown", (event) => event.key === "Escape" && hide());
    }

    // Begin with the step that accepted most, so that something is to be seen; where the page opens and on a phone
    // the panel would push other things away, so there it waits to be asked for.
    const gains = steps.map(gain);
    const best = Math.max(0, gains.indexOf(Math.max(...gains)));
    if (!spans[best]) continue;
    if (narrow.matches || text.closest(".opening")) [current, spans[best].tabIndex] = [best, 0];
    else show(best);
  }
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));
})();
