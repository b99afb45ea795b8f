/**
 * Keys, and the help that lists them.
 *
 * Rules: keys with Ctrl, Alt or Meta belong to the browser; while the reader types in a field only Escape is ours; the
 * page in view is asked first.
 */

import { element } from "./dom.js";
import { TABS } from "./pages.js";
import { address, go } from "./route.js";
import { nextTheme } from "./theme.js";

/** @type {[string[], string][]} */
const KEYS = [
  [["1", "…", "8"], "go to a page"],
  [["/"], "search or filter; Escape empties and leaves the field"],
  [["space"], "pause, and go on"],
  [["t"], "theme: as the system, light, dark"],
  [["?"], "this help"],
  [["←", "→"], "task stream: back and forth in time; lists: page before, page after"],
  [["+", "−"], "task stream: zoom in, zoom out"],
  [["↑", "↓"], "task stream: other slots"],
  [["Home"], "task stream: the oldest that is known"],
  [["End"], "task stream: follow live"],
];

/**
 * @param {{page: () => import("./main.js").Page | null, pause: () => void}} program
 * @returns {{help: () => void}}
 */
export function startKeyboard(program) {
  const dialog = makeHelp();
  const help = () => (dialog.open ? dialog.close() : dialog.showModal());

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.matches?.("input, textarea, select")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) {
      if (event.key === "?" && dialog.open) dialog.close();
      return;
    }
    const page = program.page();
    if (page?.key?.(event) || handle(event)) event.preventDefault();
  });

  /** @param {KeyboardEvent} event */
  function handle(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.key >= "1" && event.key <= String(TABS.length) && event.key.length === 1) {
      go(address(TABS[Number(event.key) - 1]));
      return true;
    }
    if (event.key === " ") {
      // Space on a button or link is for that.
      if (target.matches?.("button, a, summary")) return false;
      program.pause();
      return true;
    }
    if (event.key === "/") {
      program.page()?.search?.();
      return true;
    }
    if (event.key === "?") {
      help();
      return true;
    }
    if (event.key === "t") {
      nextTheme();
      return true;
    }
    return false;
  }

  return { help };
}

/** @returns {HTMLDialogElement} */
function makeHelp() {
  const rows = KEYS.map(([keys, meaning]) => element("tr", {}, element("th", { scope: "row" }, ...keys.map((key) => (key === "…" ? " … " : element("kbd", { text: key })))), element("td", { text: meaning })));
  const close = element("button", { type: "button", text: "Close" });
  const dialog = element("dialog", { id: "keys", "aria-labelledby": "keys-title" }, element("h2", { id: "keys-title", text: "Keys" }), element("table", {}, element("tbody", {}, ...rows)), element("footer", {}, close));
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (/** @type {MouseEvent} */ event) => {
    if (event.target === dialog) dialog.close();
  });
  document.body.append(dialog);
  return dialog;
}
