// Talk: a conversation, as it is sent and as the browser keeps it.

import { keep, ofTab, recall } from "./storage.js";

const NAME = "talk";
// Of what a browser keeps for a page, in characters.
const MOST_KEPT = 4_000_000;

function contentOf({ text, images }) {
  if (!images.length) return text;
  const parts = images.map(({ url }) => ({ type: "image_url", image_url: { url } }));
  return text ? [...parts, { type: "text", text }] : parts;
}

// An answer that is not begun yet is not kept: the one before it is shown again.
function keptOf({ text, images, lost, answers, answer, before }) {
  const begun = answers.filter((each) => !each.isEmpty);
  const kept = begun.map((each) => ({ ...each.kept, behind: allKept(each.behind) }));
  return { text, images, lost, answers: kept, shown: begun.indexOf(answer.isEmpty ? before : answer) };
}

const allKept = (turns) => turns.filter(({ failed }) => !failed).map(keptOf);

const withoutImages = (turn) => ({
  ...turn, images: [], lost: (turn.lost || 0) + turn.images.length,
  answers: turn.answers.map((each) => ({ ...each, behind: each.behind.map(withoutImages) })),
});

// The conversation as it is seen: what stands behind an answer that is not shown goes with it.
const withoutOthers = (turn) => (
  turn.shown < 0 ? turn : { ...turn, answers: [turn.answers[turn.shown]], shown: 0 });

// A turn as it is kept now. It was kept with one `answer` before there were several.
function withAnswers({ answer, ...turn }) {
  if (!answer) return turn;
  return { ...turn, answers: answer.said.text ? [{ ...answer, behind: [] }] : [], shown: 0 };
}

// What of an answer the model reads to go on with it.
function begunOf({ said, thought }) {
  const reasoning = thought.text ? { reasoning_content: thought.text } : {};
  return { role: "assistant", content: said.text, ...reasoning };
}

// Turns: a question with text, images, and `lost`, the number of those that were not kept; its
// `answers`, once it is asked, of which `answer` is shown, and `before` was until that was begun;
// the turns that were `dropped` for it; and whether that has failed. The turns behind an answer that
// is not shown are its own (`behind`).
export class Talk {
  constructor(turns = []) {
    this.turns = turns;
  }

  // Of the tab, as `save` left it: the answers are what was kept of them.
  static recalled() {
    return recall(ofTab, NAME, []).map(withAnswers);
  }

  // The messages up to a turn, whose answer is asked for, or what comes after its beginning.
  messages(system, turn) {
    const found = system ? [{ role: "system", content: system }] : [];
    for (const each of this.turns) {
      if (each !== turn && each.answer.isEmpty) continue;
      found.push({ role: "user", content: contentOf(each) });
      if (each === turn) return turn.answer.isEmpty ? found : [...found, begunOf(turn.answer)];
      found.push({ role: "assistant", content: each.answer.said.text });
    }
    return found;
  }

  // Drop a turn and all behind it; what was dropped.
  cut(turn) {
    return this.turns.splice(this.turns.indexOf(turn));
  }

  // Show another answer of a turn. The turns behind the former one go with it, and its own come.
  turnTo(turn, answer) {
    turn.answer.behind = this.turns.splice(this.turns.indexOf(turn) + 1);
    turn.answer = answer;
    this.turns.push(...answer.behind);
    answer.behind = [];
  }

  // The turns, with what is kept of their answers. What a turn replaces stays until that is answered.
  get kept() {
    const replaced = ({ answer, dropped }) => answer.isEmpty ? dropped || [] : [];
    return allKept(this.turns.flatMap((turn) => [...replaced(turn), turn]));
  }

  // Keep it in the tab, as much as there is room for: without its images, and without the answers
  // that are not shown. What a reload would forget beside images; empty: nothing.
  save() {
    const turns = this.kept;
    const bare = turns.map(withoutImages);
    const fits = (some) => JSON.stringify(some).length <= MOST_KEPT && keep(ofTab, NAME, some);
    if (fits(turns) || fits(bare)) return "";
    if (fits(bare.map(withoutOthers))) return "its other answers";
    return keep(ofTab, NAME, []) && !turns.length ? "" : "it";
  }
}
