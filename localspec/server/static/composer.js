// Composer: the message that is typed, with its images.

import { Images } from "./images.js";

const $ = (id) => document.getElementById(id);
const hasFiles = (event) => event.dataTransfer.types.includes("Files");
const dropping = (on) => document.body.classList.toggle("dropping", on);

export class Composer {
  // models: says whether images are read. tell: shows what is wrong.
  constructor(models, tell) {
    this.models = models;
    this.tell = tell;
    this.box = $("text");
    this.images = new Images($("images"), () => this.box.focus(), (name) => {
      tell(`${name} cannot be read as an image here; convert it to JPEG or PNG.`);
    });
    this.box.addEventListener("input", () => this.fit());
    this.takeChosen();
    this.takePasted();
    this.takeDropped();
  }

  get message() {
    return { text: this.box.value, images: this.images.all };
  }

  get isEmpty() {
    return !this.box.value.trim() && !this.images.all.length;
  }

  write({ text, images }) {
    this.box.value = text;
    this.images.set(images);
    this.fit();
  }

  clear() {
    this.write({ text: "", images: [] });
  }

  focus() {
    this.box.focus();
  }

  // As high as its text.
  fit() {
    this.box.style.height = "auto";
    this.box.style.height = this.box.scrollHeight + 2 + "px";
  }

  attach(files) {
    if (!files.length) return;
    if (this.models.readsImages) this.images.attach(files);
    else this.tell(`${this.models.chosen} reads no images.`);
  }

  takeChosen() {
    $("attach").addEventListener("click", () => $("file").click());
    $("file").addEventListener("change", () => {
      this.attach([...$("file").files]);
      $("file").value = "";  // the same file may be chosen again
    });
  }

  takePasted() {
    this.box.addEventListener("paste", (event) => {
      const files = [...event.clipboardData.files];
      // Programs copy a picture of a text beside the text.
      if (!files.length || event.clipboardData.types.includes("text/plain")) return;
      event.preventDefault();
      this.attach(files);
    });
  }

  takeDropped() {
    document.addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();  // else the browser leaves the page for the file
      dropping(this.models.readsImages);
    });
    document.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) dropping(false);
    });
    document.addEventListener("drop", (event) => {
      dropping(false);
      if (!hasFiles(event)) return;
      event.preventDefault();
      this.attach([...event.dataTransfer.files]);
    });
  }
}
