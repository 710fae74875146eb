// Requests: what the page asks the server, with its key.

import { keep, ofTab, recall } from "./storage.js";

export const NO_ANSWER = "The server does not answer; is it running?";
const BROKEN_OFF = "The connection ended before the answer did.";
const LAST = "data: [DONE]";
let key = recall(ofTab, "key", "");
// Who has closed the question for the key is not asked again, but may come back to it.
let asks = true;

export const asksForKey = () => asks;

// A TypeError is fetch's own where nobody answers.
export const messageOf = (error) => error instanceof TypeError ? NO_ANSWER : error.message;

export function askForKey() {
  const given = prompt("This server asks for its API key:");
  asks = given !== null;
  key = (given || "").trim();
  keep(ofTab, "key", key);
}

const headers = () => ({
  "Content-Type": "application/json",
  ...(key ? { Authorization: "Bearer " + key } : {}),
});

// Why a request was refused. A proxy does not say so in the server's words.
async function refusal(answer) {
  const said = await answer.json().catch(() => null);
  return new Error(said?.error?.message || `The server answers with an error: ${answer.status}.`);
}

export async function get(path) {
  const answer = await fetch(path, { headers: headers() });
  if (answer.status === 401 && asks) askForKey();
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

// The parts of a streamed answer.
export async function* stream(path, body, signal) {
  const answer = await fetch(path, {
    method: "POST", headers: headers(), signal, body: JSON.stringify({ ...body, stream: true }),
  });
  if (!answer.ok) throw await refusal(answer);
  for await (const part of events(answer.body)) {
    if (part.error) throw new Error(part.error.message);
    yield part;
  }
}

// The data of each event of a stream.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let [held, isWhole] = ["", false]; ; ) {
    const { value, done } = await reader.read();
    if (done && !isWhole) throw new Error(BROKEN_OFF);
    if (done) return;
    held += value;
    for (let end; (end = held.indexOf("\n\n")) >= 0; held = held.slice(end + 2)) {
      const lines = held.slice(0, end).split("\n");
      const data = lines.find((line) => line.startsWith("data: "));
      if (data === LAST) isWhole = true;
      else if (data) yield JSON.parse(data.slice(6));
    }
  }
}
