"use strict";
// Shows, beside a text, the step under the pointer or the keyboard: what was guessed and checked, why, and its tree.
// Texts are set as text, never as HTML.
(() => {
  const { names, texts, answers } = JSON.parse(document.getElementById("data").textContent);
  const visible = (token) => texts[token].replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ | $/g, "·");
  function make(tag, look, ...inside) {
    const element = document.createElement(tag);
    if (look) element.className = look;
    element.append(...inside);
    return element;
  }
  const count = (n, one, many = one + "s") => `${n} ${n === 1 ? one : many}`;
  // Nested lists: a run of only children is one line, and branches hang below it.
  function drawTree({ tokens, parents, belief, source, path, lookahead }, drafters) {
    const accepted = new Set(path);
    const children = new Map();
    parents.forEach((parent, i) => children.set(parent, [...(children.get(parent) ?? []), i]));
    function node(i) {
      const state = accepted.has(i) ? "yes" : lookahead[i] ? "lookahead" : "not";
      const told = { yes: "right", not: "wrong, or behind a wrong one", lookahead: "looked at to learn from, never taken" }[state];
      const drafter = drafters[source[i]] ?? 0, share = Math.round(100 * belief[i]);
      const label = make("span", "sr", `, ${told}, thought likely`);
      const element = make("span", `node ${state} c${drafter % 5}`, visible(tokens[i]), label, make("small", "", `${share}%`));
      element.title = `${names[drafter]}: ${told}, thought ${share} % likely`;
      return element;
    }
    const branches = (from, look) => {
      const list = make("ul", look);
      for (const first of children.get(from) ?? []) {
        let at = first;
        const item = make("li", "", node(at));
        for (let below = children.get(at) ?? []; below.length === 1; below = children.get(at) ?? []) {
          at = below[0];
          item.append(node(at));
        }
        if (children.has(at)) item.append(branches(at, ""));
        list.append(item);
      }
      return list;
    };
    return branches(-1, "tree");
  }
  const stages = { score: "the model’s pass", draft: "guessing", plan: "planning", verify: "comparing", keep: "keeping", learn: "learning" };
  function draw(panel, index, step, drafters) {
    const close = make("button", "close", "Close");
    close.type = "button";
    const parts = [close, make("h4", "", `Step ${index + 1}: ${count(step.emitted.length, "token")}`)];
    const spent = Object.keys(stages).filter((name) => step.ms_of[name] >= 0.05).map((name) => `${stages[name]} ${step.ms_of[name].toFixed(1)}`);
    parts.push(make("p", "note", `after ${count(step.context, "token")} · ${step.ms.toFixed(1)} ms${spent.length ? `: ${spent.join(", ")}` : ""}`));
    const expected = step.expected_ms ? ` The planner expected ${step.expected_tokens.toFixed(2)} tokens in ${step.expected_ms.toFixed(1)} ms.` : "";
    parts.push(make("p", "", `${step.why[0].toUpperCase()}${step.why.slice(1)}.${expected}`));
    for (const one of step.sources.filter((each) => each.proposed || each.failed)) {
      const match = one.match_length ? `, after ${count(one.match_length, "token")} that it had seen before` : "";
      parts.push(make("p", "note", one.failed ? `${one.source} failed and was switched off.`
        : `${one.source}: ${count(one.proposed, "guess", "guesses")}${match}; ${one.kept} checked, ${one.accepted} right.`));
    }
    if (step.tree) {
      parts.push(drawTree(step.tree, drafters));
      parts.push(make("p", "note", "✓: right. Percentages: how likely the planner thought each guess. Guesses below one another exclude each other."));
    } else if (step.accepted) {
      parts.push(make("p", "note", "Which guesses were checked was not recorded."));
    }
    const own = step.emitted.slice(step.accepted);
    if (own.length) parts.push(make("p", "", "Written by the model itself: ", ...own.map((token) => make("span", "node own", visible(token)))));
    panel.replaceChildren(...parts);
    panel.hidden = false;
  }
  for (const text of document.querySelectorAll(".text[data-answer]")) {
    const { steps, drafters } = answers[text.dataset.answer];
    const spans = [...text.children];
    const panel = text.closest(".reader").querySelector(".panel");
    let current = 0;
    const show = (index) => {
      if (!spans[index]) return;
      spans[current].classList.remove("on");
      spans[current].tabIndex = -1;
      current = index;
      spans[current].classList.add("on");
      spans[current].tabIndex = 0;
      draw(panel, index, steps[index], drafters);
    };
    const hide = () => {
      panel.hidden = true;
      spans[current].classList.remove("on");
    };
    const at = (event) => spans.indexOf(event.target.closest(".text > span"));
    text.addEventListener("pointerover", (event) => event.pointerType === "mouse" && show(at(event)));
    text.addEventListener("click", (event) => show(at(event)));
    text.addEventListener("focusin", (event) => show(at(event)));
    text.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const to = event.key === "Home" ? 0 : event.key === "End" ? spans.length - 1 : by ? current + by : -1;
      if (event.key === "Escape") hide();
      if (!spans[to]) return;
      event.preventDefault();
      spans[to].focus();
    });
    panel.addEventListener("click", (event) => event.target.closest(".close") && hide());
    // The keyboard enters a text at the step that accepted most.
    const most = Math.max(...steps.map((step) => step.accepted));
    current = Math.max(0, steps.findIndex((step) => step.accepted === most));
    if (spans[current]) spans[current].tabIndex = 0;
  }
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));
})();
