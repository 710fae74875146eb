// Page: the conversation, what is typed, and the keys.

import { Answer, ORIGINS, READ, number, question } from "./answer.js";
import { copy } from "./clipboard.js";
import { Composer } from "./composer.js";
import { element } from "./inline.js";
import { Models } from "./models.js";
import { messageOf, stream } from "./requests.js";
import { Settings } from "./settings.js";
import { keep, ofBrowser, ofTab, recall } from "./storage.js";
import { Talk } from "./talk.js";

const STOPPED = " · stopped";
const CUT_OFF = " · cut off, no more tokens were allowed";
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
  const turn = { text, images, dropped, answers: [] };
  turn.question = question(turn);
  talk.turns.push(turn);
  show(turn.question);
  return answer(turn);
}

function showTurn(turn) {
  turn.answer.show(view);
  show(turn.question, turn.answer.node);
}

function hideTurn({ question, answer }) {
  question.remove();
  answer.node.remove();
}

function add(turn) {
  talk.turns.push(turn);
  showTurn(turn);
}

// Drop a turn and all behind it; those turns.
function drop(turn) {
  const dropped = talk.cut(turn);
  dropped.forEach(hideTurn);
  return dropped;
}

// Show another answer to a question, with what was said behind it.
function turnTo(turn, button) {
  const { answers, answer: former } = turn;
  const at = answers.indexOf(former) + (button.classList.contains("next") ? 1 : -1);
  cancelEdit();
  talk.turnTo(turn, answers[at]);
  former.behind.forEach(hideTurn);
  former.node.replaceWith(answers[at].node);
  answers[at].show(view);
  talk.turns.slice(talk.turns.indexOf(turn) + 1).forEach(showTurn);
  const [back, , on] = answers[at].variants.children;
  (at && (on.disabled || button.classList.contains("former")) ? back : on).focus();
  $("told").textContent = `Answer ${at + 1} of ${answers.length}.`;
  save();
}

// Another answer beside the last one, with another seed.
function askAgain() {
  const turn = talk.turns.at(-1);
  turn.before = turn.answer;
  turn.before.node.remove();
  atEnd = true;
  talkBox.focus();  // the button is gone
  return answer(turn, { seed: crypto.getRandomValues(new Uint32Array(1))[0] });
}

// The rest of the last answer.
function goOn() {
  const turn = talk.turns.at(-1);
  atEnd = true;
  talkBox.focus();  // the button is gone
  turn.answer.resume(view);
  return write(turn, { continue_final_message: true });
}

function answer(turn, chosen) {
  turn.answer = new Answer(view, follow);
  turn.answers.push(turn.answer);
  number(turn.answers);
  show(turn.answer.node);
  return write(turn, chosen);
}

async function write(turn, chosen = {}) {
  const own = talk;
  const shown = turn.answer;
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
    if (error.name === "AbortError") end = STOPPED;
    else failure = messageOf(error);
  }
  const isCut = Boolean(failure) || end.endsWith(STOPPED) || end.endsWith(CUT_OFF);
  shown.end(end, failure, isCut);
  if (own !== talk) return;
  if (shown.isEmpty) giveBack(turn, failure);
  turn.before = turn.dropped = null;
  rest(failure ? "" : end === STOPPED ? "Stopped." : "The answer is written.");
  save();
  follow();
}

// Show an answer as it comes; why it has ended, where that is not the model's own end.
async function read(body, signal, shown) {
  const began = performance.now();
  let [end, seed] = ["", null];
  for await (const part of stream("v1/chat/completions", body, signal)) {
    if (part.prompt_progress) shown.facts = reading(part.prompt_progress);
    if (part.timings) shown.facts = facts(part.timings, began);
    if (part.localspec) {
      models.ownSlot = part.localspec.slot;
      seed = part.localspec.seed ?? seed;
    }
    for (const { delta, origin, finish_reason } of part.choices || []) {
      if (finish_reason === "length") end = CUT_OFF;
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
// answer shows that, and what it should have replaced stays.
function giveBack(turn, failure) {
  if (turn.before || turn.dropped) {
    if (turn.before) {
      turn.before.show(view);  // it may have changed
      turn.answers.pop().node.replaceWith(turn.before.node);
      turn.answer = turn.before;
      number(turn.answers);
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
  const forgotten = isLeft ? "" : talk.save();
  if (!forgotten || talk.told === forgotten) return;
  talk.told = forgotten;
  tell(`This conversation is too long for the browser to keep: a reload would forget ${forgotten}.`);
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

function turnOf({ answers, shown, ...turn }) {
  const made = answers.map(({ behind, ...kept }) => (
    Object.assign(new Answer(view, follow, kept), { behind: behind.map(turnOf) })));
  number(made);
  return { ...turn, question: question(turn), answers: made, answer: made[shown] };
}

// Turns as `Talk.kept` has them. A question without an answer is in the box again.
function addKept(turns) {
  for (const turn of turns) {
    if (turn.answers.length) {
      add(turnOf(turn));
      continue;
    }
    const { text, images } = composer.message;
    const texts = [turn.text, text].filter(Boolean).join("\n\n");
    composer.write({ text: texts, images: [...turn.images, ...images] });
  }
}

// Views.

function showView() {
  $("view").setAttribute("aria-pressed", view === ORIGINS);
  $("legend").hidden = view !== ORIGINS;
  for (const { answer } of talk.turns) answer.show(view);
  follow();
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
  else if (button.classList.contains("continue")) goOn();
  else if (button.closest(".variants")) turnTo(turn, button);
});

// What is typed.

$("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (running) return running.abort();
  await composer.read;
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
