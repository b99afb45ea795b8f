/**
 * The plain lists: functions, clients, objects, graphs, actors.
 *
 * Rule: each is its columns and nothing more; what they have in common is in list.js.
 */

import { element, fill, setAttribute, setVariable } from "../dom.js";
import { bytes, clock, count, duration, name, rate, short } from "../format.js";
import { openList } from "../list.js";
import { address } from "../route.js";
import { drawBadges, drawBar, drawFunction, drawLink } from "../table.js";
import { noTasks, nothing } from "../teaching.js";

/** @typedef {import("../main.js").Context} Context */

/**
 * A count that is marked when it is not zero, and links to what it counts.
 *
 * @param {HTMLElement} cell
 * @param {number} value
 * @param {string | null} link
 */
export function drawFailures(cell, value, link = null) {
  setAttribute(cell, "data-alarm", value > 0);
  if (link && value > 0) drawLink(cell, link, `✕ ${short(value)}`, `${count(value)} failed: show them`);
  else fillText(cell, value > 0 ? `✕ ${short(value)}` : "0");
}

/** @param {HTMLElement} cell @param {string} text */
function fillText(cell, text) {
  if (cell.childElementCount || cell.textContent !== text) fill(cell, text);
}

/** @param {any} row of a thing that a client owns */
const clientOf = (row) => row.client_name || (row.client ? `client ${row.client}` : "–");

/** @param {Context} context */
export function openFunctions(context) {
  let mostBusy = 0;
  const page = openList(context, {
    page: "functions",
    caption: "Functions",
    noun: "functions",
    sort: "-busy_s",
    placeholder: "Filter by name",
    key: (row) => row.function,
    columns: [
      { key: "name", label: "function", kind: "name", draw: (cell, row) => drawFunction(cell, name(row.name), address("tasks", [], { function: row.function })) },
      { key: "finished", label: "finished", kind: "number", title: "Tasks with an outcome", text: (row) => count(row.finished) },
      { key: "failed", label: "failed", kind: "number", draw: (cell, row) => drawFailures(cell, row.failed, address("tasks", [], { function: row.function, state: "failures" })) },
      { key: "running", label: "running", kind: "number", text: (row) => count(row.running) },
      { key: "waiting", label: "waiting", kind: "number", text: (row) => count(row.waiting) },
      { key: "per_second", label: "per s", kind: "number", text: (row) => rate(row.per_second) },
      { key: "mean_us", label: "mean", kind: "number", text: (row) => duration(row.mean_us) },
      { key: "p50_us", label: "p50", kind: "number", title: "Half of its tasks took no longer", text: (row) => duration(row.p50_us) },
      { key: "p95_us", label: "p95", kind: "number", title: "19 of 20 of its tasks took no longer", text: (row) => duration(row.p95_us) },
      { key: "busy_s", label: "busy", kind: "number wide", title: "Time that processors spent in it, all together", draw: (cell, row) => drawBar(cell, row.busy_s / (mostBusy || 1), duration(row.busy_s * 1e6)) },
      { key: "client", label: "client", kind: "small", text: (row) => name(clientOf(row)) },
    ],
    empty: noTasks,
    onBody: (body) => {
      mostBusy = Math.max(0, ...body.rows.map((/** @type {any} */ row) => Number(row.busy_s) || 0));
    },
  });
  return page;
}

/** @param {Context} context */
export function openClients(context) {
  return openList(context, {
    page: "clients",
    caption: "Clients",
    noun: "clients",
    sort: "-tasks",
    placeholder: "Filter by name or host",
    key: (row) => row.session,
    columns: [
      { key: "name", label: "client", kind: "name", draw: (cell, row) => drawLink(cell, address("tasks", [], { client: row.session }), name(row.name), "Its tasks") },
      { key: "host", label: "host", kind: "name", text: (row) => name(row.host, "–") },
      { key: "process_id", label: "process", kind: "number plain", text: (row) => String(row.process_id ?? "–") },
      { key: "tasks", label: "in flight", kind: "number", title: "Tasks without an outcome", text: (row) => count(row.tasks) },
      { key: "finished", label: "finished", kind: "number", text: (row) => count(row.finished) },
      { key: "failed", label: "failed", kind: "number", draw: (cell, row) => drawFailures(cell, row.failed, address("tasks", [], { client: row.session, state: "failures" })) },
      { key: "canceled", label: "cancelled", kind: "number", text: (row) => count(row.canceled) },
      { key: "bytes_in_flight", label: "bytes in flight", kind: "number", text: (row) => bytes(row.bytes_in_flight) },
      { key: "objects", label: "objects", kind: "number", text: (row) => count(row.objects) },
      { key: "object_bytes", label: "their bytes", kind: "number", text: (row) => bytes(row.object_bytes) },
      { key: "implementation", label: "runs on", kind: "small", text: (row) => name(row.implementation, "–") },
    ],
    empty: noTasks,
  });
}

/** @param {Context} context */
export function openObjects(context) {
  let most = 0;
  return openList(context, {
    page: "objects",
    caption: "Large objects",
    noun: "objects",
    sort: "-bytes",
    placeholder: "Filter by name, kind or owner",
    key: (row) => row.object,
    columns: [
      { key: "name", label: "object", kind: "name", text: (row) => name(row.name, `object ${row.object}`) },
      { key: "kind", label: "kind", kind: "name", text: (row) => name(row.kind, "–") },
      { key: "bytes", label: "size", kind: "number wide", draw: (cell, row) => drawBar(cell, row.bytes / (most || 1), bytes(row.bytes)) },
      { key: "owner", label: "owner", kind: "name", text: (row) => name(row.owner_name, row.owner ? `client ${row.owner}` : "–") },
      {
        key: "is_on_disk",
        label: "state",
        kind: "name",
        sorts: false,
        draw: (cell, row) => {
          /** @type {[string, string][]} */
          const badges = [row.is_on_disk ? ["on disk", "warn"] : ["in memory", "plain"]];
          if (row.is_arriving) badges.push(["arriving", "info"]);
          if (row.is_released) badges.push(["released", "plain"]);
          drawBadges(cell, badges);
        },
      },
    ],
    empty: () =>
      nothing(
        "No large objects",
        "Objects of 64 KiB and more are listed here: arguments and results that travel apart from their tasks, and what a program sends once for many tasks:",
        'reference = client.send_object(data, name="data")\nfuture = client.submit(len, reference)',
      ),
    onBody: (body) => {
      most = Math.max(0, ...body.rows.map((/** @type {any} */ row) => Number(row.bytes) || 0));
    },
  });
}

/**
 * A part of a bar that is made of parts.
 *
 * @param {HTMLElement} part
 * @param {number} value its share; none at all when 0
 */
export function drawPart(part, value) {
  setVariable(part, "part", String(Math.max(0, value)));
  setAttribute(part, "hidden", !(value > 0));
}

/** @type {[string, string][]} */
const NODE_STATES = [
  ["succeeded", "succeeded"],
  ["failed", "failed"],
  ["canceled", "cancelled"],
  ["running", "running"],
  ["queued", "queued"],
  ["waiting", "wait for others"],
];

/** @param {HTMLElement} cell @param {any} row */
function drawNodes(cell, row) {
  let bar = /** @type {HTMLElement | null} */ (cell.querySelector(".nodes"));
  if (!bar) {
    bar = /** @type {HTMLElement} */ (element("span", { class: "nodes", role: "img" }, ...NODE_STATES.map(([key]) => element("i", { class: key }))));
    fill(cell, bar);
  }
  const words = NODE_STATES.filter(([key]) => row[key] > 0).map(([key, label]) => `${count(row[key])} ${label}`);
  setAttribute(bar, "aria-label", words.join(", "));
  setAttribute(bar, "title", words.join(", "));
  const parts = /** @type {HTMLCollectionOf<HTMLElement>} */ (bar.children);
  NODE_STATES.forEach(([key], index) => {
    drawPart(parts[index], Number(row[key]) || 0);
  });
}

/** @param {Context} context */
export function openGraphs(context) {
  const legend = element("ul", { class: "legend nodes-legend" }, ...NODE_STATES.map(([key, label]) => element("li", {}, element("i", { class: `node-key ${key}` }), label)));
  const page = openList(context, {
    page: "graphs",
    caption: "Graphs",
    noun: "graphs",
    sort: "-started",
    placeholder: "Filter by client",
    key: (row) => row.graph,
    columns: [
      { key: "graph", label: "graph", kind: "number plain", text: (row) => String(row.graph) },
      { key: "client", label: "client", kind: "name", draw: (cell, row) => drawLink(cell, address("tasks", [], { client: row.client }), name(clientOf(row))) },
      { key: "started", label: "started", kind: "number plain", text: (row) => clock(row.started) },
      { key: "nodes", label: "nodes", kind: "number", text: (row) => count(row.nodes) },
      { key: "progress", label: "by state", kind: "wide-bar", sorts: false, draw: drawNodes },
      { key: "succeeded", label: "done", kind: "number", text: (row) => `${Math.floor((100 * (row.succeeded + row.failed + row.canceled)) / Math.max(1, row.nodes))} %` },
      { key: "running", label: "running", kind: "number", text: (row) => count(row.running) },
      { key: "failed", label: "failed", kind: "number", title: "Nodes that failed, and those that needed them", draw: (cell, row) => drawFailures(cell, row.failed, address("tasks", [], { graph: row.graph, state: "failures" })) },
      { key: "has_gone", label: "state", kind: "name", sorts: false, draw: (cell, row) => drawBadges(cell, row.has_gone ? [["ended", "plain"]] : [["runs", "good"]]) },
    ],
    empty: () =>
      nothing(
        "No graphs",
        "A graph is sent as a whole, and each of its tasks runs as soon as those before it are done:",
        'graph = {"a": 1, "b": (abs, "a"), "c": (max, "a", "b")}\nprint(client.get(graph, ["c"]))',
      ),
  });
  page.element.prepend(legend);
  return page;
}

/** @type {Record<string, [string, string]>} */
const ACTOR_STATES = { waiting: ["waits for a worker", "info"], alive: ["alive", "good"], lost: ["lost", "bad"] };

/** @param {HTMLElement} cell @param {any} row */
function drawActorState(cell, row) {
  drawBadges(cell, [ACTOR_STATES[row.state] ?? [name(row.state), "plain"]]);
  setAttribute(cell, "title", row.why_lost ? name(row.why_lost) : null);
}

/** @param {Context} context */
export function openActors(context) {
  return openList(context, {
    page: "actors",
    caption: "Actors",
    noun: "actors",
    sort: "-running",
    placeholder: "Filter by name, worker, client or why lost",
    key: (row) => row.actor,
    columns: [
      { key: "name", label: "actor", kind: "name", text: (row) => name(row.name, `actor ${row.actor}`) },
      { key: "state", label: "state", kind: "name", draw: drawActorState },
      { key: "worker_name", label: "worker", kind: "name", text: (row) => name(row.worker_name, "–") },
      { key: "waiting", label: "waiting", kind: "number", title: "Calls that are not at the worker yet", text: (row) => count(row.waiting) },
      { key: "running", label: "at worker", kind: "number", title: "Calls at the worker, which run one by one", text: (row) => count(row.running) },
      { key: "finished", label: "finished", kind: "number", title: "Calls with an outcome", text: (row) => count(row.finished) },
      { key: "failed", label: "failed", kind: "number", draw: (cell, row) => drawFailures(cell, row.failed) },
      { key: "client", label: "client", kind: "name", draw: (cell, row) => drawLink(cell, address("tasks", [], { client: row.client }), name(clientOf(row))) },
      { key: "why_lost", label: "why lost", kind: "small", text: (row) => name(row.why_lost, "") },
    ],
    empty: () =>
      nothing(
        "No actors",
        "An actor is an instance that lives in one process of the cluster; calls of its methods are tasks that run one after the other:",
        'counter = client.actor(Counter, name="visits")\nprint(counter.add(1).result())',
      ),
  });
}
