/* Markdown as nodes: each letter of the text gets into the page as text, so nothing in it can run.

   A line is a range [from, to) of the text, so that the place of each letter stays known, and with it who proposed
   it. Headings, lists, quotes, tables, code, bold and italic; everything else stays as it was written. */

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const ITEM = /^( {0,5})([-*+]|\d{1,9}[.)])( +|$)/;
const HEADING = /^ {0,3}(#{1,6})(?: +|$)/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const QUOTE = /^ {0,3}> ?/;
const DIVIDER = /^ *\|?(?: *:?-+:? *\|)+(?: *:?-+:? *)?$/;
const INLINE = /(`+)(?!`)(.*?[^`])\1(?!`)|\*\*(?=\S)(.*?\S)\*\*(?!\*)|\*(?=[^\s*])([^*\n]*[^\s*])\*(?!\*)/g;
const DEEPEST = 6;  // lists in lists in quotes; what is nested deeper is plain
const LONGEST = 4000;  // letters in which bold and code are looked for at once: the search is not linear

/* Show a text in a box, coloured by `sourceOf(place)` unless that is null. Blocks that did not change stay. */
function showMarkdown(box, text, sourceOf) {
  const known = box.known || [], blocks = blocksOf(text, linesOf(text), 0);
  box.known = blocks.map(({ lines }) => `${Boolean(sourceOf)} ${lines[0].from} ` + text.slice(lines[0].from, lines.at(-1).to));
  let same = 0;
  while (same < known.length && known[same] === box.known[same]) same++;
  while (box.children.length > same) box.lastChild.remove();
  for (const block of blocks.slice(same)) box.append(blockNode({ text, sourceOf }, block, 0));
}

/* Show a question as it was typed, and its fenced code as code. */
function showQuestion(box, text) {
  if (box.shown === text) return;
  box.shown = text;
  box.replaceChildren();
  const lines = linesOf(text);
  let from = 0;
  for (let at = 0; at < lines.length; at++) {
    const fence = FENCE.exec(read(text, lines[at]));
    if (!fence) continue;
    const block = fenced(text, lines, at, fence);
    block.lines = lines.slice(at, at + block.count);
    box.append(text.slice(from, lines[at].from).trimEnd(), codeNode({ text, sourceOf: null }, block));
    at += block.count - 1;
    from = lines[at].to + 1;
  }
  box.append(text.slice(from));
}

function linesOf(text) {
  const found = [];
  for (let from = 0; from <= text.length;) {
    const end = text.indexOf("\n", from), to = end < 0 ? text.length : end;
    found.push({ from, to });
    from = to + 1;
  }
  return found;
}

const read = (text, { from, to }) => text.slice(from, to);
const isBlank = (text, line) => !read(text, line).trim();
const cut = ({ from, to }, letters) => ({ from: Math.min(to, from + letters), to });

/* ---- Blocks ---- */

function blocksOf(text, lines, depth) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (isBlank(text, lines[at])) { at++; continue; }
    const block = blockAt(text, lines, at, depth);
    block.lines = lines.slice(at, at + block.count);
    blocks.push(block);
    at += block.count;
  }
  return blocks;
}

/* Return the kind of the block that begins with a line, and how many lines it has. */
function blockAt(text, lines, at, depth) {
  const line = read(text, lines[at]), nests = depth < DEEPEST;
  const fence = FENCE.exec(line);
  if (fence) return fenced(text, lines, at, fence);
  if (HEADING.test(line)) return { kind: "heading", count: 1 };
  if (RULE.test(line)) return { kind: "rule", count: 1 };
  if (nests && QUOTE.test(line)) return { kind: "quote", count: countWhile(lines, at, (next) => QUOTE.test(read(text, next))) };
  if (nests && ITEM.test(line)) return { kind: "list", count: listEnd(text, lines, at) - at };
  if (line.includes("|") && lines[at + 1] && DIVIDER.test(read(text, lines[at + 1]))) {
    return { kind: "table", count: countWhile(lines, at, (next) => read(text, next).includes("|")) };
  }
  const begins = (next) => [FENCE, HEADING, RULE, QUOTE, ITEM].some((sign) => sign.test(read(text, next)));
  return { kind: "paragraph", count: countWhile(lines, at, (next) => !isBlank(text, next) && !(nests && begins(next))) };
}

/* Count the lines from `at` on, that one included, up to the first later one for which `goesOn` is false. */
function countWhile(lines, at, goesOn) {
  let end = at + 1;
  while (end < lines.length && goesOn(lines[end])) end++;
  return end - at;
}

function fenced(text, lines, at, [, mark, language]) {
  const closes = (line) => read(text, line).trim().startsWith(mark) && !read(text, line).trim().replaceAll(mark[0], "");
  const inside = countWhile(lines, at, (line) => !closes(line));
  return { kind: "code", language, inside, count: Math.min(inside + 1, lines.length - at) };
}

/* A list ends before a line that is neither an item, nor indented, nor the rest of a paragraph. */
function listEnd(text, lines, at) {
  let end = at + 1;
  for (let here = end; here < lines.length; here++) {
    const line = read(text, lines[here]), isAfterBlank = isBlank(text, lines[here - 1]);
    if (!line.trim()) continue;
    const goesOn = (ITEM.test(line) && !RULE.test(line)) || /^ {2,}/.test(line);
    if (!goesOn && (isAfterBlank || FENCE.test(line) || HEADING.test(line) || RULE.test(line))) break;
    end = here + 1;
  }
  return end;
}

function blockNode(whole, block, depth) {
  const { text } = whole, { lines, kind } = block;
  if (kind === "code") return codeNode(whole, block);
  if (kind === "rule") return make("hr", "");
  if (kind === "list") return listNode(whole, lines, depth);
  if (kind === "table") return tableNode(whole, lines);
  if (kind === "quote") {
    return nested(whole, "blockquote", lines.map((line) => cut(line, QUOTE.exec(read(text, line))[0].length)), depth);
  }
  if (kind === "paragraph") return inlineNode(whole, "p", lines);
  const [mark, { length }] = HEADING.exec(read(text, lines[0]));
  const heading = inlineNode(whole, "p", [cut(lines[0], mark.length)]);
  heading.className = "heading";
  heading.setAttribute("role", "heading");
  heading.setAttribute("aria-level", Math.min(6, length + 3));  // the page's own are above
  return heading;
}

function nested(whole, tag, lines, depth) {
  const node = make(tag, "");
  const blocks = blocksOf(whole.text, lines, depth + 1);
  const isTight = tag === "li" && !lines.slice(0, -1).some((line) => isBlank(whole.text, line));
  for (const block of blocks) {
    const child = blockNode(whole, block, depth + 1);
    if (isTight && block.kind === "paragraph") node.append(...child.childNodes);
    else node.append(child);
  }
  return node;
}

function listNode(whole, lines, depth) {
  const { text } = whole, [, indent, mark] = ITEM.exec(read(text, lines[0]));
  const list = make(/\d/.test(mark) ? "ol" : "ul", "");
  if (list.tagName === "OL") list.start = parseInt(mark, 10);
  const starts = (line) => {
    const found = ITEM.exec(read(text, line));
    return found && found[1].length < indent.length + 2 && !RULE.test(read(text, line)) ? found : null;
  };
  for (let at = 0; at < lines.length;) {
    const [head] = starts(lines[at]) || [""], count = countWhile(lines, at, (line) => !starts(line));
    const inner = lines.slice(at + 1, at + count).map((line) => {
      const blanks = /^ */.exec(read(text, line))[0].length;
      return cut(line, Math.min(blanks, head.length));
    });
    list.append(nested(whole, "li", [cut(lines[at], head.length), ...inner], depth));
    at += count;
  }
  return list;
}

function tableNode(whole, lines) {
  const box = make("div", "table"), table = make("table", "");
  box.tabIndex = 0;
  lines.forEach((line, index) => {
    if (index === 1) return;
    const row = table.insertRow();
    for (const cell of cells(whole.text, line)) row.append(inlineNode(whole, index ? "td" : "th", [cell]));
  });
  box.append(table);
  return box;
}

function cells(text, { from, to }) {
  const found = [];
  for (let at = from; at <= to;) {
    const end = text.indexOf("|", at), stop = end < 0 || end > to ? to : end;
    if (stop > at || (found.length && stop < to)) found.push({ from: at, to: stop });
    at = stop + 1;
  }
  return found;
}

function codeNode(whole, { lines, inside, language }) {
  const box = make("div", "code"), head = make("div", "code-head", ""), pre = make("pre", ""), code = make("code", "");
  const content = lines.slice(1, inside);
  if (content.length && isBlank(whole.text, content.at(-1))) content.pop();  // a line whose text is still to come
  const copy = make("button", "quiet", "Copy code");
  copy.type = "button";
  copy.addEventListener("click", () => copyText(content.map((line) => read(whole.text, line)).join("\n"), copy));
  head.append(make("span", "", language || "code"), copy);
  pre.tabIndex = 0;
  content.forEach((line, i) => { if (i) code.append("\n"); addText(whole, code, line.from, line.to); });
  pre.append(code);
  box.append(head, pre);
  return box;
}

/* ---- Within a line ---- */

function inlineNode(whole, tag, lines) {
  const node = make(tag, ""), from = lines[0].from, to = lines.at(-1).to;
  const isWhole = lines.every((line, i) => i === 0 || line.from === lines[i - 1].to + 1);
  if (isWhole) addInline(whole, node, from, to, 0);
  else lines.forEach((line, i) => { if (i) node.append(" "); addInline(whole, node, line.from, line.to, 0); });
  return node;
}

function addInline(whole, node, from, to, depth) {
  while (to - from > LONGEST) {
    const blank = whole.text.lastIndexOf(" ", from + LONGEST), end = blank > from ? blank : from + LONGEST;
    addInline(whole, node, from, end, depth);
    from = end;
  }
  const said = whole.text.slice(from, to);
  let at = 0;
  for (const found of depth > 2 ? [] : said.matchAll(INLINE)) {
    const [all, ticks, code, bold, italic] = found, inner = code ?? bold ?? italic;
    addText(whole, node, from + at, from + found.index);
    const start = from + found.index + (all.length - inner.length) / 2;
    const child = make(ticks ? "code" : bold !== undefined ? "strong" : "em", "");
    if (ticks) addText(whole, child, start, start + inner.length);
    else addInline(whole, child, start, start + inner.length, depth + 1);
    node.append(child);
    at = found.index + all.length;
  }
  addText(whole, node, from + at, to);
}

/* Add letters as text, in a marked span per run of one source where sources are shown. */
function addText({ text, sourceOf }, node, from, to) {
  for (let at = from; at < to;) {
    const source = sourceOf ? sourceOf(at) : MODEL;
    let end = sourceOf ? at + 1 : to;
    while (end < to && sourceOf(end) === source) end++;
    const said = text.slice(at, end);
    node.append(source === MODEL ? said : make("span", "mark " + colour(source), said));
    at = end;
  }
}
