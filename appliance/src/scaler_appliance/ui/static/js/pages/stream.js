/**
 * The task stream: a lane for each processor, a bar for each run of tasks, live or as far back as the server keeps.
 *
 * Rules: while it follows live, events bring only what is new. Once the reader pans or zooms elsewhere, what is in view is
 * asked for, after a moment without movement; live events go on being kept, so that "live" is there at once. The right
 * edge is a little behind the server's clock, so that what is in view is complete. What is in view is in the address.
 */

import { debounced, element, fill, setAttribute, setText } from "../dom.js";
import { clock, count, duration, name, span } from "../format.js";
import { address, go, replace } from "../route.js";
import { Painter } from "../stream/painter.js";
import { readRunning, RunStore, STATUS_WORDS, isFailure } from "../stream/runs.js";
import { listenToPointers } from "../stream/pointers.js";
import { functionSlot, onTheme } from "../theme.js";
import { noTasks, noWorkers } from "../teaching.js";

/** @typedef {import("../main.js").Context} Context */

const BEHIND_SECONDS = 2.2;
const LEAST_SECONDS = 0.02;
const MOST_SECONDS = 3600;
const FIRST_SECONDS = 60;
const LIVE_WINDOWS = [60, 120, 300, 900, 3600];
const SETTLE_MILLISECONDS = 160;
const LEGEND_MILLISECONDS = 1000;
const LEGEND_NAMES = 12;

/** @param {Context} context */
export function openStream(context) {
  return new StreamPage(context);
}

class StreamPage {
  /** @param {Context} context */
  constructor(context) {
    this.context = context;
    this.live = new RunStore();
    this.history = new RunStore();
    /** @type {import("../stream/runs.js").Run[]} */
    this.running = [];
    /** @type {import("../stream/runs.js").Run | null} */
    this.hovered = null;
    this.seconds = FIRST_SECONDS;
    this.right = 0; // when not following
    this.isFollowing = true;
    this.isLive = false; // whether time goes on
    this.clockOffset = NaN; // the server's clock less performance.now(), in seconds
    this.stoppedAt = 0; // the right edge while time does not go on
    this.lanesOffset = 0;
    this.lanesTotal = 0;
    this.askedWindow = LIVE_WINDOWS[0];
    this.askedLanes = 0;
    this.omitted = 0;
    this.oneWorkerOf = 1;
    this.frame = 0;
    this.drawnPixel = NaN;
    this.legendAt = 0;
    this.isClosed = false;
    /** @type {AbortController | null} */
    this.asking = null;
    this.reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

    this.canvas = /** @type {HTMLCanvasElement} */ (element("canvas", { class: "stream-canvas", tabindex: 0, role: "img", "aria-label": "Task stream" }));
    this.tip = element("div", { class: "tip", hidden: true, role: "tooltip" });
    this.empty = element("div", { class: "empty over", hidden: true });
    this.legend = element("ul", { class: "legend stream-legend", "aria-label": "Functions by time" });
    this.remark = element("p", { class: "muted stream-remark" });
    this.range = element("output", { class: "shown", id: "stream-range" });
    this.lanesShown = element("output", { class: "shown" });
    this.follow = button("● Live", "Follow live (End)", () => this.#follow());
    this.follow.classList.add("follow");
    this.lanesBefore = button("↑", "Processors before (arrow up)", () => this.#turn(-1));
    this.lanesAfter = button("↓", "Next processors (arrow down)", () => this.#turn(1));
    this.element = this.#build();
    this.painter = new Painter(this.canvas);
    this.settle = debounced(() => this.#settled(), SETTLE_MILLISECONDS);
    this.observer = new ResizeObserver(() => this.#fit());
    this.observer.observe(this.canvas);
    this.endTheme = onTheme(() => {
      this.painter.recolour();
      this.#draw();
    });
    this.endPointers = listenToPointers(this.canvas, {
      pan: (pixels) => this.#pan((-pixels / this.painter.timeWidth()) * this.seconds),
      zoom: (factor, x) => this.#zoom(factor, x),
      hover: (x, y, clientX, clientY) => this.#hover(x, y, clientX, clientY),
      leave: () => this.#leave(),
      click: (x, y) => this.#click(x, y),
    });
  }

  #build() {
    const tools = element(
      "div",
      { class: "tools" },
      this.follow,
      element("span", { class: "pager" }, button("‹", "Back in time (arrow left)", () => this.#pan(-0.25 * this.seconds)), button("›", "Forth in time (arrow right)", () => this.#pan(0.25 * this.seconds))),
      element("span", { class: "pager" }, button("−", "Zoom out (−)", () => this.#zoom(1.6)), button("+", "Zoom in (+)", () => this.#zoom(1 / 1.6))),
      this.range,
      element("span", { class: "spread" }),
      this.lanesShown,
      element("span", { class: "pager" }, this.lanesBefore, this.lanesAfter),
    );
    return element("div", { class: "stream" }, tools, element("div", { class: "panel stream-panel" }, this.canvas, this.empty, this.tip), this.legend, this.remark);
  }

  // What the program of the page asks of each page.

  parameters() {
    const limit = this.askedLanes || this.painter.laneRoom();
    return { window: this.askedWindow, lanes_offset: this.lanesOffset, lanes_limit: limit };
  }

  /** @param {import("../route.js").Route} where */
  routed(where) {
    const seconds = Number(where.query.get("window"));
    if (seconds > 0) this.seconds = within(seconds, LEAST_SECONDS, MOST_SECONDS);
    const to = Number(where.query.get("to"));
    if (to > 0 && (this.isFollowing || Math.abs(to - this.right) > 0.001)) {
      this.isFollowing = false;
      this.right = to;
      this.settle();
    } else if (!(to > 0)) this.isFollowing = true;
    const lanes = Number(where.query.get("lanes"));
    this.lanesOffset = Number.isInteger(lanes) && lanes > 0 ? lanes : 0;
    this.#widen();
    this.#fit();
    this.#showTools();
  }

  /** @param {any} body @param {any} head */
  receive(body, head) {
    const offset = Number(head.clock) - performance.now() / 1000;
    if (Number.isFinite(offset)) {
      const isNear = Math.abs(offset - this.clockOffset) < 0.7;
      this.clockOffset = isNear ? this.clockOffset + 0.1 * (offset - this.clockOffset) : offset;
    }
    if (!body.runs && !body.lanes) return;
    if (body.is_reset) {
      this.live.clear();
      this.omitted = 0;
      this.painter.invalidate();
    }
    for (const [number, text] of Object.entries(body.functions || {})) this.painter.functions.set(Number(number), name(text));
    const lanes = Array.isArray(body.lanes) ? body.lanes : this.painter.lanes;
    this.lanesTotal = Number(body.lanes_total ?? lanes.length) || 0;
    this.painter.setLanes(lanes);
    this.omitted += Number(body.omitted_runs) || 0;
    this.oneWorkerOf = Number(body.one_worker_of) || 1;
    this.painter.add(this.live.append(body));
    this.running = readRunning(body);
    this.canvas.dataset.runs = String(this.live.size);
    this.canvas.dataset.failures = String(this.live.failures);
    this.#showEmpty(head);
    this.#showTools();
    this.#showLegend();
    this.#drawSoon();
  }

  reset() {
    this.live.clear();
    this.history.clear();
    this.running = [];
    this.painter.functions.clear();
    this.painter.setLanes([]);
    this.painter.invalidate();
    this.lanesOffset = 0;
    this.#follow();
  }

  /** @param {import("../feed.js").FeedCondition} condition */
  condition(condition) {
    const isLive = condition.state === "live";
    if (isLive === this.isLive) return;
    if (!isLive) this.stoppedAt = this.#edge();
    this.isLive = isLive;
    this.#draw();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = (event.shiftKey ? 0.8 : 0.2) * this.seconds;
    if (event.key === "ArrowLeft") this.#pan(-step);
    else if (event.key === "ArrowRight") this.#pan(step);
    else if (event.key === "+" || event.key === "=") this.#zoom(1 / 1.6);
    else if (event.key === "-" || event.key === "_") this.#zoom(1.6);
    else if (event.key === "ArrowUp" || event.key === "PageUp") this.#turn(-1);
    else if (event.key === "ArrowDown" || event.key === "PageDown") this.#turn(1);
    else if (event.key === "Home") this.#pan(-MOST_SECONDS);
    else if (event.key === "End" || event.key === "0") this.#follow();
    else return false;
    return true;
  }

  search() {
    go(address("tasks"));
  }

  close() {
    this.isClosed = true;
    cancelAnimationFrame(this.frame);
    this.asking?.abort();
    this.settle.cancel();
    this.observer.disconnect();
    this.endTheme();
    this.endPointers();
  }

  // Time.

  #now() {
    return Number.isFinite(this.clockOffset) ? performance.now() / 1000 + this.clockOffset : Date.now() / 1000;
  }

  /** The right edge when following. */
  #edge() {
    return this.isLive ? this.#now() - BEHIND_SECONDS : this.stoppedAt || this.#now() - BEHIND_SECONDS;
  }

  #right() {
    return this.isFollowing ? this.#edge() : this.right;
  }

  #follow() {
    this.isFollowing = true;
    this.#changed();
  }

  /** @param {number} seconds */
  #pan(seconds) {
    const edge = this.#edge();
    const right = Math.max(edge - MOST_SECONDS + this.seconds, this.#right() + seconds);
    this.isFollowing = right >= edge;
    this.right = Math.min(right, edge);
    this.#changed();
  }

  /**
   * @param {number} factor of the time in view
   * @param {number} [x] in css pixels; the time there stays where it is
   */
  #zoom(factor, x) {
    const seconds = within(this.seconds * factor, LEAST_SECONDS, MOST_SECONDS);
    const right = this.#right();
    if (!this.isFollowing) {
      const share = x === undefined ? 0.5 : within((x - this.painter.gutter) / this.painter.timeWidth(), 0, 1);
      const fixed = right - this.seconds * (1 - share);
      this.right = Math.min(this.#edge(), fixed + seconds * (1 - share));
    }
    this.seconds = seconds;
    this.#changed();
  }

  /** @param {number} pages of lanes */
  #turn(pages) {
    const room = this.painter.laneRoom();
    const offset = this.lanesOffset + pages * room;
    if (offset >= this.lanesTotal || (offset < 0 && this.lanesOffset === 0)) return;
    this.lanesOffset = Math.max(0, offset);
    this.#changed();
  }

  #changed() {
    this.#showTools();
    this.#draw();
    this.settle();
  }

  // A movement has come to rest: put it in the address, and ask for what is not there yet.
  #settled() {
    if (this.isClosed) return;
    this.#widen();
    replace(
      address("stream", [], {
        window: this.seconds === FIRST_SECONDS ? null : Number(this.seconds.toPrecision(6)),
        to: this.isFollowing ? null : this.right.toFixed(3),
        lanes: this.lanesOffset || null,
      }),
    );
    this.context.watch();
    if (!this.isFollowing) this.#ask();
  }

  /** The window that live events begin with must hold what is in view. */
  #widen() {
    const wanted = LIVE_WINDOWS.find((seconds) => seconds >= this.seconds) || MOST_SECONDS;
    if (wanted > this.askedWindow || wanted * 4 < this.askedWindow) this.askedWindow = wanted;
  }

  async #ask() {
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    const margin = this.seconds * 0.25;
    const { lanes_offset, lanes_limit } = this.parameters();
    const query = new URLSearchParams({ from: (this.right - this.seconds - margin).toFixed(3), to: (this.right + margin).toFixed(3), lanes_offset: String(lanes_offset), lanes_limit: String(lanes_limit) });
    try {
      const answer = await fetch(`api/stream?${query}`, { signal: asking.signal });
      if (!answer.ok || this.isClosed) return;
      const { body } = await answer.json();
      if (!body || this.isClosed || this.isFollowing) return;
      this.history.clear();
      for (const [number, text] of Object.entries(body.functions || {})) this.painter.functions.set(Number(number), name(text));
      this.history.append(body);
      this.canvas.dataset.history = String(this.history.size);
      this.painter.invalidate();
      this.#draw();
    } catch {
      // Another movement has begun, or the server is away, which the banner says.
    }
  }

  // Showing.

  #fit() {
    this.painter.fit();
    const lanes = this.painter.laneRoom();
    if (this.askedLanes !== lanes && this.painter.height > 0) {
      this.askedLanes = lanes;
      this.context.watch();
    }
    this.#draw();
  }

  #drawSoon() {
    this.drawnPixel = NaN;
    if (!this.frame) this.#draw();
  }

  /** @param {boolean} [isDue] false: only if the picture has moved by a pixel since */
  #draw(isDue = true) {
    if (this.isClosed || this.painter.width < 2) return;
    const right = this.#right();
    const pixel = Math.floor((right / this.seconds) * this.painter.timeWidth() * this.painter.scale);
    if (!isDue && pixel === this.drawnPixel) {
      this.frame = requestAnimationFrame(() => this.#draw(false));
      return;
    }
    this.drawnPixel = pixel;
    const view = { left: right - this.seconds, right, now: this.isLive ? this.#now() : this.#edge() + BEHIND_SECONDS, isFollowing: this.isFollowing, running: this.running, hovered: this.hovered };
    this.painter.draw(view, this.isFollowing ? [this.live] : [this.history, this.live]);
    this.canvas.dataset.right = right.toFixed(3);
    const moves = this.isLive && this.isFollowing && !this.reducedMotion.matches;
    cancelAnimationFrame(this.frame);
    this.frame = moves ? requestAnimationFrame(() => this.#draw(false)) : 0;
  }

  #showTools() {
    setAttribute(this.follow, "aria-pressed", this.isFollowing ? "true" : "false");
    const shown = this.seconds >= 60 ? span(this.seconds) : duration(this.seconds * 1e6);
    setText(this.range, this.isFollowing ? `last ${shown}` : `${shown} until ${clock(this.right, this.seconds < 5 ? 3 : 0)}`);
    const lanes = this.painter.lanes.length;
    const first = Math.min(this.lanesOffset + 1, this.lanesTotal);
    setText(this.lanesShown, lanes < this.lanesTotal ? `processors ${count(first)}–${count(this.lanesOffset + lanes)} of ${count(this.lanesTotal)}` : `${count(this.lanesTotal)} processors`);
    setAttribute(this.lanesBefore, "disabled", this.lanesOffset <= 0);
    setAttribute(this.lanesAfter, "disabled", this.lanesOffset + lanes >= this.lanesTotal);
    setText(this.remark, this.#remarks());
  }

  #remarks() {
    const remarks = [];
    if (this.omitted > 0) remarks.push(`${count(this.omitted)} runs are not drawn, so as not to flood this page; all are counted.`);
    if (this.oneWorkerOf > 1) remarks.push(`So many workers at once: runs of one in ${count(this.oneWorkerOf)} are told.`);
    return remarks.join(" ");
  }

  /** @param {any} head */
  #showEmpty(head) {
    const kind = !head.workers && this.painter.lanes.length === 0 ? "workers" : this.live.size === 0 && this.running.length === 0 && !(head.tasks?.success > 0) && !(head.tasks?.failed > 0) ? "tasks" : "";
    const shown = `${kind} ${head.address}`;
    this.empty.hidden = !kind;
    if (this.empty.dataset.kind === shown) return;
    this.empty.dataset.kind = shown;
    if (kind) fill(this.empty, kind === "workers" ? noWorkers(head) : noTasks(head));
    else fill(this.empty);
  }

  #showLegend() {
    const now = performance.now();
    if (now - this.legendAt < LEGEND_MILLISECONDS) return;
    this.legendAt = now;
    /** @type {Map<string, number>} several clients may have functions of one name */
    const byName = new Map();
    for (const [number, seconds] of this.live.busy) {
      const text = this.painter.functions.get(number) || `function ${number}`;
      byName.set(text, (byName.get(text) || 0) + seconds);
    }
    const all = [...byName].sort((one, other) => other[1] - one[1]);
    const total = all.reduce((sum, [, seconds]) => sum + seconds, 0) || 1;
    const top = all.slice(0, LEGEND_NAMES);
    const wanted = top.map(([text, seconds]) => `${text}:${Math.round((100 * seconds) / total)}`).join() + this.painter.highlighted + (this.live.failures > 0);
    if (this.legend.dataset.key === wanted) return;
    this.legend.dataset.key = wanted;
    const items = top.map(([text, seconds]) => {
      const pressed = this.painter.highlighted === text;
      const shown = element("button", { type: "button", class: "quiet", "aria-pressed": pressed ? "true" : "false", title: "Show this function only", on: { click: () => this.#highlight(pressed ? null : text) } }, element("i", { class: "swatch", "data-slot": functionSlot(text) }), element("span", { class: "legend-name", text }), element("small", { text: `${Math.round((100 * seconds) / total)} %` }));
      return element("li", {}, shown);
    });
    if (all.length > top.length) items.push(element("li", { class: "muted", text: `and ${all.length - top.length} more` }));
    if (this.live.failures > 0) items.push(element("li", {}, element("a", { href: address("tasks", [], { state: "failed" }) }, element("i", { class: "swatch hatched" }), "failed")));
    // The button in focus is made anew: give the focus back.
    const focused = [...this.legend.children].findIndex((item) => item.contains(document.activeElement));
    fill(this.legend, ...items);
    if (focused >= 0) /** @type {HTMLElement | null} */ (this.legend.children[focused]?.firstElementChild)?.focus();
    setAttribute(this.canvas, "aria-label", `Task stream of ${this.painter.lanes.length} processors; ${count(this.live.size)} runs of ${all.length} functions, ${count(this.live.failures)} failed. The page Tasks lists them.`);
  }

  /** @param {string | null} text name of a function; null: all */
  #highlight(text) {
    this.painter.highlighted = text;
    this.painter.invalidate();
    this.legendAt = 0;
    this.#showLegend();
    this.#draw();
  }

  // The pointer.

  /** @param {number} x @param {number} y */
  #runAt(x, y) {
    const row = this.painter.rowAt(y);
    if (row < 0 || x < this.painter.gutter) return null;
    const lane = this.painter.lanes[row];
    const right = this.#right();
    const time = right - this.seconds + ((x - this.painter.gutter) / this.painter.timeWidth()) * this.seconds;
    const tolerance = (3 / this.painter.timeWidth()) * this.seconds;
    for (const store of this.isFollowing ? [this.live] : [this.history, this.live]) {
      const run = store.at(lane.id, time, tolerance);
      if (run) return run;
    }
    return this.running.find((run) => run.lane === lane.id && run.start <= time + tolerance && time <= this.#now()) || null;
  }

  /** @param {number} x @param {number} y @param {number} clientX @param {number} clientY */
  #hover(x, y, clientX, clientY) {
    const run = this.#runAt(x, y);
    this.canvas.classList.toggle("over-run", Boolean(run));
    const isSame = run && this.hovered && run.lane === this.hovered.lane && run.task === this.hovered.task && run.start === this.hovered.start;
    this.hovered = run;
    this.tip.hidden = !run;
    if (run) {
      if (!isSame) this.#fillTip(run);
      const box = /** @type {HTMLElement} */ (this.tip.parentElement).getBoundingClientRect();
      const left = within(clientX - box.left + 14, 0, Math.max(0, box.width - this.tip.offsetWidth - 4));
      const below = clientY - box.top + 18;
      const top = below + this.tip.offsetHeight > box.height ? clientY - box.top - this.tip.offsetHeight - 10 : below;
      this.tip.style.setProperty("transform", `translate(${Math.round(left)}px, ${Math.round(top)}px)`);
    }
    this.#drawSoon();
  }

  /** @param {import("../stream/runs.js").Run} run */
  #fillTip(run) {
    const lane = this.painter.lanes[this.painter.rows.get(run.lane) ?? -1];
    const named = this.painter.functions.get(run.function) || `function ${run.function}`;
    const isFailed = run.status !== null && isFailure(run.status);
    const state = run.status === null ? "running" : STATUS_WORDS[run.status] || "ended";
    fill(
      this.tip,
      element("b", {}, element("i", { class: `swatch ${isFailed ? "hatched" : ""}`, "data-slot": functionSlot(named) }), named),
      element("span", { text: `${state} · ${run.end === null ? `for ${duration((this.#now() - run.start) * 1e6)} so far` : duration((run.end - run.start) * 1e6)}${run.count > 1 ? ` · ${count(run.count)} tasks` : ""}` }),
      element("span", { text: `task ${run.task} of client ${run.client}` }),
      element("span", { class: "muted", text: `${lane?.title ?? ""} · ${clock(run.start, 3)}` }),
    );
  }

  #leave() {
    this.hovered = null;
    this.tip.hidden = true;
    this.#drawSoon();
  }

  /** @param {number} x @param {number} y */
  #click(x, y) {
    const run = this.#runAt(x, y);
    if (run?.task) go(address("task", [run.client, run.task]));
  }
}

/**
 * @param {string} text
 * @param {string} label
 * @param {() => void} click
 */
function button(text, label, click) {
  return element("button", { type: "button", "aria-label": label, title: label, text, on: { click } });
}

/** @param {number} value @param {number} least @param {number} most */
function within(value, least, most) {
  return Math.min(most, Math.max(least, value));
}
