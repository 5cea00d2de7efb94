/* Who proposed a piece of text: a colour, a kind of line and a plain sentence for each source. */

const KNOWN = ["ngram", "head", "prediction", "memory", "corpus", "grammar", "quantized-self", "recycling"];
const COPIED = "copied from this chat, where the same words stood before";
const OWN_GUESS = "guessed by the model itself, a pass or more ahead";
const EXPLAINED = {
  [MODEL]: "its own words, which nobody drafted: one token in each pass",
  ngram: COPIED, suffix: COPIED, lookup: COPIED,
  head: "drafted by a small network that was trained for this model",
  prediction: "copied from the text that you expect",
  memory: "copied from earlier answers of this server",
  corpus: "copied from texts that this server was given",
  grammar: "the only text that the required form allows",
  "quantized-self": "drafted by a rougher copy of the model",
  "draft-model": "drafted by a smaller model",
  recycling: "drafted from what the model nearly said before",
  lookahead: OWN_GUESS, jacobi: OWN_GUESS,
};
const colours = new Map();

function colour(source) {
  if (!colours.has(source)) {
    const known = KNOWN.indexOf(source), free = KNOWN.findIndex((_, i) => ![...colours.values()].includes("c" + i));
    colours.set(source, "c" + (known >= 0 ? known : Math.max(0, free)));
  }
  return colours.get(source);
}

/* Fill a legend in: `letters` has the number of characters by source; `isLong` adds the sentences. */
function fillLegend(list, letters, isLong) {
  const all = [...letters.values()].reduce((a, b) => a + b, 0) || 1;
  const items = [...letters].map(([source, count]) => {
    const item = make("li", "");
    const sample = make("i", source === MODEL ? "" : "mark " + colour(source), "abc");
    sample.setAttribute("aria-hidden", "true");
    const name = source === MODEL ? "the model itself" : source;
    item.append(sample, make("span", "name", name), " ", make("b", "", Math.round(100 * count / all) + " %"));
    if (isLong) item.append(make("span", "why", EXPLAINED[source] || "drafted by " + source));
    return item;
  });
  list.replaceChildren(...items);
}
