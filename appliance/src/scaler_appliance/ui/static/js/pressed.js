/**
 * What a reader presses stays where it is until it is let go.
 *
 *     figures ──▶ unlessPressed(place, draw) ──▶ draw now
 *                         └─ pressed within place: the newest draw, once it has been let go
 *
 * Rules: a browser makes a click of a press and a release on the same element. If a live page moves or replaces that element
 * in between, the click is lost; so is a selection that is being dragged. Whatever moves or replaces elements that can be
 * clicked is drawn by `unlessPressed`.
 */

// After a touch, the click comes somewhat later than the release.
const RELEASE_MILLISECONDS = 100;

/** @typedef {{node: Node}} Press */

/** @type {Map<number | string, Press>} what is pressed, by pointer or key */
const pressed = new Map();
/** @type {Map<Node, () => void>} what waits, by place */
const waiting = new Map();

/**
 * @param {Node} place
 * @param {() => void} draw changes what is within the place; takes the place of one that waits
 */
export function unlessPressed(place, draw) {
  if ([...pressed.values()].some((press) => place.contains(press.node))) {
    waiting.set(place, draw);
    return;
  }
  waiting.delete(place);
  draw();
}

/** @param {number | string} by @param {Event} event */
function press(by, event) {
  pressed.set(by, { node: /** @type {Node} */ (event.target) });
}

/** @param {number | string} by */
function release(by) {
  const released = pressed.get(by);
  // A double click presses again before the first release is forgotten.
  if (released) setTimeout(() => pressed.get(by) === released && forget(by), RELEASE_MILLISECONDS);
}

/** @param {number | string} by */
function forget(by) {
  pressed.delete(by);
  for (const [place, draw] of [...waiting]) unlessPressed(place, draw);
}

const options = { capture: true };
document.addEventListener("pointerdown", (event) => event.button === 0 && press(event.pointerId, event), options);
document.addEventListener("keydown", (event) => event.code === "Space" && press(event.code, event), options);
for (const name of /** @type {const} */ (["pointerup", "pointercancel"])) document.addEventListener(name, (event) => release(event.pointerId), options);
document.addEventListener("keyup", (event) => release(event.code), options);
// No event comes of a release elsewhere.
window.addEventListener("blur", () => [...pressed.keys()].forEach(forget));
