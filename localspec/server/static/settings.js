// Settings: how answers are asked for. What is left empty is the server's to say.

import { keep, ofBrowser, recall } from "./storage.js";

const NAME = "settings";
// What llama-server calls the settings of the same meaning.
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "seed", "max_tokens"];
const EFFORTS = ["low", "medium", "high"];

export class Settings {
  // dialog: with a form whose fields have the names of the members. changed: called after each.
  constructor(dialog, changed) {
    this.dialog = dialog;
    this.changed = changed;
    this.fields = dialog.querySelector("form").elements;
    this.kept = recall(ofBrowser, NAME, {});
    // Without the server's word, a model may reason or not.
    this.describe(null);
    for (const name of ["system", ...NUMBERS, "thinking"]) {
      this.fields[name].addEventListener("input", (event) => this.note(event.target));
    }
    dialog.addEventListener("close", () => this.fill());
  }

  note(field) {
    if (!field.validity.valid) return;
    this.kept[field.name] = field.value;
    this.keep();
  }

  keep() {
    keep(ofBrowser, NAME, this.kept);
    this.changed();
  }

  clear() {
    this.kept = {};
    this.keep();
    this.fill();
  }

  fill() {
    for (const name of ["system", ...NUMBERS]) this.fields[name].value = this.kept[name] || "";
    this.fillThinking();
  }

  fillThinking() {
    const { thinking } = this.fields;
    thinking.value = this.kept.thinking || "";
    // A choice that this model does not have.
    if (thinking.selectedIndex < 0) thinking.value = "";
  }

  // Show what holds where nothing is chosen. props: the server's; null while they are unknown.
  describe(props) {
    const usual = props?.default_generation_settings.params || {};
    const shown = (value) => Number.isFinite(value) ? String(+value.toPrecision(6)) : "the server's";
    for (const name of NUMBERS) this.fields[name].placeholder = shown(usual[name]);
    this.fields.seed.placeholder = usual.seed >= 0 ? String(usual.seed) : "random";
    this.fields.max_tokens.placeholder = "no limit";
    this.fields.system.placeholder = props?.localspec.system || "";
    this.describeThinking(props);
    if (!this.dialog.open) this.fill();
  }

  describeThinking(props) {
    const on = props ? props.localspec.thinking : undefined;
    const effort = props?.localspec.reasoning_effort;
    const usual = on === undefined ? "the model's" : effort ? `${effort} effort` : on ? "on" : "off";
    const choices = [new Option(`by default (${usual})`, "")];
    if (on !== null) choices.push(new Option("on", "on"), new Option("off", "off"));
    else choices[0].text = effort ? `by default (${effort} effort)` : "by default";
    if (props?.chat_template.includes("reasoning_effort")) {
      choices.push(...EFFORTS.map((effort) => new Option(`on, ${effort} effort`, effort)));
    }
    this.fields.thinking.replaceChildren(...choices);
    this.fields.thinking.closest("div").hidden = choices.length === 1;
    this.fillThinking();
  }

  get system() {
    return (this.kept.system || "").trim();
  }

  // Members of a request.
  get chosen() {
    const given = NUMBERS.filter((name) => this.kept[name]);
    return {
      ...Object.fromEntries(given.map((name) => [name, Number(this.kept[name])])),
      ...this.thinking,
    };
  }

  get thinking() {
    const { thinking } = this.kept;
    const offered = [...this.fields.thinking.options].some((option) => option.value === thinking);
    if (!thinking || !offered) return {};
    if (EFFORTS.includes(thinking)) return { reasoning_effort: thinking };
    return { enable_thinking: thinking === "on" };
  }

  // How many are chosen.
  get count() {
    return Object.keys(this.chosen).length + (this.system ? 1 : 0);
  }
}
