/* One pass of a drafted answer: which tree of guesses the model checked at once, and what it accepted. */

function pick(index) {
  picked = true;
  choose(index);
}

/* Return the index of the pass most worth showing: many guesses accepted, and some refused. */
function best() {
  const shows = sides.drafted.steps.map(({ event: { step } }) => step.accepted * (step.drafted > step.accepted ? 2 : 1));
  return shows.indexOf(Math.max(...shows));
}

function choose(index) {
  const found = sides.drafted.steps[index];
  if (!found) return;
  for (const { holder } of sides.drafted.steps) holder.classList.toggle("chosen", holder === found.holder);
  chosen = index;
  byId("pass").value = index + 1;
  valueOf(byId("pass")).textContent = `${index + 1} of ${sides.drafted.steps.length}`;
  const spoken = `Pass ${index + 1} of ${sides.drafted.steps.length}, written: ${found.holder.textContent}`;
  byId("pass").setAttribute("aria-valuetext", spoken);
  reveal(byId("drafted"), found.holder);
  showTree(found.event);
}

/* Scroll a text, and not the page, to a pass. */
function reveal(box, holder) {
  const place = holder.getBoundingClientRect(), frame = box.getBoundingClientRect();
  if (place.top < frame.top) box.scrollTop -= frame.top - place.top + 20;
  if (place.bottom > frame.bottom) box.scrollTop += place.bottom - frame.bottom + 20;
}

function showTree({ step, pieces, before }) {
  const { index, drafted, accepted, ms } = step;
  const tokens = drafted === 1 ? "1 drafted token" : `${drafted} drafted tokens`;
  const done = drafted ? `${tokens} checked at once, ${accepted} accepted` : "nothing was drafted";
  byId("tree-about").textContent = `Pass ${index + 1}: ${done}, ${ms.toFixed(0)} ms.`;
  const last = pieces.at(-1), own = last && last.source === MODEL ? last.text : null;
  const root = make("li", ""), tree = step.tree || { texts: [], parents: [], sources: [], path: [] };
  root.append(make("span", "chip so-far", "… " + visible(before)), branches(tree, -1, own));
  byId("tree").replaceChildren(root);
}

/* Return the list of the guesses after a node; the accepted one comes first, so that the text is one line. */
function branches(tree, parent, own) {
  const list = make("ul", ""), kept = new Set(tree.path);
  const children = tree.parents.flatMap((found, node) => (found === parent ? [node] : []));
  children.sort((a, b) => kept.has(b) - kept.has(a));
  for (const node of children) list.append(leaf(tree, node, kept.has(node), own));
  if (own !== null && parent === (tree.path.at(-1) ?? -1)) {
    const item = make("li", "kept");
    item.append(chip(own, MODEL, true));
    list.prepend(item);
  }
  return list.children.length ? list : "";
}

function leaf(tree, node, accepted, own) {
  const item = make("li", accepted ? "kept" : "");
  item.append(chip(tree.texts[node], tree.sources[node], accepted), branches(tree, node, own));
  return item;
}

function chip(text, source, accepted) {
  const look = source === MODEL ? "" : " mark " + colour(source);
  const found = make("span", "chip " + (accepted ? "kept" : "refused") + look, visible(text));
  found.title = source === MODEL ? "the model itself" : `${source}, ${accepted ? "accepted" : "refused"}`;
  found.append(make("span", "seen-not", ` (${found.title}) `));
  return found;
}

/* Return a text with visible line ends and tabs, and visible blanks where it has nothing else. */
function visible(text) {
  const marked = text.replaceAll("\n", "↵").replaceAll("\t", "⇥");
  return marked.trim() ? marked : marked.replaceAll(" ", "␣");
}
