/* The race: a prompt is answered with drafts and without, and both answers are shown side by side. */

const NAMES = ["drafted", "plain"];
const WARM_UP_TOKENS = 16;  // some passes: all drafters have run, and kernels that a new machine lacks are compiled
const TICK = 15;  // milliseconds between two checks whether a recorded pass is due
const narrow = matchMedia("(max-width: 44rem), (max-width: 64rem) and (max-height: 32rem)");  // as in the styles
const still = matchMedia("(prefers-reduced-motion: reduce)");

/* What is known of an answer. An event is what one pass brought: when, which pieces of text, which tree. */
function newSide(name) {
  return { name, events: [], steps: [], tokens: 0, seconds: 0, text: "", letters: new Map(), busy: "" };
}
const sides = { drafted: newSide("drafted"), plain: newSide("plain") };
let underWay = null;  // the AbortController of what is under way
let chosen = 0;  // the pass that is shown, from 0 on
let picked = false;  // whether the visitor has chosen it
let total = 0;  // tokens of a whole answer; 0: not known yet
let isWarm = false;
let lossyRule = "";  // the server's rule, where it may change texts
about.then(({ rule, lossy }) => { lossyRule = lossy ? rule : ""; });

/* ---- What is asked ---- */

function raceBody(more) {
  const asked = { messages: [{ role: "user", content: byId("prompt").value }], ...numbers(), ...more };
  const prediction = byId("prediction").value;
  if (prediction) asked.prediction = { type: "content", content: prediction };
  return asked;
}

function numbers() {
  return Object.fromEntries(["temperature", "top_p", "max_tokens", "seed"].map((id) => [id, Number(byId(id).value)]));
}

/* ---- A race: warm up, write the drafted answer, write the plain one while the drafted one is shown again ---- */

async function run() {
  if (underWay || !byId("ask").reportValidity()) return;
  clear();
  await whileBusy(async (signal) => {
    await warmUp(signal);
    await write("drafted", signal);
    await race(signal);
    judge();
  });
}

async function whileBusy(work) {
  underWay = new AbortController();
  setBusy(true);
  try {
    await work(underWay.signal);
  } catch (error) {
    explain(error);
  } finally {
    underWay = null;
    setBusy(false);
  }
}

/* The first answer is slowed by what happens once per machine or process, so write one that is not measured. */
async function warmUp(signal) {
  if (isWarm) return;
  say("Warming up, which is not measured. The first time on a machine this can take a minute …");
  for (const wishes of ["trace", "trace, plain"]) {
    for await (const _ of passes(await ask(raceBody({ max_tokens: WARM_UP_TOKENS }), wishes, signal))) { /* not shown */ }
  }
  isWarm = true;
}

async function write(name, signal, begun = () => {}) {
  say(name === "plain" ? "The plain answer is written …" : "The answer with drafts is written …");
  const response = await ask(raceBody(), name === "plain" ? "trace, plain" : "trace", signal);
  for await (const event of passes(response)) {
    if (!sides[name].events.length) begun();
    show(sides[name], event);
  }
  total = Math.max(total, sides[name].tokens);
  showFigures(sides[name]);
}

async function race(signal) {
  const recorded = sides.drafted.events;
  let shown = null;
  const begin = () => { if (!still.matches) shown = play("drafted", recorded, signal); };
  try {
    await write("plain", signal, begin);
  } catch (error) {
    stop();
    throw error;
  } finally {
    await shown;
  }
}

/* Show a recorded answer at its own speed; after a stop, the rest of it at once. */
async function play(name, recorded, signal) {
  const side = reset(name), start = performance.now();
  for (const event of recorded) {
    while (!signal.aborted && performance.now() - start < event.seconds * 1000) {
      await new Promise((go) => setTimeout(go, TICK));
    }
    show(side, event);
  }
}

async function replay() {
  const recorded = NAMES.map((name) => sides[name].events);
  await whileBusy(async (signal) => {
    say("Replaying …");
    await Promise.all(NAMES.map((name, i) => play(name, recorded[i], signal)));
    judge();
  });
}

function stop() {
  if (underWay) underWay.abort();
}

/* ---- What the visitor is told ---- */

function say(message) { byId("verdict").textContent = message; }

function fail(message) {
  byId("wrong").textContent = message;
  byId("wrong").hidden = !message;
}

function explain(error) {
  say(error.name === "AbortError" ? "Stopped." : "");
  if (error.name === "AbortError") return;
  const isLong = error.code === "context_length_exceeded";
  fail(isLong ? "This prompt is longer than the model can read: shorten the prompt." : sentence(error));
}

function setBusy(on) {
  const focused = document.activeElement;
  byId("run").disabled = on;
  byId("stop").disabled = !on;
  byId("replay").disabled = on || NAMES.some((name) => !sides[name].events.length);
  if (on && [byId("run"), byId("replay")].includes(focused)) byId("stop").focus({ preventScroll: true });  // no focus on what cannot be pressed
  if (!on && focused === byId("stop")) byId("run").focus({ preventScroll: true });
  if (on && byId("results").offsetTop > byId("ask").offsetTop + 100) byId("results").scrollIntoView();  // one column
}

function rate(side) { return side.seconds > 0 ? (side.tokens - 1) / side.seconds : 0; }

function judge() {
  const { drafted, plain } = sides;
  if (!rate(drafted) || !rate(plain)) return say("The answer is one token: there is nothing to compare.");
  const isSame = drafted.text === plain.text;
  const why = lossyRule ? `the rule ${lossyRule} may change them` : "rounding can decide between close tokens";
  const compared = isSame ? "The texts are the same" : `The texts differ: ${why}`, busy = disturbed();
  const times = `With drafts: ${(rate(drafted) / rate(plain)).toFixed(2)} times as fast.`;
  say(`${compared}. ${busy ? `Their speeds cannot be compared: ${busy}.` : times}`);
  const counts = ({ tokens, steps, seconds }) => `${tokens} tokens in ${steps.length} passes and ${seconds.toFixed(2)} s`;
  byId("counts").textContent = `${counts(drafted)}, plain: ${counts(plain)}; after the first token.`;
  if (!picked) choose(best());
}

/* Return what has slowed down an answer; empty where nothing is known to have. */
function disturbed() {
  return sides.drafted.busy || sides.plain.busy || (writing.size ? "a chat was written meanwhile" : "");
}

function showRatio() {
  const ratio = rate(sides.drafted) / rate(sides.plain);
  byId("ratio").hidden = !Number.isFinite(ratio) || ratio === 0 || Boolean(disturbed());
  byId("ratio").textContent = ratio.toFixed(2) + "×";
}

function showFigures(side) {
  const whole = total || Number(byId("max_tokens").value);
  const perPass = side.steps.length ? (side.tokens - 1) / side.steps.length : 0;
  byId(side.name + "-rate").textContent = rate(side) ? rate(side).toFixed(1) : "–";
  byId(side.name + "-bar").value = Math.min(1, side.tokens / whole);
  const written = `${side.tokens} in ${side.seconds.toFixed(2)} s`;
  byId(side.name + "-figures").textContent = `${perPass.toFixed(2)} tokens per pass · ${written}`;
}

/* ---- The two texts ---- */

function reset(name) {
  const side = sides[name] = newSide(name);
  byId(name).replaceChildren();
  return side;
}

function clear() {
  for (const name of NAMES) {
    reset(name);
    byId(name + "-figures").textContent = "";
    byId(name + "-rate").textContent = "–";
    byId(name + "-bar").value = 0;
  }
  for (const id of ["intro", "ratio", "sources", "passes"]) byId(id).hidden = true;
  byId("counts").textContent = "";
  picked = false;
  total = 0;
  fail("");
}

function show(side, event) {
  event.before = side.text.slice(-24);
  side.events.push(event);
  side.tokens = event.tokens;
  side.seconds = event.seconds;
  side.busy = event.busy || "";
  const holder = writePieces(side, event);
  append(byId(side.name), holder);
  if (event.step) noteStep(side, event, holder);
  showFigures(side);
  showRatio();
}

/* Add what a pass brought; a text that was scrolled to its end stays there. */
function append(box, holder) {
  const follow = box.scrollTop + box.clientHeight >= box.scrollHeight - 30;
  box.append(holder);
  if (follow) box.scrollTop = box.scrollHeight;
}

function writePieces(side, event) {
  const holder = make("span", "");
  for (const { text, source } of event.pieces) {
    const drafted = side.name === "drafted" && source !== MODEL;
    holder.append(make("span", drafted ? "mark " + colour(source) : "", text));
    side.text += text;
    side.letters.set(source, (side.letters.get(source) || 0) + [...text].length);
  }
  return holder;
}

function noteStep(side, event, holder) {
  const index = side.steps.push({ event, holder }) - 1;
  if (side.name !== "drafted") return;
  holder.className = "step";
  holder.addEventListener("mouseenter", () => showTree(event));
  holder.addEventListener("mouseleave", () => showTree(side.steps[Math.min(chosen, side.steps.length - 1)].event));
  holder.addEventListener("click", () => pick(index));
  byId("passes").hidden = false;
  byId("pass").max = side.steps.length;
  if (picked ? index === chosen : !still.matches) choose(index);
  fillLegend(byId("legend"), side.letters, false);
  byId("sources").hidden = false;
}

/* ---- The form ---- */

function takeExample({ prompt, prediction }) {
  byId("prompt").value = prompt;
  byId("prediction").value = prediction;
  byId("expected").open = Boolean(prediction) && !narrow.matches;
}

function pressed(event) {
  if (byId("race").hidden || byId("settings").open) return;
  if (event.key === "Escape") stop();
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  run();
}

/* Return where a slider's value is written; it is not an output, which would be read aloud with each pass. */
function valueOf(slider) { return document.querySelector(`[data-of=${slider.id}]`); }

function followSlider(slider) {
  const tell = () => { valueOf(slider).textContent = slider.value; };
  slider.addEventListener("input", tell);
  tell();
}

byId("ask").addEventListener("submit", (event) => { event.preventDefault(); run(); });
byId("stop").addEventListener("click", stop);
byId("replay").addEventListener("click", replay);
byId("pass").addEventListener("input", () => pick(Number(byId("pass").value) - 1));
document.addEventListener("keydown", pressed);
for (const button of document.querySelectorAll("[data-example]")) {
  button.addEventListener("click", () => takeExample(EXAMPLES[button.dataset.example]));
}
document.querySelectorAll(".knobs [type=range]").forEach(followSlider);
takeExample(EXAMPLES.edit);
