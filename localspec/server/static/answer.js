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
    const copy = action("Copy", "copy", "Copy the answer as it was written");
    this.actions.append(copy, action("Again", "again", "Ask again, with another seed"));
    this.node.append(this.reasoning, this.text, this.line, this.actions);
    this.views = [
      new TextView(this.thought, this.reasoning.lastChild, false),
      new TextView(this.said, this.text, !kept.said),
    ];
    this.ended = false;
    this.waits = false;
    this.show(view);
    if (kept.said) this.end();
  }

  get kept() {
    const facts = this.line.textContent + (this.ended ? "" : " · stopped");
    return structuredClone({ said: this.said, thought: this.thought, facts });
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

  // end: what its line says more. failure: why it broke off.
  end(end = "", failure = "") {
    this.ended = true;
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
    this.actions.hidden = !this.said.text;
    this.drawn();
  }
}
