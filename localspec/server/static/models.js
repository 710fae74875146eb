// Models: what the server has and does just now, in the header and below the conversation.

import { element } from "./inline.js";
import { NO_ANSWER, askForKey, asksForKey, get, messageOf } from "./requests.js";
import { keep, ofTab, recall } from "./storage.js";

const $ = (id) => document.getElementById(id);
const pause = (ms) => new Promise((go) => setTimeout(go, ms));

export class Models {
  // changed: called when another model answers, or more is known of it.
  constructor(changed) {
    this.changed = changed;
    this.chosen = recall(ofTab, "model", null);
    this.names = [];
    // Those that read images.
    this.seeing = new Set();
    this.props = null;
    this.known = false;
    // The slot of the answer that is written.
    this.ownSlot = null;
  }

  // What the server says of the model that answers; null where it is not loaded.
  get described() {
    return this.props?.model_alias === this.chosen ? this.props : null;
  }

  get readsImages() {
    return this.seeing.has(this.chosen);
  }

  // What drafts is of the model that was asked.
  answered() {
    this.ownSlot = null;
    this.known = this.names.length === 1;
  }

  choose(name) {
    document.title = this.chosen = name;
    keep(ofTab, "model", name);
    this.changed();
  }

  async watch() {
    for (;; await pause(document.hidden ? 5000 : 700)) {
      try {
        if (!this.known) {
          await untilLoaded();
          await this.describe();
        }
        this.showSlots(await get("slots"));
        this.known = true;
      } catch (error) {
        // It may come back with another model.
        this.known = false;
        $("busy").textContent = messageOf(error);
        $("each").replaceChildren(...(asksForKey() ? [] : [keyButton()]));
        if (!asksForKey()) $("slots").open = true;
        while (!asksForKey()) await pause(200);
      }
    }
  }

  async describe() {
    const props = await get("props");
    const gives = (each) => each.architecture.output_modalities;
    const data = (await get("v1/models")).data.filter((each) => gives(each).includes("text"));
    const reads = (each) => each.architecture.input_modalities;
    this.seeing = new Set(data.filter((each) => reads(each).includes("image")).map(({ id }) => id));
    this.props = props;
    this.show(data.map((each) => each.id));
    const { drafters, no_drafter } = props.localspec;
    $("draft").textContent = "draft: " + (drafters.join(" or ") || `off (${no_drafter})`);
    this.changed();
  }

  // The model that answers, or a choice of it; another one is loaded when it is asked.
  show(names) {
    if (names.join() === this.names.join()) return;
    this.names = names;
    this.choose(names.includes(this.chosen) ? this.chosen : this.props.model_alias);
    $("name").textContent = this.chosen;
    if (names.length === 1) return;
    const choice = element("select");
    choice.setAttribute("aria-label", "Model");
    choice.append(...names.map((name) => new Option(name, name, false, name === this.chosen)));
    choice.addEventListener("change", () => this.choose(choice.value));
    $("name").replaceChildren(choice);
  }

  showSlots(slots) {
    if (!slots.length) {
      $("busy").textContent = "no model is loaded just now; a message loads it";
      $("each").replaceChildren();
      return;
    }
    const speed = (slot) => (slot.timings && slot.timings.predicted_per_second) || 0;
    const busy = slots.filter((slot) => slot.is_processing);
    const all = busy.reduce((sum, slot) => sum + speed(slot), 0);
    const rate = (all) => all ? `, ${all.toFixed(1)} tok/s` : "";
    const slotsOf = slots.length === 1 ? "slot" : "slots";
    $("busy").textContent = `${busy.length} of ${slots.length} ${slotsOf} busy${rate(all)}`;
    $("each").replaceChildren(...slots.map((slot) => {
      const what = slot.is_processing
        ? `${slot.n_decoded || 0} tokens${rate(speed(slot))}`
        : slot.n_cached ? `${slot.n_cached} tokens kept` : "free";
      const number = slots.length === 1 ? "slot" : `slot ${slot.id}`;
      const name = number + (slot.id === this.ownSlot ? " (yours)" : "");
      return element("span", slot.is_processing ? "busy" : "", `${name}: ${what}`);
    }));
  }
}

function keyButton() {
  const button = element("button", "", "Enter the API key");
  button.addEventListener("click", askForKey);
  return button;
}

// Until the model is loaded, the server says how far it is.
async function untilLoaded() {
  for (let again = 500; ; await pause(again)) {
    try {
      const { status, action, progress } = await (await fetch("health")).json();
      if (status !== "loading model") break;
      const share = progress === null ? "" : ` ${Math.floor(100 * progress)}%`;
      $("draft").textContent = `The model is not ready yet: ${action}${share}`;
      again = 500;
    } catch {
      $("draft").textContent = NO_ANSWER;
      again = 2000;
    }
    // Only now: who sends before the first answer of the server is not held up.
    $("send").disabled = true;
  }
  $("send").disabled = false;
}
