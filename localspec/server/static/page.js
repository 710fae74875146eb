// Page: the conversation, what is typed, and the keys.

import { Answer, ORIGINS, READ, question } from "./answer.js";
import { Composer } from "./composer.js";
import { element } from "./inline.js";
import { Models } from "./models.js";
import { messageOf, stream } from "./requests.js";
import { Settings } from "./settings.js";
import { keep, ofBrowser, ofTab, recall } from "./storage.js";
import { Talk } from "./talk.js";

const $ = (id) => document.getElementById(id);
const talkBox = $("talk");
let talk = new Talk();
let running = null;
// The turn that is edited, and what was in the box before.
let editing = null;
let atEnd = true;
let lastTop = 0;
let isLeft = false;
let view = recall(ofBrowser, "view", READ) === ORIGINS ? ORIGINS : READ;

const settings = new Settings($("settings"), showSettings);
const models = new Models(() => {
  $("attach").hidden = !models.readsImages;
  settings.describe(models.described);
});
const composer = new Composer(models, tell);

// The end of the talk stays in view, unless the reader has scrolled away from it.
function follow() {
  if (atEnd) talkBox.scrollTop = talkBox.scrollHeight;
}

function show(...nodes) {
  talkBox.append(...nodes);
  follow();
}

function tell(message) {
  const made = element("small", "error", message);
  made.setAttribute("role", "alert");
  show(made);
}

function showSettings() {
  const { count } = settings;
  $("settings-open").textContent = "Settings" + (count ? ` (${count})` : "");
}

// Asking.

function facts(timings, began) {
  const speed = timings.predicted_per_second || 0;
  const parts = [timings.predicted_n + " tokens", speed.toFixed(1) + " tok/s"];
  if (timings.draft_n) {
    parts.push(Math.round(100 * timings.draft_n_accepted / timings.draft_n) + "% accepted");
  }
  parts.push(((performance.now() - began) / 1000).toFixed(1) + " s");
  return parts.join(" · ");
}

// What need not be read again is no part of the share.
function reading({ total, cache, processed }) {
  const share = total > cache ? Math.floor(100 * (processed - cache) / (total - cache)) : 100;
  return `reading ${total - cache} tokens: ${share}%`;
}

function ask(text, images, dropped) {
  const turn = { text, images, dropped };
  turn.question = question(turn);
  talk.turns.push(turn);
  show(turn.question);
  return answer(turn);
}

function add(turn) {
  talk.turns.push(turn);
  turn.answer.show(view);
  show(turn.question, turn.answer.node);
}

// Drop a turn and all behind it; those turns.
function drop(turn) {
  const dropped = talk.cut(turn);
  for (const { question, answer } of dropped) {
    question.remove();
    answer.node.remove();
  }
  return dropped;
}

// Another answer in the place of the last one, with another seed.
function askAgain() {
  const turn = talk.turns.at(-1);
  turn.before = turn.answer;
  turn.before.node.remove();
  atEnd = true;
  talkBox.focus();  // the button is gone
  return answer(turn, { seed: crypto.getRandomValues(new Uint32Array(1))[0] });
}

async function answer(turn, chosen = {}) {
  const own = talk;
  const shown = turn.answer = new Answer(view, follow);
  show(shown.node);
  const stopping = begin();
  let [end, failure] = ["", ""];
  try {
    const body = {
      model: models.chosen, messages: talk.messages(settings.system, turn),
      ...settings.chosen, ...chosen,
      timings_per_token: true, return_progress: true, localspec: { origins: true },
    };
    end = await read(body, stopping.signal, shown);
  } catch (error) {
    if (error.name === "AbortError") end = " · stopped";
    else failure = messageOf(error);
  }
  shown.end(end, failure);
  if (own !== talk) return;
  if (!shown.said.text) giveBack(turn, failure);
  turn.before = turn.dropped = null;
  rest(failure ? "" : end.includes("stopped") ? "Stopped." : "The answer is written.");
  save();
  follow();
}

// Show an answer as it comes; why it has ended, where that is not the model's own end.
async function read(body, signal, shown) {
  const began = performance.now();
  let [end, seed] = ["", null];
  for await (const part of stream("v1/chat/completions", body, signal)) {
    if (part.prompt_progress) shown.line.textContent = reading(part.prompt_progress);
    if (part.timings) shown.line.textContent = facts(part.timings, began);
    if (part.localspec) {
      models.ownSlot = part.localspec.slot;
      seed = part.localspec.seed ?? seed;
    }
    for (const { delta, origin, finish_reason } of part.choices || []) {
      if (finish_reason === "length") end = " · cut off, no more tokens were allowed";
      shown.add({ thought: delta.reasoning_content, text: delta.content, origin });
    }
  }
  return (seed === null ? "" : ` · seed ${seed}`) + end;
}

function begin() {
  running = new AbortController();
  document.body.classList.add("running");
  $("send").textContent = "Stop";
  $("told").textContent = "The answer is being written.";
  return running;
}

// A message that got no answer is no part of the talk, and may be mended. One that has another
// answer keeps that, and what it should have replaced stays.
function giveBack(turn, failure) {
  if (turn.before || turn.dropped) {
    if (turn.before) {
      turn.answer.node.replaceWith(turn.before.node);
      turn.answer = turn.before;
    } else {
      drop(turn);
      turn.dropped.forEach(add);
      edit(turn.dropped[0]);
      composer.write(turn);
    }
    if (failure) tell(failure);
    return;
  }
  turn.failed = true;
  if (composer.isEmpty) composer.write(turn);
}

function rest(told) {
  running = null;
  document.body.classList.remove("running");
  $("send").textContent = "Send";
  $("told").textContent = told;
  models.answered();
}

function save() {
  if (isLeft || talk.save() || talk.isTold) return;
  talk.isTold = true;
  tell("This conversation is too long for the browser to keep: a reload would forget it.");
}

// Beginning anew, and editing.

function beginAnew() {
  const { kept } = talk;
  running?.abort();
  if (running) rest("Stopped.");
  cancelEdit();
  talk = new Talk();
  talk.save();
  talkBox.replaceChildren();
  if (kept.length) {
    const back = element("button", "act", "Bring it back");
    back.addEventListener("click", () => bringBack(kept));
    const line = element("p", "note", "The conversation is forgotten. ");
    line.append(back);
    show(line);
  }
  composer.focus();
}

function bringBack(kept) {
  talkBox.replaceChildren();
  talk = new Talk();
  addKept(kept);
  save();
  composer.focus();
}

function edit(turn) {
  editing = { turn, draft: editing ? editing.draft : composer.message };
  $("editing").hidden = false;
  composer.write(turn);
  composer.focus();
}

function cancelEdit() {
  if (!editing) return;
  const { draft } = editing;
  editing = null;
  $("editing").hidden = true;
  composer.write(draft);
}

// Turns as `Talk.kept` has them. A question without an answer is in the box again.
function addKept(turns) {
  for (const { answer: kept, ...turn } of turns) {
    if (kept.said.text) {
      add({ ...turn, question: question(turn), answer: new Answer(view, follow, kept) });
      continue;
    }
    const { text, images } = composer.message;
    const texts = [turn.text, text].filter(Boolean).join("\n\n");
    composer.write({ text: texts, images: [...turn.images, ...images] });
  }
}

// Views, and copies.

function showView() {
  $("view").setAttribute("aria-pressed", view === ORIGINS);
  $("legend").hidden = view !== ORIGINS;
  for (const { answer } of talk.turns) answer.show(view);
  follow();
}

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A page that came without encryption from another machine has no clipboard.
    const box = element("textarea");
    box.value = text;
    button.after(box);
    box.select();
    document.execCommand("copy");
    box.remove();
    button.focus();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

talkBox.addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  if (!button) return;
  const figure = button.closest("figure");
  if (figure) return copy(button, figure.querySelector("code").textContent);
  const turn = talk.turns.find(({ question, answer }) => (
    question.contains(button) || answer.node.contains(button)));
  if (button.classList.contains("copy")) copy(button, turn.answer.said.text);
  else if (running) return;
  else if (button.classList.contains("edit")) edit(turn);
  else if (button.classList.contains("again")) askAgain();
});

// What is typed.

$("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (running) return running.abort();
  await composer.images.read;
  if (running || composer.isEmpty) return;
  const { text, images } = composer.message;
  composer.clear();
  atEnd = true;
  talkBox.querySelector(".note")?.remove();
  const dropped = editing && drop(editing.turn);
  cancelEdit();
  ask(text.trim(), images, dropped);
});
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (!running && !$("send").disabled) $("form").requestSubmit();
  }
  const last = talk.turns.at(-1);
  if (event.key === "ArrowUp" && !event.target.value && last && !running && !editing) {
    event.preventDefault();
    edit(last);
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || $("settings").open) return;
  if (running) running.abort();
  else cancelEdit();
});

// The page itself.

$("new").addEventListener("click", beginAnew);
$("cancel").addEventListener("click", () => { cancelEdit(); composer.focus(); });
$("settings-open").addEventListener("click", () => $("settings").showModal());
$("defaults").addEventListener("click", () => settings.clear());
$("view").addEventListener("click", () => {
  view = view === READ ? ORIGINS : READ;
  keep(ofBrowser, "view", view);
  showView();
});
talkBox.addEventListener("scroll", () => {
  const { scrollTop, scrollHeight, clientHeight } = talkBox;
  // A reader who scrolls up leaves the end, however slowly.
  atEnd = scrollHeight - scrollTop - clientHeight < (scrollTop < lastTop ? 2 : 80);
  lastTop = scrollTop;
});
talkBox.addEventListener("load", follow, true);  // of an image
// Once the page is left, requests break off, which is no fault of the answer. A phone may end a
// page that is out of sight without a further word.
function leave() {
  save();
  keep(ofTab, "draft", composer.message.text);
}
document.addEventListener("visibilitychange", () => { if (document.hidden && !isLeft) leave(); });
window.addEventListener("pagehide", () => {
  leave();
  isLeft = true;
});
window.addEventListener("pageshow", () => { isLeft = false; });
new ResizeObserver(follow).observe(talkBox);
$("slots").open = matchMedia("(min-width: 44rem) and (min-height: 40rem)").matches;
showSettings();
try {
  composer.write({ text: recall(ofTab, "draft", ""), images: [] });
  addKept(Talk.recalled());
} catch {
  // Another version of the page has kept it in its own way.
  talkBox.replaceChildren();
  talk = new Talk();
}
showView();
models.watch();
