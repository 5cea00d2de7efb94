"use strict";
// Shows, beside a text, the step under the pointer or the keyboard: why it drafted as much as it did, and its tree.
// Texts are set as text, never as HTML.
(() => {
  const { names, strings, answers } = JSON.parse(document.getElementById("data").textContent);
  const visible = (text) => text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ | $/g, "·");
  function make(tag, look, ...inside) {
    const element = document.createElement(tag);
    if (look) element.className = look;
    element.append(...inside);
    return element;
  }
  const count = (n, one) => `${n} ${n === 1 ? one : one + "s"}`;
  // Nested lists: a run of only children is one line, and branches hang below it.
  function drawTree([tokens, parents, belief, sources, path, lookahead]) {
    const accepted = new Set(typeof path === "number" ? [...tokens.keys()].slice(0, path) : path);
    const children = new Map();
    tokens.forEach((_, i) => {
      const parent = parents ? parents[i] : i - 1;
      children.set(parent, [...(children.get(parent) ?? []), i]);
    });
    function node(i) {
      const state = accepted.has(i) ? "yes" : lookahead && lookahead[i] ? "lookahead" : "not";
      const told = { yes: "accepted", not: "not accepted", lookahead: "a lookahead node" }[state];
      const source = sources[i] ?? sources, share = belief[i] ?? belief;
      const label = make("span", "sr", `, ${told}, believed`);
      const element = make("span", `node ${state} c${source % 5}`, visible(strings[tokens[i]]), label, make("small", "", `${share}%`));
      element.title = `${names[source]}: ${told}, believed ${share} %`;
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
  function draw(panel, index, [context, ms, pass, accepted, own, why, tree]) {
    const close = make("button", "close", "Close");
    close.type = "button";
    const parts = [close, make("h4", "", `Step ${index + 1}: ${count(accepted + (own >= 0 ? 1 : 0), "token")}`)];
    parts.push(make("p", "note", `after ${count(context, "token")} · ${ms} ms, ${pass} ms of it the model’s pass`));
    parts.push(make("p", "", strings[why]));
    if (tree) {
      parts.push(make("p", "", `Drafted ${count(tree[0].length, "node")}, accepted ${accepted}. Percentages are what the drafter believed.`));
      parts.push(drawTree(tree));
    } else {
      parts.push(make("p", "", accepted ? `Accepted ${count(accepted, "token")}; the tree of this step was not kept.` : "Nothing was drafted: a plain step."));
    }
    if (own >= 0) parts.push(make("p", "", "The model’s own token: ", make("span", "node own", visible(strings[own]))));
    panel.replaceChildren(...parts);
    panel.hidden = false;
  }
  for (const text of document.querySelectorAll(".text[data-answer]")) {
    const steps = answers[text.dataset.answer];
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
      draw(panel, index, steps[index]);
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
    const most = Math.max(...steps.map((step) => step[3]));
    current = Math.max(0, steps.findIndex((step) => step[3] === most));
    if (spans[current]) spans[current].tabIndex = 0;
  }
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));
})();
