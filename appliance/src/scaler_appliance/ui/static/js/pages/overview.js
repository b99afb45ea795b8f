/**
 * The overview: is it healthy, how fast is it, what is it busy with?
 *
 * Rules: history comes once, then only new points; what is kept is bounded by time. All charts show the same span of time, at
 * least a minute, also where there are no points for it.
 */

import { Chart } from "../chart.js";
import { element, fill, setAttribute, setText } from "../dom.js";
import { bytes, count, duration, name, percent, rate, short } from "../format.js";
import { address, AddressError, replace } from "../route.js";
import { DataTable, drawBar, drawFunction, drawLink } from "../table.js";
import { noTasks, noWorkers } from "../teaching.js";
import { drawFailures, drawPart } from "./lists.js";

/** @typedef {import("../main.js").Context} Context */

const MOST_POINTS = 8000;
const LEAST_SECONDS = 60;
/** @type {[number, string][]} */
const SPANS = [
  [300, "5 min"],
  [900, "15 min"],
  [3600, "1 h"],
];

/** @param {Context} _context @returns {import("../main.js").Page} */
export function openOverview(_context) {
  /** @type {number[]} */
  let time = [];
  /** @type {Record<string, (number | null)[]>} */
  let series = {};
  let seconds = SPANS[0][0];
  let mostBusy = 0;

  const charts = [
    new Chart("Throughput", [{ key: "finished", label: "finished/s", colour: "chart-1", fills: true }, { key: "failed", label: "failed/s", colour: "bad", dash: [4, 3] }], rate, 1),
    new Chart("Queue", [{ key: "waiting", label: "waiting", colour: "chart-2", fills: true }, { key: "running", label: "at workers", colour: "chart-1", dash: [6, 3] }], short, 4, 1),
    new Chart("Workers", [{ key: "slots", label: "slots", colour: "chart-3", fills: true, steps: true }, { key: "workers", label: "workers", colour: "chart-1", dash: [6, 3], steps: true }], short, 4, 1),
    new Chart("Memory", [{ key: "workers_rss", label: "workers", colour: "chart-4", fills: true }, { key: "object_bytes", label: "objects", colour: "chart-2", dash: [6, 3] }, { key: "scheduler_rss", label: "scheduler", colour: "chart-1", dash: [2, 3] }], bytes, 64 * 2 ** 20, 2),
    new Chart("Scheduler", [{ key: "scheduler_cpu", label: "processor time", colour: "chart-5", fills: true }], percent, 25),
  ];

  const spans = element("span", { class: "pager", role: "group", "aria-label": "Time in view" });
  for (const [value, label] of SPANS) spans.append(element("button", { type: "button", "data-seconds": value, text: label, on: { click: () => replace(address("overview", [], { span: value === SPANS[0][0] ? null : value })) } }));
  const reasons = element("div", { class: "reasons", hidden: true });
  const units = element("div", { class: "reasons", hidden: true });
  const empty = element("section", { class: "panel empty", hidden: true });
  const functions = new DataTable({
    caption: "Busiest functions",
    key: (row) => row.function,
    columns: [
      { key: "name", label: "function", kind: "name", draw: (cell, row) => drawFunction(cell, name(row.name), address("tasks", [], { function: row.function })) },
      { key: "busy_s", label: "busy", kind: "number wide", draw: (cell, row) => drawBar(cell, row.busy_s / (mostBusy || 1), duration(row.busy_s * 1e6)) },
      { key: "per_second", label: "per s", kind: "number", text: (row) => rate(row.per_second) },
      { key: "p50_us", label: "p50", kind: "number", text: (row) => duration(row.p50_us) },
      { key: "p95_us", label: "p95", kind: "number", text: (row) => duration(row.p95_us) },
      { key: "failed", label: "failed", kind: "number", draw: (cell, row) => drawFailures(cell, row.failed, address("tasks", [], { function: row.function, state: "failures" })) },
    ],
  });
  const hosts = new DataTable({
    caption: "Hosts",
    key: (row) => row.host,
    columns: [
      { key: "host", label: "host", kind: "name", draw: (cell, row) => drawLink(cell, address("workers", [], { filter: row.host }), name(row.host, "–")) },
      { key: "workers", label: "workers", kind: "number", text: (row) => count(row.workers) },
      { key: "busy", label: "slots", kind: "number", draw: (cell, row) => drawBar(cell, row.slots ? row.busy / row.slots : 0, `${count(row.busy)} / ${count(row.slots)}`) },
      { key: "cpu", label: "cpu", kind: "number", text: (row) => percent(row.cpu) },
      { key: "rss", label: "memory", kind: "number", text: (row) => bytes(row.rss) },
      { key: "free", label: "free", kind: "number", text: (row) => bytes(row.free) },
    ],
  });
  const hostsMore = element("a", { href: address("workers"), class: "more" });
  const functionsPanel = element("section", { class: "panel" }, element("header", {}, element("h2", { text: "Busiest functions" }), element("a", { class: "more", href: address("functions"), text: "all functions" })), functions.element);
  const hostsPanel = element("section", { class: "panel" }, element("header", {}, element("h2", { text: "Hosts" }), hostsMore), hosts.element);
  const outcomes = element("section", { class: "panel outcomes", "aria-label": "Tasks by state" });
  const states = makeStates(outcomes);

  /** Give the charts what is in view, with an empty point at its beginning. */
  function draw() {
    const last = time[time.length - 1];
    if (last === undefined) {
      for (const chart of charts) chart.show([], {});
      return;
    }
    let first = time.findIndex((at) => at >= last - seconds);
    if (first < 0) first = 0;
    const begin = Math.max(last - seconds, Math.min(time[first], last - LEAST_SECONDS));
    const isYoung = time[first] > begin + 1.5;
    const shown = isYoung ? [begin, ...time.slice(first)] : time.slice(first);
    /** @type {Record<string, (number | null)[]>} */
    const columns = {};
    for (const [key, values] of Object.entries(series)) columns[key] = isYoung ? [null, ...values.slice(first)] : values.slice(first);
    for (const chart of charts) chart.show(shown, columns);
  }

  /** @param {any} news @param {boolean} isReset */
  function append(news, isReset) {
    if (isReset) {
      time = [];
      series = {};
    }
    const added = Array.isArray(news?.time) ? news.time : [];
    const last = time[time.length - 1] ?? -Infinity;
    const from = added.findIndex((/** @type {number} */ at) => at > last);
    if (from < 0) return;
    const length = time.length;
    for (const at of added.slice(from)) time.push(at);
    for (const [key, values] of Object.entries(news)) {
      if (key === "time" || !Array.isArray(values)) continue;
      if (!series[key]) series[key] = new Array(length).fill(null);
      const column = series[key];
      for (const value of values.slice(from)) column.push(Number.isFinite(value) ? value : null);
    }
    for (const column of Object.values(series)) while (column.length < time.length) column.push(null);
    if (time.length > MOST_POINTS) {
      const cut = time.length - MOST_POINTS;
      time.splice(0, cut);
      for (const column of Object.values(series)) column.splice(0, cut);
    }
  }

  return {
    element: element("div", { class: "overview" }, element("div", { class: "tools" }, element("h2", { text: "Overview" }), element("span", { class: "spread" }), spans), reasons, units, empty, element("div", { class: "cards" }, outcomes, ...charts.map((chart) => chart.element)), element("div", { class: "halves" }, functionsPanel, hostsPanel)),
    names: ["span"],
    parameters: () => ({}),
    routed(where) {
      const asked = where.query.get("span") || String(SPANS[0][0]);
      const span = SPANS.find(([value]) => String(value) === asked);
      if (!span) throw new AddressError(`span is ${SPANS.map(([value]) => value).join(", ")} seconds, not “${asked.slice(0, 60)}”.`);
      seconds = span[0];
      for (const button of spans.children) setAttribute(button, "aria-pressed", button.dataset.seconds === String(seconds) ? "true" : "false");
      draw();
    },
    receive(body, head) {
      append(body.series, body.is_reset);
      draw();
      const rows = Array.isArray(body.functions) ? body.functions : [];
      mostBusy = Math.max(0, ...rows.map((/** @type {any} */ row) => Number(row.busy_s) || 0));
      functions.show(rows);
      functionsPanel.hidden = rows.length === 0;
      const hostRows = Array.isArray(body.hosts) ? body.hosts : [];
      hosts.show(hostRows.slice(0, 8));
      hostsPanel.hidden = hostRows.length === 0;
      const total = Number(body.hosts_total ?? hostRows.length) || 0;
      setText(hostsMore, total > 8 ? `8 of ${count(total)} hosts; all workers` : "all workers");
      showStates(states, head);
      showTexts(reasons, "Why tasks wait", head.waiting_reasons);
      showTexts(units, "Units of workers", head.unit_notes);
      showEmpty(empty, head);
    },
    reset() {
      time = [];
      series = {};
      functions.clear();
      hosts.clear();
      draw();
    },
    close() {
      for (const chart of charts) chart.close();
    },
  };
}

/** @type {[string, string, string, (tasks: any) => number][]} key, label, sign, figure */
const OUTCOMES = [
  ["success", "succeeded", "✓", (tasks) => tasks.success || 0],
  ["failed", "failed", "✕", (tasks) => (tasks.failed || 0) + (tasks.lost || 0)],
  ["canceled", "cancelled", "⊘", (tasks) => tasks.canceled || 0],
  ["running", "at workers", "▶", (tasks) => tasks.running || 0],
  ["waiting", "waiting", "…", (tasks) => (tasks.unassigned || 0) + (tasks.waiting || 0)],
];

/** @param {HTMLElement} panel */
function makeStates(panel) {
  const bar = element("div", { class: "outcome-bar", role: "img" });
  const list = element("ul", { class: "outcome-list" });
  const parts = OUTCOMES.map(([key, label, sign]) => {
    const part = element("i", { class: key });
    bar.append(part);
    const figure = element("b", { text: "–" });
    list.append(element("li", {}, element("i", { class: `node-key ${key}`, "aria-hidden": "true" }), element("span", { text: `${sign} ${label}` }), figure));
    return { part, figure };
  });
  panel.append(element("header", {}, element("h2", { text: "Tasks" })), bar, list);
  return { bar, parts };
}

/** @param {{bar: HTMLElement, parts: {part: HTMLElement, figure: HTMLElement}[]}} states @param {any} head */
function showStates(states, head) {
  const tasks = head.tasks || {};
  OUTCOMES.forEach(([key, , , figure], index) => {
    const value = figure(tasks);
    drawPart(states.parts[index].part, value);
    if (key === "failed" && value > 0) drawLink(states.parts[index].figure, address("tasks", [], { state: "failures" }), count(value), "Show them");
    else fill(states.parts[index].figure, count(value));
  });
  setAttribute(states.bar, "aria-label", OUTCOMES.map(([, label, , figure]) => `${figure(tasks)} ${label}`).join(", "));
}

/** @param {HTMLElement} place @param {string} title @param {unknown} texts */
function showTexts(place, title, texts) {
  const all = Array.isArray(texts) ? texts.map((text) => name(text)) : [];
  const key = all.join("\n");
  place.hidden = all.length === 0;
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  fill(place, element("b", { text: title }), element("ul", {}, ...all.slice(0, 8).map((text) => element("li", { text }))));
}

/** @param {HTMLElement} place @param {any} head */
function showEmpty(place, head) {
  const tasks = head.tasks || {};
  const isIdle = OUTCOMES.every(([, , , figure]) => figure(tasks) === 0);
  const kind = !head.scheduler_id ? "" : !head.workers ? "workers" : isIdle ? "tasks" : "";
  const key = `${kind} ${head.address}`;
  place.hidden = !kind;
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  if (kind) fill(place, kind === "workers" ? noWorkers(head) : noTasks(head));
  else fill(place);
}
