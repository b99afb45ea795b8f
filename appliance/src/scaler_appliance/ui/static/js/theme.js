/**
 * Light or dark, and the colours of functions.
 *
 * Rules: the system decides until the reader does; the choice is kept in this browser. Canvases take their colours from
 * the style sheet, so that there is one place for them. The colour of a function follows from its name alone: it is the
 * same on all pages, in every browser and on every day. Two functions may have the same one, which their names tell apart.
 * Red is never one of them: it means failure, which also has a hatching of its own.
 */

const KEY = "scaler-ui-theme";
/** @typedef {"auto" | "light" | "dark"} Theme */
/** @type {Theme[]} */
const ORDER = ["auto", "light", "dark"];

/** @type {Set<() => void>} */
const listeners = new Set();
/** @type {Map<string, string>} */
let resolved = new Map();

/** @returns {Theme} */
export function theme() {
  const kept = document.documentElement.dataset.theme;
  return kept === "light" || kept === "dark" ? kept : "auto";
}

/** Take up what was chosen earlier, and follow the system. */
export function startTheme() {
  let kept = null;
  try {
    kept = localStorage.getItem(KEY);
  } catch {
    // Storage may be forbidden; then the system decides.
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}

/** Go on to the next of: as the system, light, dark. */
export function nextTheme() {
  const next = ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === "auto") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    // As above.
  }
  changed();
}

function changed() {
  resolved = new Map();
  for (const listener of listeners) listener();
}

/**
 * @param {() => void} listener called when colours have changed
 * @returns {() => void} call it to end that
 */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/**
 * A colour of the style sheet as a canvas takes it.
 *
 * @param {string} name of a custom property, without the dashes
 */
export function colour(name) {
  return computed(`var(--${name})`);
}

/** @param {string} written as in a style sheet */
function computed(written) {
  let value = resolved.get(written);
  if (value === undefined) {
    const probe = document.createElement("i");
    probe.style.setProperty("color", written);
    document.body.append(probe);
    value = getComputedStyle(probe).color;
    probe.remove();
    resolved.set(written, value);
  }
  return value;
}

const HUES = 18; // --function-0 … in theme.css
const SHADES = ["", "--function-deep", "--function-bright"];
const MOST_OF_SHADE = "70%";

/**
 * The colour of a function, as a style sheet takes it: from its name, and from nothing else.
 *
 * @param {string} name
 */
export function functionStyle(name) {
  const number = hashed(name);
  const hue = `var(--function-${number % HUES})`;
  const shade = SHADES[Math.floor(number / HUES) % SHADES.length];
  return shade ? `color-mix(in oklab, ${hue} ${MOST_OF_SHADE}, var(${shade}))` : hue;
}

/** @param {string} name of a function @returns {string} its colour as a canvas takes it */
export function functionColour(name) {
  return computed(functionStyle(name));
}

/** @param {string} text @returns {number} of 32 bits, by FNV-1a, whose bits are then mixed */
function hashed(text) {
  let hash = 2166136261;
  for (let index = 0; index < text.length; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 16777619);
  hash = Math.imul(hash ^ (hash >>> 16), 0x45d9f3b);
  return (hash ^ (hash >>> 15)) >>> 0;
}
