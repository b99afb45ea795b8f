/**
 * What stands beside the picture of the task stream: the legend of functions, and the words on one bar.
 *
 * Rules: names are users' text and set as text; a bar that stands for several tasks says how many, and of which functions.
 */

import { element, fill } from "../dom.js";
import { clock, count, duration } from "../format.js";
import { unlessPressed } from "../pressed.js";
import { address } from "../route.js";
import { functionStyle } from "../theme.js";
import { isFailure, statusWord } from "./runs.js";

const LEGEND_NAMES = 12;
const PARTS_SHOWN = 6;

/**
 * @param {HTMLElement} place
 * @param {Map<string, number>} byName seconds by function
 * @param {{highlighted: string | null, failures: number, highlight: (name: string | null) => void}} state
 */
export function drawLegend(place, byName, { highlighted, failures, highlight }) {
  const all = [...byName].sort((one, other) => other[1] - one[1]);
  const total = all.reduce((sum, [, seconds]) => sum + seconds, 0) || 1;
  const top = all.slice(0, LEGEND_NAMES);
  const share = (/** @type {number} */ seconds) => `${Math.round((100 * seconds) / total)}`;
  const wanted = top.map(([text, seconds]) => `${text}:${share(seconds)}`).join() + highlighted + (failures > 0);
  if (place.dataset.key === wanted) return;
  place.dataset.key = wanted;
  const items = top.map(([text, seconds]) => {
    const isPressed = highlighted === text;
    const shown = element(
      "button",
      { type: "button", class: "quiet", "aria-pressed": isPressed ? "true" : "false", title: "Show this function only", on: { click: () => highlight(isPressed ? null : text) } },
      element("i", { class: "swatch", vars: { own: functionStyle(text) } }),
      element("span", { class: "legend-name", text }),
      element("small", { text: `${share(seconds)} %` }),
    );
    return element("li", {}, shown);
  });
  if (all.length > top.length) items.push(element("li", { class: "muted", text: `and ${all.length - top.length} more` }));
  if (failures > 0) items.push(element("li", {}, element("a", { href: address("tasks", [], { state: "failures" }) }, element("i", { class: "swatch hatched" }), "failed")));
  unlessPressed(place, () => {
    // The focused button is created again: restore the focus.
    const focused = [...place.children].findIndex((item) => item.contains(document.activeElement));
    fill(place, ...items);
    if (focused >= 0) /** @type {HTMLElement | null} */ (place.children[focused]?.firstElementChild)?.focus();
  });
}

/**
 * @param {HTMLElement} tip
 * @param {import("./runs.js").Run} run
 * @param {import("./painter.js").Lane | undefined} lane
 * @param {(number: number) => string} named names of functions
 * @param {number} now
 */
export function fillTip(tip, run, lane, named, now) {
  const text = named(run.function);
  const isFailed = run.status !== null && isFailure(run.status);
  const state = run.status === null ? "running" : statusWord(run.status);
  const took = run.end === null ? `for ${duration((now - run.start) * 1e6)} so far` : duration((run.end - run.start) * 1e6);
  const parts = run.parts || [];
  const of = run.count > 1 ? [`${state} · ${count(run.count)} tasks, busy for ${took} together`] : [`${state} · ${took}`];
  for (const [number, tasks, microseconds] of parts.slice(0, PARTS_SHOWN)) of.push(`${count(tasks)} × ${named(number)}: ${duration(microseconds)}`);
  if (parts.length > PARTS_SHOWN) of.push(`and ${parts.length - PARTS_SHOWN} more functions`);
  const where = lane?.processor && run.end === null ? `${lane.title} · process ${lane.processor}` : (lane?.title ?? "");
  fill(
    tip,
    element("b", {}, element("i", { class: `swatch ${isFailed ? "hatched" : ""}`, vars: { own: functionStyle(text) } }), parts.length > 1 ? `${text} and others` : text),
    ...of.map((line) => element("span", { text: line })),
    element("span", { text: `${run.count > 1 ? "with " : ""}task ${run.task} of client ${run.client}` }),
    element("span", { class: "muted", text: `${where} · ${clock(run.start, 3)}` }),
  );
}
