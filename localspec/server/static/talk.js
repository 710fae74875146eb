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

const keptOf = ({ text, images, lost, answer, before }) => (
  { text, images, lost, answer: (answer.said.text ? answer : before || answer).kept });

// Turns: a question with text, images, and `lost`, the number of those that were not kept; its
// answer, once it is asked, the one `before` it, and the turns that were `dropped` for it; and
// whether that has failed.
export class Talk {
  constructor(turns = []) {
    this.turns = turns;
  }

  // Of the tab, as `save` left it: the answers are what was kept of them.
  static recalled() {
    return recall(ofTab, NAME, []);
  }

  // The messages up to a turn, whose answer is asked for.
  messages(system, turn) {
    const found = system ? [{ role: "system", content: system }] : [];
    for (const each of this.turns) {
      if (each !== turn && !each.answer.said.text) continue;
      found.push({ role: "user", content: contentOf(each) });
      if (each === turn) break;
      found.push({ role: "assistant", content: each.answer.said.text });
    }
    return found;
  }

  // Drop a turn and all behind it; what was dropped.
  cut(turn) {
    return this.turns.splice(this.turns.indexOf(turn));
  }

  // The turns, with what is kept of their answers. What a turn replaces stays until that is answered.
  get kept() {
    const replaced = ({ answer, dropped }) => answer.said.text ? [] : dropped || [];
    const turns = this.turns.flatMap((turn) => [...replaced(turn), turn]);
    return turns.filter(({ failed }) => !failed).map(keptOf);
  }

  // Keep it in the tab, without its images where it is too long with them; whether it is kept.
  save() {
    const turns = this.kept;
    const bare = turns.map((turn) => (
      { ...turn, images: [], lost: (turn.lost || 0) + turn.images.length }));
    const fits = (some) => JSON.stringify(some).length <= MOST_KEPT && keep(ofTab, NAME, some);
    return fits(turns) || fits(bare) || (keep(ofTab, NAME, []) && !turns.length);
  }
}
