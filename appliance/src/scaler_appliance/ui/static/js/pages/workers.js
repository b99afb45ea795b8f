/**
 * Workers: one row for each, opening to its processors; draining and stopping where that is allowed.
 *
 * Rules: an action names its worker and asks before it does anything; what the server answers is told in words. Buttons
 * that cannot work are not shown.
 */

import { element, fill, setAttribute, setText } from "../dom.js";
import { bytes, count, duration, name, percent, rate } from "../format.js";
import { openList } from "../list.js";
import { address } from "../route.js";
import { act } from "../server.js";
import { DataTable, drawBadges, drawBar, drawFunction, drawLink } from "../table.js";
import { noWorkers } from "../teaching.js";
import { drawFailures } from "./lists.js";

/** @typedef {import("../main.js").Context} Context */

/** @type {Record<string, {verb: string, explain: string}>} */
const ACTIONS = {
  drain: { verb: "Drain", explain: "It gets no more tasks, finishes those that it has, and ends." },
  stop: { verb: "Stop", explain: "It ends now. Its tasks, those that run too, run again on other workers." },
};

/** @type {import("../table.js").Column[]} */
const PROCESSOR_COLUMNS = [
  { key: "process_id", label: "process", kind: "number plain" },
  {
    key: "state",
    label: "state",
    kind: "name",
    draw: (cell, row) => drawBadges(cell, [!row.is_initialized ? ["starting", "info"] : row.is_suspended ? ["suspended", "warn"] : row.has_task ? ["busy", "good"] : ["idle", "plain"]]),
  },
  { key: "cpu", label: "cpu", kind: "number", draw: (cell, row) => drawBar(cell, row.cpu / 100, percent(row.cpu)) },
  { key: "rss", label: "memory", kind: "number", text: (row) => bytes(row.rss) },
  { key: "queued", label: "queued", kind: "number", text: (row) => count(row.queued) },
  {
    key: "function",
    label: "runs",
    kind: "name",
    draw: (cell, row) => {
      if (row.has_task && row.function) drawFunction(cell, name(row.function), row.task ? address("task", [row.client, row.task]) : null);
      else if (cell.childNodes.length !== 1 || cell.textContent !== "–") fill(cell, "–");
    },
  },
  { key: "task_us", label: "for", kind: "number", text: (row) => (!row.has_task ? "–" : row.task_us ? duration(row.task_us) : "just begun") },
];

/** @param {Context} context */
export function openWorkers(context) {
  /** @type {WeakMap<Element, DataTable>} */
  const inner = new WeakMap();
  const page = openList(context, {
    page: "workers",
    caption: "Workers",
    noun: "workers",
    sort: "-processors_cpu",
    placeholder: "Filter by name, host or capability",
    key: (row) => row.session,
    label: (row) => `the processors of ${name(row.name)}`,
    columns: [
      { key: "name", label: "worker", kind: "name", draw: (cell, row) => drawLink(cell, address("tasks", [], { worker: row.session }), name(row.name), `${name(row.name)}: its tasks`) },
      {
        key: "state",
        label: "state",
        kind: "name",
        sorts: false,
        draw: (cell, row) => {
          /** @type {[string, string][]} */
          const badges = [];
          if (row.is_leaving) badges.push([row.drain_cause ? `drains: ${row.drain_cause}` : "leaving", "warn"]);
          if (row.is_congested) badges.push(["congested", "warn"]);
          if (!badges.length) badges.push(row.busy > 0 ? ["busy", "good"] : row.tasks > 0 ? ["suspended", "warn"] : ["idle", "plain"]);
          drawBadges(cell, badges);
        },
      },
      { key: "busy", label: "slots", kind: "number", title: "Slots that have a task, of all", draw: (cell, row) => drawBar(cell, row.slots ? row.busy / row.slots : 0, `${count(row.busy)} / ${count(row.slots)}`) },
      { key: "processors_cpu", label: "cpu", kind: "number", title: "Of all its processors; 100 % is one core", draw: (cell, row) => drawBar(cell, row.processors_cpu / 100 / Math.max(1, row.slots), percent(row.processors_cpu)) },
      { key: "processors_rss", label: "memory", kind: "number", title: "Resident memory of its processors", draw: (cell, row) => drawBar(cell, row.processors_rss / Math.max(1, row.processors_rss + row.free), bytes(row.processors_rss)) },
      { key: "free", label: "free", kind: "number", title: "Memory that its host has left", text: (row) => bytes(row.free) },
      { key: "queued", label: "queued", kind: "number", title: "Tasks at the worker that have no slot yet", text: (row) => count(row.queued) },
      { key: "finished_per_second", label: "per s", kind: "number", title: "Tasks that it finishes, a second", text: (row) => rate(row.finished_per_second) },
      { key: "finished", label: "finished", kind: "number", text: (row) => count(row.finished) },
      { key: "failed", label: "failed", kind: "number", draw: (cell, row) => drawFailures(cell, row.failed, address("tasks", [], { worker: row.session, state: "failures" })) },
      { key: "latency_us", label: "lag", kind: "number", title: "Time that a message takes to it and back", text: (row) => duration(row.latency_us) },
      { key: "cpu", label: "agent cpu", kind: "number", title: "Of the agent, which splits work among its processors", text: (row) => percent(row.cpu) },
      { key: "rss", label: "agent mem", kind: "number", text: (row) => bytes(row.rss) },
      { key: "host", label: "host", kind: "name", text: (row) => name(row.host, "–") },
    ],
    empty: noWorkers,
    detail: (row) => makeDetail(context, row, inner),
    redraw: (row, shown, body) => redraw(context, row, shown, body, inner),
  });
  return page;
}

/**
 * @param {Context} context
 * @param {any} row
 * @param {WeakMap<Element, DataTable>} inner
 */
function makeDetail(context, row, inner) {
  const table = new DataTable({ caption: `Processors of ${name(row.name)}`, columns: PROCESSOR_COLUMNS, key: (processor) => processor.process_id });
  const facts = element("p", { class: "facts" });
  const buttons = element("span", { class: "actions", hidden: true });
  for (const action of Object.keys(ACTIONS)) {
    const { verb, explain } = ACTIONS[action];
    buttons.append(element("button", { type: "button", class: action === "stop" ? "danger" : "", title: explain, text: `${verb} this worker`, on: { click: () => confirmAction(context, action, row) } }));
  }
  const shown = element("div", { class: "worker-detail" }, element("div", { class: "facts-line" }, facts, buttons), table.element);
  inner.set(shown, table);
  return shown;
}

/**
 * @param {Context} context
 * @param {any} row
 * @param {Element} cell
 * @param {any} body
 * @param {WeakMap<Element, DataTable>} inner
 */
function redraw(context, row, cell, body, inner) {
  const shown = cell.firstElementChild;
  if (!shown) return;
  const head = context.head();
  const facts = [`session ${row.session}`, row.process_id ? `process ${row.process_id}` : "", name(row.implementation, ""), row.capabilities ? `offers ${name(row.capabilities)}` : "", `${count(row.sent)} tasks sent to it`];
  setText(/** @type {Element} */ (shown.querySelector(".facts")), facts.filter(Boolean).join("  ·  "));
  setAttribute(/** @type {Element} */ (shown.querySelector(".actions")), "hidden", !head?.actions_allowed);
  // A protected scheduler lets workers drain, and refuses to stop them.
  setAttribute(/** @type {Element} */ (shown.querySelector("button.danger")), "hidden", Boolean(head?.is_protected));
  inner.get(shown)?.show(body.expanded?.[row.session] || []);
}

/**
 * @param {Context} context
 * @param {string} action
 * @param {any} row
 */
function confirmAction(context, action, row) {
  const { verb, explain } = ACTIONS[action];
  const titled = `${verb} ${name(row.name)}?`;
  const yes = element("button", { type: "button", class: action === "stop" ? "danger" : "primary", text: verb });
  const no = element("button", { type: "button", text: "Keep it" });
  const dialog = element("dialog", { class: "confirm", "aria-labelledby": "confirm-title" }, element("h2", { id: "confirm-title", text: titled }), element("p", { text: explain }), element("footer", {}, no, yes));
  dialog.addEventListener("close", () => dialog.remove());
  no.addEventListener("click", () => dialog.close());
  yes.addEventListener("click", async () => {
    dialog.close();
    context.notices.message(await post(`api/workers/${encodeURIComponent(row.session)}/${action}`, verb, row), "action");
  });
  document.body.append(dialog);
  dialog.showModal();
  no.focus();
}

/**
 * @param {string} address
 * @param {string} verb
 * @param {any} row
 * @returns {Promise<string>} what came of it, in words
 */
async function post(address, verb, row) {
  try {
    const answer = await act(address);
    const told = await answer.json().catch(() => ({}));
    if (answer.ok) return `${verb} ${name(row.name)}: ${name(told.message, "the scheduler has been told.")}`;
    return `${verb} ${name(row.name)} did not work: ${told.error || `the server answered ${answer.status}`}`;
  } catch {
    return `${verb} ${name(row.name)} did not work: scaler_ui does not answer.`;
  }
}
