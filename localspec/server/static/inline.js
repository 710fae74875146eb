// Inline: the Markdown within a line of text (code, emphasis, links) as DOM nodes.
//
// Texts only become text nodes. Every search is bounded or remembered, so that no text takes more
// than about linear time.

const MOST_NESTED = 16;
const LONGEST_URL = 2048;
// Longer runs are decoration.
const LONGEST_RUN = 8;
// Of the marks that may open an emphasis, so many are tried.
const MOST_TRIED = 16;

const PLAIN = /[^\\`*_~[\]!<&$h]+/y;
const ESCAPED = /\\([!-/:-@[-`{-~\n])/y;
const TICKS = /`+/y;
const MARKS = /\*+|_+|~+/y;
const BREAK = /<br ?\/?>/iy;
const IN_BRACKETS = new RegExp(`<(https?://[^\\s<>]{1,${LONGEST_URL}})>`, "iy");
// Text in scripts without blanks between words goes on right behind an address.
const WIDE = "\\p{sc=Han}\\p{sc=Hiragana}\\p{sc=Katakana}\\p{sc=Hangul}\\u3000-\\u303f\\uff00-\\uffef";
const BARE_URL = new RegExp(`https?://[^\\s<>"\`\\\\${WIDE}]{1,${LONGEST_URL}}`, "iuy");
const ENTITY = /&(amp|lt|gt|quot|nbsp|#39);/y;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0", "#39": "'" };
const MATH = { "\\(": "\\)", "\\[": "\\]", $$: "$$" };
// No prices, and no variables of a shell.
const DOLLARS = /\$(?![\s${])[^$\n]{0,500}?[^\s\\$]\$(?![\w{])/y;
const SPACE = /\s/u;
const PUNCTUATION = /[\p{P}\p{S}]/u;
const WIDE_LETTER = new RegExp(`[${WIDE}]`, "u");

export function element(kind, className, text = "") {
  const made = document.createElement(kind);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

// A link out of the page; null for an address of any other scheme.
function link(url, label) {
  const made = element("a", "", label);
  made.href = url;
  // An address that is none stays as it is, and has no host.
  if (!/^https?:\/\//i.test(url) || !made.host) return null;
  made.target = "_blank";
  made.rel = "noopener noreferrer";
  return made;
}

export function inline(text) {
  const reader = new Reader(text);
  reader.read();
  return reader.root;
}

class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.root = document.createDocumentFragment();
    this.plainText = "";
    // Marks of emphasis in their order, and brackets that are open.
    this.marks = [];
    this.brackets = [];
    // What was looked for in vain, and is nowhere behind.
    this.missing = new Set();
  }

  read() {
    while (this.at < this.text.length) {
      const step = this[READS[this.text[this.at]]];
      if (!(step && step.call(this))) this.plain();
    }
    this.flush();
    emphasise(this.marks);
    this.root.normalize();
  }

  flush() {
    if (this.plainText) this.root.append(this.plainText);
    this.plainText = "";
  }

  // What a sticky pattern finds here.
  match(pattern) {
    pattern.lastIndex = this.at;
    return pattern.exec(this.text);
  }

  find(what, from) {
    if (this.missing.has(what)) return -1;
    const found = this.text.indexOf(what, from);
    if (found < 0) this.missing.add(what);
    return found;
  }

  // node: or a text.
  add(node, end) {
    if (typeof node === "string") this.plainText += node;
    else {
      this.flush();
      this.root.append(node);
    }
    this.at = end;
    return true;
  }

  plain() {
    const found = this.match(PLAIN);
    const end = found ? PLAIN.lastIndex : this.at + 1;
    return this.add(this.text.slice(this.at, end), end);
  }

  escape() {
    if (this.math()) return true;
    const found = this.match(ESCAPED);
    return Boolean(found) && this.add(found[1], ESCAPED.lastIndex);
  }

  // A formula stays as it was written: none of its signs is Markdown.
  math() {
    const open = this.text.slice(this.at, this.at + 2);
    if (!MATH[open]) return false;
    const end = this.find(MATH[open], this.at + 2);
    if (end < 0) return false;
    return this.add(element("span", "math", this.text.slice(this.at, end + 2)), end + 2);
  }

  dollars() {
    if (this.math()) return true;
    const found = this.match(DOLLARS);
    return Boolean(found) && this.add(element("span", "math", found[0]), DOLLARS.lastIndex);
  }

  code() {
    const ticks = this.match(TICKS)[0];
    const begin = this.at + ticks.length;
    for (let end = begin; !this.missing.has(ticks); ) {
      end = this.text.indexOf(ticks, end);
      if (end < 0) {
        this.missing.add(ticks);
        break;
      }
      TICKS.lastIndex = end;
      const run = TICKS.exec(this.text)[0].length;
      if (run === ticks.length) {
        let code = this.text.slice(begin, end).replaceAll("\n", " ");
        if (code.startsWith(" ") && code.endsWith(" ") && code.trim()) code = code.slice(1, -1);
        return this.add(element("code", "", code), end + run);
      }
      end += run;
    }
    return this.add(ticks, begin);
  }

  mark() {
    const run = this.match(MARKS)[0];
    const [char, count, end] = [run[0], run.length, this.at + run.length];
    const node = document.createTextNode(run);
    if (char === "~" ? count === 2 : count <= LONGEST_RUN) {
      const [before, after] = [kindOf(this.text[this.at - 1]), kindOf(this.text[end])];
      const left = after !== "space" && (after !== "mark" || before !== "word");
      const right = before !== "space" && (before !== "mark" || after !== "word");
      // An underscore within a word is a part of it.
      const opens = left && (char !== "_" || !right || before === "mark");
      const closes = right && (char !== "_" || !left || after === "mark");
      this.marks.push({ char, count, length: count, opens, closes, node });
    }
    return this.add(node, end);
  }

  bracket() {
    const image = this.text[this.at] === "!";
    if (image && this.text[this.at + 1] !== "[") return false;
    const node = document.createTextNode(image ? "![" : "[");
    this.brackets.push({ node, image, marks: this.marks.length });
    return this.add(node, this.at + node.length);
  }

  // A link's text ends here, where an address follows.
  closing() {
    const open = this.brackets.pop();
    const target = open && this.text[this.at + 1] === "(" && this.target(this.at + 2);
    const made = target && link(target.url);
    if (!made) return false;
    if (target.title) made.title = target.title;
    this.flush();
    emphasise(this.marks.splice(open.marks));
    while (open.node.nextSibling) made.append(open.node.nextSibling);
    for (const inner of made.querySelectorAll("a")) inner.replaceWith(...inner.childNodes);
    if (open.image) made.className = "image";  // nothing is loaded from elsewhere
    if (!made.textContent) made.textContent = target.url;
    open.node.remove();
    return this.add(made, target.end);
  }

  // The address and the title between the parentheses of a link, and where these end.
  target(from) {
    const most = this.text.slice(from, from + LONGEST_URL + 2);
    const found = /^\s{0,9}(?:<([^<>\n]*)>|([^\s<]*))/.exec(most);
    let url = found[1] ?? found[2];
    let end = found[0].length;
    if (found[1] === undefined) {
      const length = closedBy(url);
      end -= url.length - length;
      url = url.slice(0, length);
    }
    const rest = /^(?:\s{1,9}(?:"([^"\n]*)"|'([^'\n]*)'))?\s{0,9}\)/.exec(most.slice(end));
    if (!rest) return null;
    return { url, title: rest[1] ?? rest[2], end: from + end + rest[0].length };
  }

  less() {
    if (this.match(BREAK)) return this.add(element("br"), BREAK.lastIndex);
    const found = this.match(IN_BRACKETS);
    const made = found && link(found[1], found[1]);
    return Boolean(made) && this.add(made, IN_BRACKETS.lastIndex);
  }

  entity() {
    const found = this.match(ENTITY);
    return Boolean(found) && this.add(ENTITIES[found[1]], ENTITY.lastIndex);
  }

  address() {
    const found = kindOf(this.text[this.at - 1]) !== "word" && this.match(BARE_URL);
    if (!found) return false;
    let url = found[0].slice(0, closedBy(found[0]));
    url = url.slice(0, url.length - /[.,;:!?'*_~\]|]*$/.exec(url.slice(-99))[0].length);
    const made = link(url, url);
    return Boolean(made) && this.add(made, this.at + url.length);
  }
}

const READS = {
  "\\": "escape", "`": "code", "*": "mark", _: "mark", "~": "mark", "[": "bracket",
  "!": "bracket", "]": "closing", "<": "less", "&": "entity", $: "dollars", h: "address",
};

function kindOf(char) {
  if (char === undefined || SPACE.test(char)) return "space";
  if (PUNCTUATION.test(char)) return "mark";
  return WIDE_LETTER.test(char) ? "wide" : "word";
}

// How much of an address stands before the parenthesis that closes what is around it.
function closedBy(url) {
  let open = 0;
  for (let at = 0; at < url.length; at++) {
    if (url[at] === "(") open++;
    if (url[at] === ")" && --open < 0) return at;
  }
  return url.length;
}

// Turn pairs of marks into elements, as CommonMark pairs them; the others stay text.
function emphasise(marks) {
  const stacks = { "*": [], _: [], "~": [] };
  marks.forEach((mark, place) => {
    mark.place = place;
    const own = stacks[mark.char];
    while (mark.closes && mark.count) {
      const at = opener(own, mark);
      if (at < 0) break;
      if (!wrap(own[at], mark)) {
        own.length = 0;
        break;
      }
      for (const stack of Object.values(stacks)) {
        while (stack.length && stack.at(-1).place > own[at]?.place) stack.pop();
      }
      if (!own[at].count) own.pop();
    }
    if (mark.opens && mark.count) own.push(mark);
  });
}

function opener(stack, mark) {
  for (let at = stack.length - 1; at >= Math.max(0, stack.length - MOST_TRIED); at--) {
    const open = stack[at];
    const both = open.closes || mark.opens;
    const third = (open.length + mark.length) % 3 || !(open.length % 3 || mark.length % 3);
    if (!both || third) return at;
  }
  return -1;
}

function wrap(open, close) {
  const used = Math.min(open.count, close.count) >= 2 ? 2 : 1;
  const kind = open.char === "~" ? "del" : used === 2 ? "strong" : "em";
  let nested = 0;
  for (let node = open.node.nextSibling; node !== close.node; node = node.nextSibling) {
    nested = Math.max(nested, node.nested || 0);
  }
  if (nested >= MOST_NESTED) return false;
  const made = element(kind);
  made.nested = nested + 1;
  while (open.node.nextSibling !== close.node) made.append(open.node.nextSibling);
  open.node.after(made);
  for (const mark of [open, close]) {
    mark.count -= used;
    mark.node.data = mark.node.data.slice(used);
  }
  return true;
}
