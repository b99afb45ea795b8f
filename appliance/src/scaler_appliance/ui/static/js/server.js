/**
 * Requests to the server, with the key of the browser's session.
 *
 *     entrance.js ──keepKey(key)──▶ storage ──▶ ask(address) ──▶ the server, which wants the cookie and the key
 *
 * Browsers send a host's cookies to all its ports, and so to servers of other people. The storage is different: it belongs
 * to an origin, of which the port is a part. The key is kept there and sent in a header.
 *
 * Rules: every request goes through `ask`. Each folder has a key of its own, because a proxy may serve several pages of
 * this kind at one origin. Without storage, or without a token, there is no key.
 */

const KEY_HEADER = "X-Scaler-Page-Key";
const ACTION_HEADER = "X-Scaler-UI";

function place() {
  return `scaler_ui page key ${new URL(".", location.href).pathname}`;
}

/** @param {string} key @returns {boolean} whether it could be kept */
export function keepKey(key) {
  try {
    localStorage.setItem(place(), key);
    return localStorage.getItem(place()) === key;
  } catch {
    return false;
  }
}

/** @returns {string} */
function keptKey() {
  try {
    return localStorage.getItem(place()) || "";
  } catch {
    return "";
  }
}

/**
 * @param {string} address
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
export function ask(address, options = {}) {
  const headers = new Headers(options.headers);
  const key = keptKey();
  if (key) headers.set(KEY_HEADER, key);
  return fetch(address, { ...options, headers });
}

/**
 * Ask the server to do something.
 *
 * @param {string} address
 * @returns {Promise<Response>}
 */
export function act(address) {
  return ask(address, { method: "POST", headers: { [ACTION_HEADER]: "1" } });
}

/**
 * Server-sent events, as `EventSource` reads them; that one cannot send a header.
 *
 * @param {ReadableStream<Uint8Array>} body of the answer
 * @param {(data: string) => void} onEvent
 * @param {(milliseconds: number) => void} onRetry called with the pause that the server wants before another stream
 * @returns {Promise<void>} resolved when the stream has ended, rejected when it broke
 */
export async function readEvents(body, onEvent, onRetry) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let lines = [""]; // the last one is not whole yet
  let data = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = decoder.decode(value, { stream: true }).split("\n");
    lines.push(parts[0]);
    if (parts.length === 1) continue;
    const whole = [lines.join(""), ...parts.slice(1, -1)];
    lines = [parts[parts.length - 1]];
    for (const line of whole) {
      if (line.startsWith("data: ")) {
        data.push(line.slice(6));
      } else if (line.startsWith("retry: ")) {
        onRetry(Number(line.slice(7)));
      } else if (line === "" && data.length) {
        onEvent(data.join("\n"));
        data = [];
      }
    }
  }
}
