/**
 * Where the reader is: the fragment of the address, `#/workers?sort=-cpu&filter=abc`.
 *
 * Rules: a page and all that decides what it shows are in the fragment, so that a link shows others the same, and
 * "back" works; small steps (typing in a filter) replace, larger ones (another page) add to the history.
 */

/** @typedef {{page: string, path: string[], query: URLSearchParams}} Route */

/** An address that nothing can be shown for; the message says what is wrong with it. */
export class AddressError extends Error {}

/** @returns {Route} */
export function current() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s, 2);
  const parts = path.split("/").map(decoded);
  while (parts.length > 1 && parts[parts.length - 1] === "") parts.pop();
  return { page: parts[0] || "overview", path: parts.slice(1), query: new URLSearchParams(query || "") };
}

/**
 * A number above 0 of the query; 0 where there is none, or it is 0.
 *
 * @param {Route} where
 * @param {string} name
 * @param {string} what it is, for people
 * @param {boolean} [isWhole]
 */
export function positive(where, name, what, isWhole = false) {
  const text = where.query.get(name);
  if (text === null || text === "") return 0;
  const value = Number(text);
  if (!/^[0-9.]+(e[0-9]+)?$/i.test(text) || !(isWhole ? Number.isSafeInteger(value) : Number.isFinite(value))) {
    throw new AddressError(`${name} is ${what}, not “${text.slice(0, 60)}”.`);
  }
  return value;
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * @param {string} page
 * @param {(string | number)[]} [path]
 * @param {URLSearchParams | Record<string, string | number | null | undefined>} [query] empty values are left out
 */
export function address(page, path = [], query = {}) {
  const kept = new URLSearchParams();
  const entries = query instanceof URLSearchParams ? [...query] : Object.entries(query);
  for (const [name, value] of entries) if (value !== null && value !== undefined && value !== "") kept.set(name, String(value));
  const text = kept.toString();
  return `#/${[page, ...path].map((part) => encodeURIComponent(String(part))).join("/")}${text ? `?${text}` : ""}`;
}

/** @param {string} hash go there */
export function go(hash) {
  if (location.hash !== hash) location.hash = hash;
}

/** @param {string} hash go there, in the place of this entry of the history */
export function replace(hash) {
  if (location.hash === hash) return;
  history.replaceState(null, "", hash);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}
