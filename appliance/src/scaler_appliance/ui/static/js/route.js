/**
 * Where the reader is: the fragment of the address, `#/workers?sort=-cpu&filter=abc`.
 *
 * Rules: a page and all that decides what it shows are in the fragment, so that a link shows somebody else the same, and
 * "back" works; small steps (typing in a filter) replace, larger ones (another page) add to the history.
 */

/** @typedef {{page: string, path: string[], query: URLSearchParams}} Route */

/** @returns {Route} */
export function current() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s, 2);
  const parts = path.split("/").map(decoded);
  return { page: parts[0] || "overview", path: parts.slice(1), query: new URLSearchParams(query || "") };
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
