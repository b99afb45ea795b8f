/**
 * The task stream: a lane for each slot of a worker, bars for the tasks that ran in it, live or as far back as the server
 * keeps.
 *
 * Rules: while it follows live, events bring only what is new. Once the reader pans or zooms elsewhere, what is in view is
 * asked for, after a moment without movement; live events go on being kept, so that "live" is there at once. The right
 * edge is a little behind the server's clock, so that what is in view is complete. What is in view is in the address. The
 * request contains the duration of a pixel, so that only runs that cannot be told apart on the screen are merged.
 */

import { button, debounced, element, fill, setAttribute, setText } from "../dom.js";
import { clock, count, duration, name, span } from "../format.js";
import { address, go, positive, replace } from "../route.js";
import { ask } from "../server.js";
import { drawLegend, fillTip } from "../stream/legend.js";
import { Painter } from "../stream/painter.js";
import { readRunning, RunStore } from "../stream/runs.js";
import { listenToPointers } from "../stream/pointers.js";
import { onTheme } from "../theme.js";
import { noTasks, noWorkers } from "../teaching.js";

/** @typedef {import("../main.js").Context} Context */

const BEHIND_SECONDS = 2.2;
const LEAST_SECONDS = 0.02;
const MOST_SECONDS = 3600;
const FIRST_SECONDS = 60;
const LIVE_WINDOWS = [5, 20, 60, 120, 300, 900, 3600];
const SETTLE_MILLISECONDS = 160;
const LEGEND_MILLISECONDS = 1000;

/** @param {Context} context */
export function openStream(context) {
  return new StreamPage(context);
}

class StreamPage {
  /** @param {Context} context */
  constructor(context) {
    this.context = context;
    this.names = ["window", "to", "lanes"];
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
    this.askedWindow = FIRST_SECONDS;
    this.askedLanes = 0;
    this.omitted = 0;
    this.oneWorkerOf = 1;
    /** @type {import("../stream/painter.js").Lane[]} */
    this.liveLanes = [];
    /** @type {{from: number, to: number, lanes: import("../stream/painter.js").Lane[], total: number} | null} what `history` knows */
    this.past = null;
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
    this.lanesBefore = button("↑", "Slots before (arrow up)", () => this.#turn(-1));
    this.lanesAfter = button("↓", "Next slots (arrow down)", () => this.#turn(1));
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
    return { window: this.askedWindow, lanes_offset: this.lanesOffset, lanes_limit: limit, resolution_us: this.#resolution() };
  }

  /** Microseconds, a power of two, so that small steps of zooming ask for nothing new. */
  #resolution() {
    const pixel = (this.seconds * 1e6) / Math.max(400, this.painter.timeWidth() * this.painter.scale);
    return 2 ** Math.max(0, Math.floor(Math.log2(pixel)));
  }

  /** @param {import("../route.js").Route} where */
  routed(where) {
    const seconds = positive(where, "window", "a number of seconds");
    if (seconds) this.seconds = within(seconds, LEAST_SECONDS, MOST_SECONDS);
    const to = positive(where, "to", "a time in seconds since 1970");
    if (to && (this.isFollowing || Math.abs(to - this.right) > 0.001)) {
      this.isFollowing = false;
      this.right = to;
      this.settle();
    } else if (!to) this.isFollowing = true;
    this.lanesOffset = positive(where, "lanes", "a whole number", true) || 0;
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
    this.liveLanes = Array.isArray(body.lanes) ? body.lanes : this.liveLanes;
    if (this.isFollowing || !this.past) this.#showLanes(this.liveLanes, Number(body.lanes_total ?? this.liveLanes.length) || 0);
    this.omitted += Number(body.omitted_runs) || 0;
    this.oneWorkerOf = Number(body.one_worker_of) || 1;
    this.painter.add(this.live.append(body), this.#sources());
    this.running = readRunning(body);
    this.canvas.dataset.runs = String(this.live.size);
    this.canvas.dataset.failures = String(this.live.failures);
    this.#showEmpty(head);
    this.#showTools();
    this.#showLegend();
    this.#drawSoon();
  }

  /** @param {import("../stream/painter.js").Lane[]} lanes @param {number} total */
  #showLanes(lanes, total) {
    this.lanesTotal = total;
    this.painter.setLanes(lanes);
  }

  /** Which store is to be asked for which time. @returns {import("../stream/runs.js").Source[]} */
  #sources() {
    if (this.isFollowing || !this.past) return [{ store: this.live, from: -Infinity, to: Infinity }];
    const { from, to } = this.past;
    return [
      { store: this.live, from: -Infinity, to: from },
      { store: this.history, from, to },
      { store: this.live, from: to, to: Infinity },
    ];
  }

  reset() {
    this.live.clear();
    this.history.clear();
    this.past = null;
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
    this.past = null;
    this.painter.invalidate();
    this.#showLanes(this.liveLanes, Math.max(this.lanesTotal, this.liveLanes.length));
    this.#changed();
  }

  /** @param {number} seconds */
  #pan(seconds) {
    const edge = this.#edge();
    const right = Math.max(edge - MOST_SECONDS + this.seconds, this.#right() + seconds);
    const isFollowing = right >= edge;
    if (isFollowing !== this.isFollowing) this.painter.invalidate();
    this.isFollowing = isFollowing;
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
    const { lanes_offset, lanes_limit, resolution_us } = this.parameters();
    const from = this.right - this.seconds - margin;
    const to = Math.max(from + 0.001, Math.min(this.right + margin, this.#edge()));
    const query = new URLSearchParams({ from: from.toFixed(3), to: to.toFixed(3), lanes_offset: String(lanes_offset), lanes_limit: String(lanes_limit), resolution_us: String(resolution_us) });
    try {
      const answer = await ask(`api/stream?${query}`, { signal: asking.signal });
      if (!answer.ok || this.isClosed) return;
      const { body } = await answer.json();
      if (!body || this.isClosed || this.isFollowing) return;
      this.history.clear();
      for (const [number, text] of Object.entries(body.functions || {})) this.painter.functions.set(Number(number), name(text));
      this.history.append(body);
      const lanes = Array.isArray(body.lanes) ? body.lanes : [];
      this.past = { from, to, lanes, total: Number(body.lanes_total ?? lanes.length) || 0 };
      this.#showLanes(lanes, this.past.total);
      this.#showTools();
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
    this.painter.draw(view, this.#sources());
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
    setText(this.lanesShown, lanes < this.lanesTotal ? `slots ${count(first)}–${count(this.lanesOffset + lanes)} of ${count(this.lanesTotal)}` : `${count(this.lanesTotal)} slots`);
    setAttribute(this.lanesBefore, "disabled", this.lanesOffset <= 0);
    setAttribute(this.lanesAfter, "disabled", this.lanesOffset + lanes >= this.lanesTotal);
    setText(this.remark, this.#remarks());
  }

  #remarks() {
    const remarks = [];
    if (this.omitted > 0) remarks.push(`The scheduler left out ${count(this.omitted)} runs under load: lanes may look emptier than they were. All tasks are counted.`);
    if (this.oneWorkerOf > 1) remarks.push(`Under load the scheduler publishes one worker in ${count(this.oneWorkerOf)}: these are shown.`);
    if (this.#sources().some(({ store }) => store.untold.length > 0)) remarks.push("Grey: that worker was not published then.");
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
      const text = this.#named(number);
      byName.set(text, (byName.get(text) || 0) + seconds);
    }
    drawLegend(this.legend, byName, { highlighted: this.painter.highlighted, failures: this.live.failures, highlight: (text) => this.#highlight(text) });
    setAttribute(this.canvas, "aria-label", `Task stream of ${this.painter.lanes.length} slots; ${count(this.live.size)} bars of ${byName.size} functions, ${count(this.live.failures)} tasks failed. The page Tasks lists them.`);
  }

  /** @param {number} number of a function */
  #named(number) {
    return this.painter.functions.get(number) || `function ${number}`;
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
    for (const { store, from, to } of this.#sources()) {
      const run = time >= from && time < to ? store.at(lane.id, time, tolerance) : null;
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
      if (!isSame) fillTip(this.tip, run, this.painter.lanes[this.painter.rows.get(run.lane) ?? -1], (number) => this.#named(number), this.#now());
      const box = /** @type {HTMLElement} */ (this.tip.parentElement).getBoundingClientRect();
      const left = within(clientX - box.left + 14, 0, Math.max(0, box.width - this.tip.offsetWidth - 4));
      const below = clientY - box.top + 18;
      const top = below + this.tip.offsetHeight > box.height ? clientY - box.top - this.tip.offsetHeight - 10 : below;
      this.tip.style.setProperty("transform", `translate(${Math.round(left)}px, ${Math.round(top)}px)`);
    }
    this.#drawSoon();
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

/** @param {number} value @param {number} least @param {number} most */
function within(value, least, most) {
  return Math.min(most, Math.max(least, value));
}
