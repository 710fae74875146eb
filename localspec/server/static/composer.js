// Composer: the message that is typed, with its images and text files.

import { Images } from "./images.js";
import { blockOf } from "./text_files.js";

const $ = (id) => document.getElementById(id);
// A drawing as SVG is text, too.
const isImage = ({ type }) => type.startsWith("image/");
const isDrawing = ({ type }) => type === "image/svg+xml";
const hasFiles = (event) => event.dataTransfer.types.includes("Files");
const dropping = (on) => document.body.classList.toggle("dropping", on);

export class Composer {
  // models: says whether images are read. tell: shows what is wrong.
  constructor(models, tell) {
    this.models = models;
    this.tell = tell;
    this.box = $("text");
    this.images = new Images($("images"), () => this.box.focus());
    // Files that were attached, up to the last one.
    this.read = Promise.resolve();
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

  // In the order in which they came, however long each takes.
  attach(files) {
    for (const file of files) {
      this.read = this.read.then(() => this.take(file)).catch(({ message }) => this.tell(message));
    }
  }

  async take(file) {
    const { readsImages, chosen } = this.models;
    if (isImage(file) && readsImages) return this.images.add(file);
    if (isImage(file) && !isDrawing(file)) {
      throw new Error(!this.models.names.length
        ? `Whether the model reads images is not known yet; attach ${file.name} once it is loaded.`
        : `${chosen} reads no images.`);
    }
    const block = await blockOf(file);
    const { text, images } = this.message;
    this.write({ text: [text.trimEnd(), block].filter(Boolean).join("\n\n"), images });
    this.box.scrollTop = this.box.scrollHeight;
    this.focus();
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
      dropping(true);
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
