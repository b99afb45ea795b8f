/**
 * One task, at an address of its own: `#/task/CLIENT/TASK`.
 *
 * Rules: it is asked for once, not followed; a task that the server does not keep any more is said to be so. Errors and
 * tracebacks are users' text, shown as they are, as text.
 */

import { copyable, element, fill } from "../dom.js";
import { bytes, count, dateAndClock, duration, name } from "../format.js";
import { address, AddressError } from "../route.js";
import { ask } from "../server.js";
import { drawBadges, drawFunction } from "../table.js";
import { stateBadge } from "./tasks.js";

/** @typedef {import("../main.js").Context} Context */

/** @param {string} text */
const isId = (text) => /^\d{1,20}$/.test(text);

/**
 * @param {Context} _context
 * @param {import("../route.js").Route} where
 * @returns {import("../main.js").Page}
 */
export function openTask(_context, where) {
  const [client = "", task = ""] = where.path;
  if (where.path.length !== 2 || !isId(client) || !isId(task)) {
    throw new AddressError(`There is no task “${name(where.path.join("/"))}”: the address of one is #/task/CLIENT/TASK, two numbers.`);
  }
  const shown = element("div", { class: "task-body" }, element("p", { class: "muted", text: "Asking for the task …" }));
  const again = element("button", { type: "button", class: "quiet", text: "Ask again", on: { click: () => load() } });
  let isClosed = false;

  async function load() {
    try {
      const answer = await ask(`api/tasks/${encodeURIComponent(client)}/${encodeURIComponent(task)}`);
      if (isClosed) return;
      const body = await answer.json().catch(() => ({}));
      if (isClosed) return;
      if (answer.ok) show(shown, body);
      else if (answer.status === 404) fill(shown, element("p", { class: "empty-title", text: "This task is not known" }), element("p", { text: "It may still wait or run: tasks are listed once they have ended. Or it ended so long ago, or in such a crowd, that it is not kept." }));
      else fill(shown, element("p", { class: "empty-title", text: "This task could not be asked for" }), element("p", { text: name(body.error, `The server answered ${answer.status}.`) }));
    } catch {
      if (!isClosed) fill(shown, element("p", { class: "empty-title", text: "scaler_ui does not answer" }), element("p", { text: "Ask again once it does." }));
    }
  }

  load();
  return {
    element: element("div", { class: "task-page" }, element("div", { class: "tools" }, element("a", { href: address("tasks"), text: "‹ Tasks" }), element("h2", { text: `Task ${task}` }), element("span", { class: "spread" }), again), shown),
    names: [],
    feed: "head",
    parameters: () => ({}),
    routed() {},
    receive() {},
    reset: () => load(),
    close() {
      isClosed = true;
    },
  };
}

/**
 * @param {HTMLElement} place
 * @param {any} row
 */
function show(place, row) {
  const facts = element("dl", { class: "task-facts" });
  const fact = (/** @type {string} */ label, /** @type {Node | string | null} */ value) => {
    if (value !== null && value !== "") facts.append(element("div", {}, element("dt", { text: label }), element("dd", {}, value)));
  };
  const state = element("span");
  drawBadges(state, [stateBadge(row)]);
  const named = element("span", { class: "named" });
  drawFunction(named, name(row.function), row.function_number ? address("tasks", [], { function: row.function_number }) : null);
  fact("state", state);
  fact("function", named);
  fact("duration", duration(row.duration_us));
  fact("peak memory", row.peak_bytes ? bytes(row.peak_bytes) : "not measured");
  fact("began", dateAndClock(row.start));
  fact("ended", row.end ? dateAndClock(row.end) : "");
  fact("attempt", count(row.attempt));
  fact("client", element("a", { href: address("tasks", [], { client: row.client }), text: name(row.client_name, `client ${row.client}`) }));
  fact("worker", element("a", { href: address("tasks", [], { worker: row.worker }), text: name(row.worker_name, `worker ${row.worker}`) }));
  fact("processor", row.processor ? `process ${row.processor}` : "");
  fact("host", name(row.host, ""));
  if (row.count > 1) fact("told together", `${count(row.count)} tasks, one after the other; figures are of all of them`);
  fill(place, element("section", { class: "panel" }, facts));
  if (row.error || row.traceback) {
    const title = row.error || `${name(row.error_type, "error")}: ${row.error_message || ""}`;
    place.append(
      element(
        "section",
        { class: "panel failure", "aria-label": "Error" },
        element("h3", { text: title }),
        row.traceback ? copyable(String(row.traceback)) : element("p", { class: "muted", text: "Its traceback was not told." }),
      ),
    );
  }
}
