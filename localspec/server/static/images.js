// Images: those of the next message, as files are chosen, pasted or dropped.

import { element } from "./inline.js";

// What the server reads is sent as it is.
const AS_THEY_ARE = ["image/jpeg", "image/png", "image/gif", "image/bmp"];
const LONGEST_SIDE = 4096;

export function picture({ name, url }) {
  const made = element("img");
  made.alt = name;
  made.src = url;
  return made;
}

async function urlOf(file) {
  if (AS_THEY_ARE.includes(file.type)) {
    return new Promise((done, failed) => {
      const reader = new FileReader();
      reader.onload = () => done(reader.result);
      reader.onerror = () => failed(reader.error);
      reader.readAsDataURL(file);
    });
  }
  const bitmap = await createImageBitmap(file);
  const { width, height } = bitmap;
  const scale = Math.min(1, LONGEST_SIDE / Math.max(width, height));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height].map((side) => Math.ceil(side * scale));
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
}

export class Images {
  // box: shows them. removed: called when the reader has removed one.
  constructor(box, removed) {
    this.box = box;
    this.removed = removed;
    this.all = [];
  }

  set(images) {
    this.all = images;
    this.box.replaceChildren(...images.map((image) => this.chip(image)));
  }

  // Throws an Error for a file that the browser cannot show.
  async add(file) {
    const { name } = file;
    const url = await urlOf(file).catch(() => {
      throw new Error(`${name} cannot be read as an image here; convert it to JPEG or PNG.`);
    });
    this.set([...this.all, { name, url }]);
  }

  chip(image) {
    const made = element("button");
    made.type = "button";
    made.title = `Remove ${image.name}`;
    made.setAttribute("aria-label", made.title);
    made.append(picture(image));
    made.addEventListener("click", () => {
      this.set(this.all.filter((each) => each !== image));
      this.removed();
    });
    return made;
  }
}
