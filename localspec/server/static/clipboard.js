// Clipboard: a text is copied, and its button says so.

import { element } from "./inline.js";

export async function copy(button, text) {
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
