// Text files: the text of a file as a part of a message, a block of code with the file's name.

const MOST_BYTES = 256 * 1024;
// The marks that UTF-16 begins with.
const UTF_16 = [[0xff, 0xfe, "utf-16le"], [0xfe, 0xff, "utf-16be"]];
const FENCES = /`{3,}/g;

async function bytesOf(file) {
  try {
    return new Uint8Array(await file.slice(0, MOST_BYTES + 1).arrayBuffer());
  } catch {
    throw new Error(`${file.name} cannot be read; of a folder, attach the files.`);
  }
}

function decoded(name, bytes) {
  const wide = UTF_16.find(([first, second]) => bytes[0] === first && bytes[1] === second);
  if (!wide && bytes.includes(0)) throw new Error(`${name} is no text; convert it to a text file.`);
  try {
    const text = new TextDecoder(wide ? wide[2] : "utf-8", { fatal: true }).decode(bytes);
    if (text.includes("\0")) throw new TypeError();  // UTF-32, whose mark begins as that of UTF-16
    return text;
  } catch {
    throw new Error(`${name} is no text in UTF-8; save it as UTF-8.`);
  }
}

// A text without the line ends behind it. A pattern would search anew at every line end.
function trimmed(text) {
  let end = text.length;
  while (text[end - 1] === "\n") end--;
  return text.slice(0, end);
}

// What stands for a file in a message. Throws an Error whose message says why there is nothing.
export async function blockOf(file) {
  const { name } = file;
  const bytes = await bytesOf(file);
  if (String.fromCharCode(...bytes.slice(0, 5)) === "%PDF-") {
    throw new Error(`${name} is a PDF; pdftotext writes its text into a file that can be attached.`);
  }
  if (bytes.length > MOST_BYTES) {
    throw new Error(`${name} has more than ${MOST_BYTES / 1024} KiB; attach a smaller file.`);
  }
  const text = trimmed(decoded(name, bytes).replaceAll("\r\n", "\n"));
  const longest = Math.max(2, ...(text.match(FENCES) || []).map((fence) => fence.length));
  const fence = "`".repeat(longest + 1);
  const language = /\.([a-z0-9]+)$/i.exec(name)?.[1] || "";
  return `${name}:\n${fence}${language}\n${text}\n${fence}`;
}
