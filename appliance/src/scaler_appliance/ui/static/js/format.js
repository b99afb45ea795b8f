/**
 * Figures as people read them.
 *
 * Rules: pure functions of their arguments, no DOM; what is missing is an en dash and never "NaN" or "undefined";
 * digits are grouped by thin spaces; units are part of the text.
 */

export const NOTHING = "–";
const THIN_SPACE = "\u2009";

/** @param {unknown} value @returns {value is number} */
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** @param {unknown} value a count, shown in full: 1 234 567 */
export function count(value) {
  if (!isNumber(value)) return NOTHING;
  return String(Math.round(value)).replace(/\B(?=(\d{3})+(?!\d))/g, THIN_SPACE);
}

/** @param {unknown} value a count, shown short: 1.2 M */
export function short(value) {
  if (!isNumber(value)) return NOTHING;
  const size = Math.abs(value);
  if (size < 10 && !Number.isInteger(value)) return value.toFixed(1);
  if (size < 10_000) return count(value);
  for (const [unit, name] of /** @type {[number, string][]} */ ([[1e9, "G"], [1e6, "M"], [1e3, "k"]])) {
    if (size >= unit) return `${three(value / unit)}${THIN_SPACE}${name}`;
  }
  return count(value);
}

/** @param {number} value three digits that tell */
function three(value) {
  const size = Math.abs(value);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** @param {unknown} value per second */
export function rate(value) {
  if (!isNumber(value)) return NOTHING;
  return value > 0 && value < 10 ? value.toFixed(1) : short(Math.round(value));
}

/** @param {unknown} value of a hundred */
export function percent(value) {
  if (!isNumber(value)) return NOTHING;
  return `${value >= 9.95 || value === 0 ? Math.round(value) : value.toFixed(1)}${THIN_SPACE}%`;
}

/** @param {unknown} value in bytes */
export function bytes(value) {
  if (!isNumber(value)) return NOTHING;
  if (Math.abs(value) < 1024) return `${Math.round(value)}${THIN_SPACE}B`;
  let size = value;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    size /= 1024;
    if (Math.abs(size) < 999.5 || unit === "TiB") return `${three(size)}${THIN_SPACE}${unit}`;
  }
  return NOTHING;
}

/** @param {unknown} value in microseconds */
export function duration(value) {
  if (!isNumber(value)) return NOTHING;
  if (value < 1) return value === 0 ? `0${THIN_SPACE}µs` : `<${THIN_SPACE}1${THIN_SPACE}µs`;
  if (value < 1000) return `${Math.round(value)}${THIN_SPACE}µs`;
  if (value < 999_500) return `${three(value / 1e3)}${THIN_SPACE}ms`;
  if (value < 60e6) return `${three(value / 1e6)}${THIN_SPACE}s`;
  return span(value / 1e6);
}

/** @param {unknown} value in seconds: 2 h 05 min */
export function span(value) {
  if (!isNumber(value)) return NOTHING;
  const seconds = Math.max(0, Math.floor(value));
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  if (seconds < 100) return `${seconds}${THIN_SPACE}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}${THIN_SPACE}min ${two(seconds % 60)}${THIN_SPACE}s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}${THIN_SPACE}h ${two(Math.floor(seconds / 60) % 60)}${THIN_SPACE}min`;
  return `${Math.floor(seconds / 86_400)}${THIN_SPACE}d ${Math.floor(seconds / 3600) % 24}${THIN_SPACE}h`;
}

/**
 * @param {unknown} value unix seconds
 * @param {number} [digits] of a second
 * @returns {string} the time of day here
 */
export function clock(value, digits = 0) {
  if (!isNumber(value) || value <= 0) return NOTHING;
  const date = new Date(value * 1000);
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return digits ? `${time}.${String(date.getMilliseconds()).padStart(3, "0").slice(0, digits)}` : time;
}

/** @param {unknown} value unix seconds */
export function dateAndClock(value) {
  if (!isNumber(value) || value <= 0) return NOTHING;
  const date = new Date(value * 1000);
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(value, 3)}`;
}

/**
 * A name for a list: one line, not endless, and something even where it is empty.
 *
 * @param {unknown} value
 * @param {string} [without] what to say where there is none
 */
export function name(value, without = "(no name)") {
  const text = typeof value === "string" ? value : value === null || value === undefined ? "" : String(value);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is replaced
  const line = text.replace(/[\u0000-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g, "\u00b7");
  if (!line) return without;
  return line.length > 200 ? `${line.slice(0, 199)}…` : line;
}
