// Markdown: a text as DOM nodes, whole or while it grows.
//
// A block depends on no block before it, and its end on no more than one line behind it. So a text
// that grows is read again from its last block on.

import { element, inline } from "./inline.js";

// Lists and quotes within each other; what is deeper is text.
const MOST_NESTED = 12;

const FENCE = /^[ \t]*(`{3,}|~{3,})(.*)$/s;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^[ \t]*([-*+]|\d{1,9}[.)])(?=[ \t]|$)/;
const MATH = { "\\[": "\\]", $$: "$$" };
const CODE = /(?<!`)(`+)(?!`).{0,500}?(?<!`)\1(?!`)/g;

// The nodes of a whole text.
export function render(text) {
  return [...blocks(text.split("\n"))].map((block) => block.node);
}

// The blocks of lines: their nodes, and the lines that they begin in.
function* blocks(lines, nested = 0) {
  for (let at = 0; at < lines.length; ) {
    if (isBlank(lines[at])) at++;
    else {
      const [node, end] = block(lines, at, nested);
      yield { node, at };
      at = end;
    }
  }
}

// The block that begins in a line, and the line behind it.
function block(lines, at, nested) {
  const line = lines[at];
  if (isFence(line)) return fence(lines, at);
  if (HEADING.test(line)) return [heading(line), at + 1];
  if (isRule(line)) return [element("hr"), at + 1];
  if (nested < MOST_NESTED) {
    if (QUOTE.test(line)) return quote(lines, at, nested);
    if (ITEM.test(line)) return list(lines, at, nested);
  }
  if (MATH[line.trim().slice(0, 2)]) return formula(lines, at);
  return isTable(lines, at) ? table(lines, at) : paragraph(lines, at);
}

const isBlank = (line) => !line.trim();

function isFence(line) {
  const found = FENCE.exec(line);
  return Boolean(found) && !(found[1][0] === "`" && found[2].includes("`"));
}

function isRule(line) {
  if (!/^ {0,3}[-*_]/.test(line)) return false;
  const marks = line.replace(/\s/g, "");
  return marks.length > 2 && [...marks].every((mark) => mark === marks[0]);
}

// Whether a line ends the paragraph before it.
function interrupts(line) {
  if (isFence(line) || HEADING.test(line) || isRule(line) || QUOTE.test(line)) return true;
  const found = ITEM.exec(line);
  // A number at the beginning of a line is rarely that of an item, unless it is the first one.
  return Boolean(found) && line.length > found[0].length && /^([-*+]|1[.)])$/.test(found[1]);
}

// The columns before the text of a line.
function indentOf(line) {
  let columns = 0;
  for (const char of line) {
    if (char === "\t") columns += 4 - columns % 4;
    else if (char === " ") columns++;
    else break;
  }
  return columns;
}

// A line without so many columns of blanks, if it has them.
function outdented(line, most) {
  let [columns, at] = [0, 0];
  for (; columns < most; at++) {
    if (line[at] === " ") columns++;
    else if (line[at] === "\t") columns += 4 - columns % 4;
    else break;
  }
  return " ".repeat(Math.max(0, columns - most)) + line.slice(at);
}

// What closes the fence that opens in a line.
function closesFence(line) {
  const [, ticks] = FENCE.exec(line);
  return (other) => {
    const marks = other.trim();
    return marks.length >= ticks.length && [...marks].every((mark) => mark === ticks[0]);
  };
}

function fence(lines, at) {
  const closes = closesFence(lines[at]);
  const indent = indentOf(lines[at]);
  let end = at + 1;
  while (end < lines.length && !closes(lines[end])) end++;
  const code = lines.slice(at + 1, end).map((line) => outdented(line, indent)).join("\n");
  const language = FENCE.exec(lines[at])[2].trim();
  const made = element("figure", "code");
  const head = element("figcaption");
  const copy = element("button", "copy", "Copy");
  copy.type = "button";
  head.append(element("span", "", language), copy);
  const box = element("pre");
  box.tabIndex = 0;  // to scroll in it by keys
  box.append(element("code", "", code.replace(/\n$/, "")));
  made.append(head, box);
  return [made, end + 1];
}

function heading(line) {
  const [marks, { length }] = HEADING.exec(line);
  let text = line.slice(marks.length).trim();
  const closing = text.length - trailing(text, "#");
  if (!closing || /\s/.test(text[closing - 1])) text = text.slice(0, closing).trimEnd();
  // The page has a heading of its own above these.
  const made = element(`h${Math.min(6, length + 1)}`);
  made.append(inline(text));
  return made;
}

function trailing(text, mark) {
  let count = 0;
  while (text[text.length - 1 - count] === mark) count++;
  return count;
}

function quote(lines, at, nested) {
  let end = at;
  const inner = [];
  for (; end < lines.length && QUOTE.test(lines[end]); end++) {
    inner.push(lines[end].replace(QUOTE, ""));
  }
  const made = element("blockquote");
  append(made, inner, nested + 1);
  return [made, end];
}

function append(made, lines, nested) {
  for (const { node } of blocks(lines, nested)) made.append(node);
}

const kindOfItem = (line) => ITEM.exec(line)?.[1].slice(-1);

function list(lines, at, nested) {
  const kind = kindOfItem(lines[at]);
  const ordered = ".)".includes(kind);
  const made = element(ordered ? "ol" : "ul");
  if (ordered) {
    const first = parseInt(lines[at].trim(), 10);
    if (first !== 1) made.start = first;
  }
  let [end, next] = [at, at];
  while (next < lines.length && kindOfItem(lines[next]) === kind && !isRule(lines[next])) {
    const [inner, behind] = itemLines(lines, next);
    const item = element("li");
    inner[0] = inner[0].replace(/^\[([ xX])\](?=[ \t])/, (box) => box[1] === " " ? "☐" : "☑");
    append(item, inner, nested + 1);
    made.append(item);
    for (end = next = behind; next < lines.length && isBlank(lines[next]); ) next++;
  }
  return [made, end];
}

// The lines of an item without its mark and indent, and the line behind it.
function itemLines(lines, at) {
  const marked = ITEM.exec(lines[at])[0];
  const outer = indentOf(lines[at]);
  const rest = lines[at].slice(marked.length);
  const content = outer + marked.trimStart().length + 1;
  const inner = [outdented(rest, indentOf(rest) > 4 ? 1 : 4)];
  let closes = isFence(inner[0]) ? closesFence(inner[0]) : null;
  let indent = 0;
  let end = at + 1;
  let next = end;  // behind the last line that is not blank
  for (; end < lines.length; end++) {
    const line = lines[end];
    if (isBlank(line)) {
      inner.push("");
      continue;
    }
    const isDeeper = indentOf(line) >= outer + 2;
    const goesOn = next === end && !interrupts(line) && !ITEM.test(line) && !endsText(inner.at(-1));
    if (!closes && !isDeeper && !goesOn) break;
    if (!indent && isDeeper) indent = Math.min(content, indentOf(line));
    const text = outdented(line, indent || content);
    if (closes) closes = closes(text) ? null : closes;
    else if (isFence(text)) closes = closesFence(text);
    inner.push(text);
    next = end + 1;
  }
  inner.length = next - at;
  return [inner, next];
}

// Whether a line of an item is none that a further line of text goes on from.
const endsText = (line) => isBlank(line) || isFence(line) || HEADING.test(line) || isRule(line);

function formula(lines, at) {
  const first = lines[at].trim();
  const closing = MATH[first.slice(0, 2)];
  let end = at;
  const isLast = (line, from) => isBlank(line) || line.includes(closing, from);
  if (!isLast(first, 2)) {
    do end++; while (end < lines.length && !isLast(lines[end]));
  }
  const isClosed = end < lines.length && !isBlank(lines[end]);
  if (isClosed) end++;
  const text = lines.slice(at, end).join("\n");
  // More text behind it makes it a paragraph, as any other.
  const whole = isClosed ? text.trimEnd().endsWith(closing) : end === lines.length;
  if (!whole) return [filled(element("p"), text), end];
  return [element("p", "math", text), end];
}

// The cells of a row: between bars that no backslash stands before.
function cells(line) {
  const found = line.trim().split(/(?<!\\)\|/);
  if (!found[0].trim()) found.shift();
  if (found.length && !found.at(-1).trim()) found.pop();
  return found.map((cell) => cell.trim().replaceAll("\\|", "|"));
}

// Models write bars within code as they are; where these would make too many cells, they are none.
function cellsOfRow(line, most) {
  const found = cells(line);
  if (found.length <= most) return found;
  return cells(line.replace(CODE, (code) => code.replace(/(?<!\\)\|/g, "\\|")));
}

function isTable(lines, at) {
  if (!lines[at].includes("|") || !lines[at + 1]?.includes("-")) return false;
  const under = cells(lines[at + 1]);
  if (!under.every((cell) => /^:?-+:?$/.test(cell))) return false;
  return under.length === cells(lines[at]).length;
}

function table(lines, at) {
  const sides = cells(lines[at + 1]).map(
    (cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : ""));
  const row = (line, kind) => {
    const found = cellsOfRow(line, sides.length);
    const last = sides.length - 1;
    if (found.length > sides.length) found[last] = found.slice(last).join(" | ");
    const made = element("tr");
    made.append(...sides.map((side, place) => {
      return filled(element(kind, side), found[place] || "");
    }));
    return made;
  };
  const [head, body] = [element("thead"), element("tbody")];
  head.append(row(lines[at], "th"));
  let end = at + 2;
  for (; end < lines.length && !isBlank(lines[end]) && !interrupts(lines[end]); end++) {
    body.append(row(lines[end], "td"));
  }
  const [made, around] = [element("table"), element("div", "table")];
  made.append(head, body);
  around.tabIndex = 0;
  around.append(made);
  return [around, end];
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !interrupts(lines[end])) {
    if (isTable(lines, end)) break;
    end++;
  }
  return [filled(element("p"), lines.slice(at, end).join("\n").trimEnd()), end];
}

function filled(made, text) {
  made.append(inline(text));
  return made;
}

// A text that grows. isTold: whether readers of the screen are told of each block that has ended.
export class GrowingMarkdown {
  constructor(isTold = false) {
    // What no further text changes, and what it may.
    this.settled = element("div", "settled");
    if (isTold) this.settled.setAttribute("aria-live", "polite");
    this.open = element("div", "open");
    this.tail = "";
  }

  get nodes() {
    return [this.settled, this.open];
  }

  // Show a text that begins with what was shown before. added: what is new of it.
  show(added) {
    this.tail += added;
    const lines = this.tail.split("\n");
    const found = [...blocks(lines)];
    patch(this.open, found.map((block) => block.node));
    // The line behind the first one of a block says whether that is a table; both must be whole.
    const last = found.findLastIndex((block) => block.at + 2 < lines.length);
    if (last < 1) return;
    for (let count = 0; count < last; count++) this.settled.append(this.open.firstChild);
    this.tail = lines.slice(found[last].at).join("\n");
  }

  // No text follows.
  end() {
    this.settled.append(...this.open.childNodes);
    this.tail = "";
  }
}

// Make the children of a box those nodes, and keep those that are there already.
function patch(box, nodes) {
  nodes.forEach((made, at) => {
    const old = box.childNodes[at];
    if (!old) box.append(made);
    else if (!alike(old, made)) old.replaceWith(made);
    else if (old.nodeType === Node.ELEMENT_NODE) patch(old, [...made.childNodes]);
    else if (made.data.startsWith(old.data)) old.appendData(made.data.slice(old.data.length));
    else old.data = made.data;
  });
  while (box.childNodes.length > nodes.length) box.lastChild.remove();
}

function alike(old, made) {
  if (old.nodeName !== made.nodeName) return false;
  return old.nodeType === Node.TEXT_NODE
    || old.cloneNode(false).isEqualNode(made.cloneNode(false));
}
