// Answer: a question and an answer as they are shown, read or with the origin of each token.

import { element } from "./inline.js";
import { picture } from "./images.js";
import { GrowingMarkdown } from "./markdown.js";

// Between two drawings pass so many times as long as one takes, so that drawing slows nothing down.
const REST = 4;

export const READ = "read";
export const ORIGINS = "origins";

function classOf(origin) {
  if (origin === "corrected") return "corrected";
  return origin === "plain" || origin === "bonus" || !origin ? "" : "drafted";
}

function action(name, className, title) {
  const made = element("button", `act ${className}`, name);
  made.type = "button";
  made.title = title;
  return made;
}

export function question({ text, images, lost }) {
  const made = element("article", "question");
  if (images.length) {
    const row = element("div");
    row.append(...images.map(picture));
    made.append(row);
  }
  if (lost) made.append(element("small", "facts", `${lost} image${lost > 1 ? "s" : ""}, not kept`));
  made.append(element("div", "asked", text));
  made.append(action("Edit", "edit", "Edit this message; what came after it is dropped"));
  return made;
}

// Which of the answers to a question is shown, and the way to the others.
function variants() {
  const made = element("span", "variants");
  made.setAttribute("role", "group");
  made.setAttribute("aria-label", "Answers to this message");
  const [former, next] = [action("‹", "former", "Former answer"), action("›", "next", "Next answer")];
  for (const each of [former, next]) each.setAttribute("aria-label", each.title);
  made.append(former, element("span", "place"), next);
  return made;
}

// Say of each answer to a question which it is.
export function number(answers) {
  answers.forEach((answer, at) => {
    const [former, place, next] = answer.variants.children;
    answer.variants.hidden = answers.length === 1;
    place.textContent = `${at + 1} / ${answers.length}`;
    former.disabled = !at;
    next.disabled = at === answers.length - 1;
  });
}

// A text and the origins of its parts: [class, length] of each.
export class Text {
  constructor({ text, runs } = { text: "", runs: [] }) {
    this.text = text;
    this.runs = runs;
  }

  add(text, origin) {
    const name = classOf(origin);
    const last = this.runs.at(-1);
    if (last && last[0] === name) last[1] += text.length;
    else this.runs.push([name, text.length]);
    this.text += text;
  }
}

// A text in a box, which grows.
class TextView {
  // isTold: whether readers of the screen are told of it while it is written.
  constructor(text, box, isTold) {
    this.text = text;
    this.box = box;
    this.isTold = isTold;
  }

  begin(view) {
    this.view = view;
    // How much is shown: characters, runs, and characters of a run.
    [this.shown, this.run, this.inRun] = [0, 0, 0];
    this.markdown = new GrowingMarkdown(this.isTold);
    this.raw = element("div", "raw");
    this.box.replaceChildren(...(view === READ ? this.markdown.nodes : [this.raw]));
    this.draw();
  }

  draw() {
    const { text, runs } = this.text;
    if (this.view === READ) {
      this.markdown.show(text.slice(this.shown));
      this.shown = text.length;
      return;
    }
    for (; this.run < runs.length; this.run++, this.inRun = 0) {
      const [name, length] = runs[this.run];
      const added = text.slice(this.shown, this.shown + length - this.inRun);
      if (this.inRun) this.raw.lastChild.firstChild.appendData(added);
      else this.raw.append(element("span", name, added));
      this.shown += added.length;
      this.inRun = length;
      if (this.run === runs.length - 1) return;  // it may grow
    }
  }

  end() {
    this.draw();
    if (this.view === READ) this.markdown.end();
  }
}

export class Answer {
  // drawn: called when something new is shown.
  constructor(view, drawn, kept = {}) {
    this.drawn = drawn;
    this.said = new Text(kept.said);
    this.thought = new Text(kept.thought);
    this.line = element("small", "facts", kept.facts || "…");
    this.node = element("article", "answer");
    this.reasoning = element("details", "thought");
    this.reasoning.append(element("summary", "", "Reasoning"), element("div"));
    this.text = element("div", "text");
    this.actions = element("span", "acts");
    this.variants = variants();
    this.copy = action("Copy", "copy", "Copy the answer as it was written");
    this.continue = action("Continue", "continue", "Go on with this answer where it ends");
    const again = action("Again", "again", "Ask again, with another seed; this answer is kept");
    this.actions.append(this.variants, this.copy, this.continue, again);
    number([this]);
    this.node.append(this.reasoning, this.text, this.line, this.actions);
    this.views = [
      new TextView(this.thought, this.reasoning.lastChild, false),
      new TextView(this.said, this.text, !kept.said),
    ];
    // The turns behind it, where another answer is shown in its place.
    this.behind = [];
    this.ended = false;
    // Its facts and its length when it was gone on with.
    this.former = null;
    this.waits = false;
    this.show(view);
    if (kept.said) this.end("", "", kept.isCut);
  }

  get kept() {
    const facts = this.line.textContent + (this.ended ? "" : " · stopped");
    const { said, thought, isCut } = this;
    return structuredClone({ said, thought, facts, isCut: isCut || !this.ended });
  }

  get isEmpty() {
    return !this.length;
  }

  set facts(text) {
    this.line.textContent = (this.former ? "continued: " : "") + text;
  }

  // Go on with it.
  resume(view) {
    this.former = { facts: this.line.textContent, length: this.length };
    this.ended = false;
    this.node.querySelector(":scope > .error")?.remove();
    this.line.hidden = false;
    this.facts = "…";
    this.show(view);
    this.reasoning.open ||= !this.said.text;
  }

  // Show it in this view from now on.
  show(view) {
    for (const each of this.views) {
      each.begin(view);
      if (this.ended) each.end();
    }
    this.reasoning.hidden = !this.thought.text;
  }

  add({ thought, text, origin }) {
    if (thought) {
      if (!this.thought.text) this.reasoning.open = true;
      this.thought.add(thought, origin);
    }
    if (text) {
      if (!this.said.text) this.reasoning.open = false;
      this.said.add(text, origin);
    }
    if (!this.waits) this.draw();
  }

  // Once in a frame at most, and less often where drawing takes long, the browser's part included.
  draw() {
    this.waits = true;
    requestAnimationFrame(() => {
      const [began, shown] = [performance.now(), this.length];
      if (!this.ended) {
        for (const view of this.views) view.draw();
        this.reasoning.hidden = !this.thought.text;
      }
      this.drawn();
      setTimeout(() => setTimeout(() => {
        this.waits = false;
        if (this.length > shown && !this.ended) this.draw();
      }, REST * (performance.now() - began)));
    });
  }

  get length() {
    return this.said.text.length + this.thought.text.length;
  }

  // end: what its line says more. failure: why it broke off. isCut: whether it may go on.
  end(end = "", failure = "", isCut = false) {
    this.ended = true;
    this.isCut = isCut;
    if (this.former?.length === this.length && isCut) [this.line.textContent, end] = [this.former.facts, ""];
    this.former = null;
    this.reasoning.hidden = !this.thought.text;
    for (const view of this.views) {
      view.end();
      view.isTold = false;
    }
    this.line.textContent += end;
    if (failure) {
      const told = element("span", "error", failure);
      told.setAttribute("role", "alert");
      this.line.before(told);
      this.line.hidden = !this.line.textContent.includes("tok/s");
    }
    this.actions.hidden = this.isEmpty;
    this.copy.hidden = !this.said.text;
    this.continue.hidden = !isCut;
    this.drawn();
  }
}
