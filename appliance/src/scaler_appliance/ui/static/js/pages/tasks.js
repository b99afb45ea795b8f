/**
 * Tasks: those that ended, newest first, live; by state, function, worker, client and any text of them.
 *
 * Rules: one row may stand for several tasks that a processor ran one after the other; it says for how many. The page says
 * how many runs the server keeps, and how many it could not.
 */

import { element, fill, setAttribute, setText } from "../dom.js";
import { bytes, clock, count, duration, name } from "../format.js";
import { openList } from "../list.js";
import { address } from "../route.js";
import { drawBadges, drawFunction, drawLink } from "../table.js";
import { noTasks } from "../teaching.js";

/** @typedef {import("../main.js").Context} Context */

/** @type {Map<string, [string, string]>} state to word and kind of badge */
const STATES = new Map([
  ["running", ["▶ running", "info"]],
  ["success", ["✓ success", "good"]],
  ["failed", ["✕ failed", "bad"]],
  ["canceled", ["⊘ cancelled", "plain"]],
  ["cancelled", ["⊘ cancelled", "plain"]],
  ["lost", ["✕ lost", "bad"]],
]);

/** @param {any} row @returns {[string, string]} */
export const stateBadge = (row) => STATES.get(row.state) || [name(row.state, "–"), "plain"];

const FILTERS = ["state", "function", "worker", "client", "graph"];

/** @param {Context} context */
export function openTasks(context) {
  const state = element("select", { "aria-label": "State" }, ...[["", "all states"], ["success", "success"], ["failures", "failed or lost"], ["failed", "failed"], ["canceled", "cancelled"], ["lost", "lost"], ["running", "running"]].map(([value, text]) => element("option", { value, text })));
  state.addEventListener("change", () => page.change({ state: state.value, offset: null }, true));
  const chips = element("span", { class: "chips" });

  const page = openList(context, {
    page: "tasks",
    caption: "Tasks",
    noun: "runs",
    sort: "",
    searchName: "search",
    placeholder: "Search function, error, id, worker",
    filters: FILTERS,
    controls: [state, chips],
    key: (row) => `${row.client}/${row.task}/${row.attempt ?? 0}/${row.end ?? ""}`,
    columns: [
      { key: "task", label: "task", kind: "name plain", draw: (cell, row) => drawLink(cell, address("task", [row.client, row.task]), String(row.task), "Details") },
      { key: "function", label: "function", kind: "name", draw: (cell, row) => drawFunction(cell, name(row.function)) },
      { key: "state", label: "state", kind: "name", draw: (cell, row) => drawBadges(cell, [stateBadge(row)]) },
      { key: "count", label: "tasks", kind: "number", title: "How many tasks this run stands for", text: (row) => (row.count > 1 ? `× ${count(row.count)}` : "1") },
      { key: "end", label: "ended", kind: "number plain", text: (row) => (row.end ? clock(row.end, 3) : "–") },
      { key: "duration_us", label: "duration", kind: "number", title: "Of all tasks of the run together; – where none ran, or it is not known", text: (row) => duration(row.duration_us) },
      { key: "peak_bytes", label: "peak memory", kind: "number", title: "Measured for tasks that are profiled", text: (row) => (row.peak_bytes ? bytes(row.peak_bytes) : "–") },
      { key: "worker", label: "worker", kind: "small", text: (row) => name(row.worker_name, `worker ${row.worker}`) },
      { key: "attempt", label: "attempt", kind: "number", text: (row) => count(row.attempt) },
      { key: "error", label: "error", kind: "error", draw: drawError },
    ],
    empty: noTasks,
    missing,
    onBody: showChips,
    remark: (body) => (body.omitted ? ` · ${count(body.omitted)} were not told, under load` : ""),
  });

  /** @param {any} body */
  function showChips(body) {
    const query = page.query();
    const given = FILTERS.slice(1).filter((filter) => query.get(filter));
    const wanted = given.map((filter) => `${filter}=${query.get(filter)}`).join("&");
    const names = given.map((filter) => {
      const row = (body.rows || [])[0] || {};
      if (filter === "function") return `function ${name(row.function, query.get(filter) || "")}`;
      if (filter === "worker") return `worker ${name(row.worker_name, query.get(filter) || "")}`;
      if (filter === "graph") return `graph ${query.get(filter)}`;
      return `client ${name(row.client_name, query.get(filter) || "")}`;
    });
    const key = `${wanted} ${names.join()}`;
    if (chips.dataset.key === key) return;
    chips.dataset.key = key;
    fill(chips, ...given.map((filter, index) => element("button", { type: "button", class: "chip", title: "Remove this filter", on: { click: () => page.change({ [filter]: null, offset: null }, true) } }, names[index], element("span", { "aria-hidden": "true", text: " ×" }))));
  }

  const routed = page.routed;
  page.routed = (where) => {
    routed(where);
    state.value = where.query.get("state") || "";
  };
  return page;
}

/** @param {URLSearchParams} query @param {any} head */
function missing(query, head) {
  const failed = (head?.tasks?.failed || 0) + (head?.tasks?.lost || 0);
  if (!["failures", "failed", "lost"].includes(query.get("state") || "") || !failed) return "";
  return `${count(failed)} tasks have failed in all. Listed are those that ended while this scaler_ui was watching, and the scheduler could tell it of, and that it still keeps.`;
}

/** @param {HTMLElement} cell @param {any} row */
function drawError(cell, row) {
  const text = row.error ? name(row.error) : "";
  setText(cell, text);
  setAttribute(cell, "title", text || null);
}
