/**
 * Light or dark, and the colours of functions.
 *
 * Rules: the system decides until the reader does; the choice is kept in this browser. Canvases take their colours from
 * the style sheet, so that there is one place for them. A function has the same colour on all pages for as long as the
 * page lives, by its name; red is never one of them: it means failure, which also has a hatching of its own.
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
  let value = resolved.get(name);
  if (value === undefined) {
    const probe = document.createElement("i");
    probe.style.setProperty("color", `var(--${name})`);
    document.body.append(probe);
    value = getComputedStyle(probe).color;
    probe.remove();
    resolved.set(name, value);
  }
  return value;
}

const FUNCTION_COLOURS = 18; // --function-0 … in theme.css
const DISTINCT_COLOURS = 8; // the first of them, which nobody takes for one another

/** @type {Map<string, number>} */
const slots = new Map();
/** @type {number[]} */
const uses = new Array(FUNCTION_COLOURS).fill(0);

/**
 * Which of the function colours a name has. A name's own slot comes from its letters; where that is taken already, it is
 * the least used one after it.
 *
 * @param {string} name
 */
export function functionSlot(name) {
  let slot = slots.get(name);
  if (slot !== undefined) return slot;
  let hash = 2166136261;
  for (let index = 0; index < name.length; index++) hash = Math.imul(hash ^ name.charCodeAt(index), 16777619);
  const range = uses.slice(0, DISTINCT_COLOURS).includes(0) ? DISTINCT_COLOURS : FUNCTION_COLOURS;
  const least = Math.min(...uses.slice(0, range));
  slot = (hash >>> 0) % range;
  while (uses[slot] > least) slot = (slot + 1) % range;
  uses[slot] += 1;
  if (slots.size < 10_000) slots.set(name, slot);
  return slot;
}

/** @param {string} name of a function */
export function functionColour(name) {
  return colour(`function-${functionSlot(name)}`);
}
