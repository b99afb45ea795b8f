/**
 * Draws the task stream on a canvas.
 *
 *     finished runs ──once──▶ tape (a canvas out of sight) ──each frame, shifted──▶ the canvas in view ◀── running, axis, labels
 *
 * Rules: a finished run never changes, so it is painted once on the tape; following live only shifts the tape by whole
 * pixels and paints the strip that came into view. A frame costs as much as there are lanes, however many runs there are.
 * As much of a lane is filled as it was busy, however short its runs are (see columns.js). Failures are hatched, outlined
 * and never thinner than three pixels: colour is not their only sign. Time of which nothing was told is grey, not empty.
 */

import { clock } from "../format.js";
import { colour, functionColour } from "../theme.js";
import { Columns } from "./columns.js";
import { isFailure } from "./runs.js";

export const AXIS_HEIGHT = 26;
const LEAST_ROW = 9;
const MOST_ROW = 40;
const LEAST_FAILURE = 3; // device pixels
const LEAST_SEPARATED = 6;
const NICE_SECONDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];

/** @typedef {{id: number, worker: number, slot: number, processor: number, title: string, host: string, is_gone?: boolean}} Lane */
/** @typedef {import("./runs.js").Source} Source */

export class Painter {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.tape = document.createElement("canvas");
    this.tapeContext = /** @type {CanvasRenderingContext2D} */ (this.tape.getContext("2d"));
    /** @type {Lane[]} */
    this.lanes = [];
    /** @type {Map<number, number>} row by lane */
    this.rows = new Map();
    /** @type {Map<number, string>} names of functions */
    this.functions = new Map();
    /** @type {string | null} name of a function */
    this.highlighted = null;
    /** @type {Map<string, number>} widths of names, in device pixels */
    this.nameWidths = new Map();
    this.width = 0;
    this.height = 0;
    this.gutter = 0;
    this.scale = 1; // device pixels
    this.rowHeight = 16;
    this.tapeLeft = 0; // time at the left edge
    this.pixelsPerSecond = 1;
    this.isTapeValid = false;
    /** @type {CanvasPattern | null} */
    this.hatch = null;
    this.hatchColour = "";
    this.fullPaints = 0;
  }

  /** @param {Lane[]} lanes @returns {boolean} whether they are others than before */
  setLanes(lanes) {
    const isSame = lanes.length === this.lanes.length && lanes.every((lane, index) => lane.id === this.lanes[index].id);
    this.lanes = lanes;
    if (isSame) return false;
    this.rows = new Map(lanes.map((lane, index) => [lane.id, index]));
    this.#fitRows();
    this.isTapeValid = false;
    return true;
  }

  /** Take the size of the place on the page. */
  fit() {
    const { width, height } = this.canvas.getBoundingClientRect();
    const scale = Math.min(2, window.devicePixelRatio || 1);
    if (width === this.width && height === this.height && scale === this.scale) return;
    Object.assign(this, { width, height, scale });
    this.nameWidths.clear();
    this.gutter = width < 560 ? 64 : Math.min(190, width * 0.16);
    this.canvas.width = Math.max(1, Math.round(width * scale));
    this.canvas.height = Math.max(1, Math.round(height * scale));
    this.#fitRows();
  }

  #fitRows() {
    const room = Math.max(0, this.height - AXIS_HEIGHT);
    this.rowHeight = Math.max(LEAST_ROW, Math.min(MOST_ROW, room / Math.max(1, this.lanes.length)));
    this.tape.width = Math.max(1, Math.round((this.width - this.gutter) * this.scale));
    this.tape.height = Math.max(1, Math.round(room * this.scale));
    this.isTapeValid = false;
  }

  /** How many lanes have room. */
  laneRoom() {
    return Math.max(4, Math.floor((this.height - AXIS_HEIGHT) / 15));
  }

  /** @returns {number} css pixels of the part that shows time */
  timeWidth() {
    return Math.max(1, this.width - this.gutter);
  }

  /** @param {number} y in css pixels @returns {number} the row there, or -1 */
  rowAt(y) {
    const row = Math.floor((y - AXIS_HEIGHT) / this.rowHeight);
    return row >= 0 && row < this.lanes.length ? row : -1;
  }

  invalidate() {
    this.isTapeValid = false;
  }

  /** The style sheet's colours have changed. */
  recolour() {
    this.hatch = null;
    this.isTapeValid = false;
  }

  /**
   * Paint runs that have just become known, and what lies beside them in the same columns.
   *
   * @param {import("./runs.js").Run[]} runs
   * @param {Source[]} sources
   */
  add(runs, sources) {
    if (!this.isTapeValid || runs.length === 0) return;
    let first = Infinity;
    let last = -Infinity;
    for (const run of runs) {
      first = Math.min(first, run.start);
      last = Math.max(last, /** @type {number} */ (run.end));
    }
    const x = Math.max(0, Math.floor((first - this.tapeLeft) * this.pixelsPerSecond) - LEAST_FAILURE);
    const end = Math.min(this.tape.width, Math.ceil((last - this.tapeLeft) * this.pixelsPerSecond) + LEAST_FAILURE);
    if (end > x) this.#repaint(sources, x, end - x);
  }

  /**
   * @param {{left: number, right: number, now: number, isFollowing: boolean, running: import("./runs.js").Run[], hovered: import("./runs.js").Run | null}} view
   * @param {Source[]} sources
   */
  draw(view, sources) {
    this.#bringTape(view.left, view.right, sources);
    const { context, scale, gutter } = this;
    const shift = Math.round((this.tapeLeft - view.left) * this.pixelsPerSecond) / scale;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    this.#stripes();
    context.save();
    context.beginPath();
    context.rect(gutter, 0, this.width - gutter, this.height);
    context.clip();
    this.#untold(view, sources);
    this.#axis(view.left, view.right);
    context.drawImage(this.tape, gutter + shift, AXIS_HEIGHT, this.tape.width / scale, this.tape.height / scale);
    this.#running(view);
    if (view.hovered) this.#outline(view, view.hovered);
    context.restore();
    this.#labels();
  }

  /**
   * @param {number} left
   * @param {number} right
   * @param {Source[]} sources
   */
  #bringTape(left, right, sources) {
    const pixelsPerSecond = this.tape.width / Math.max(1e-6, right - left);
    const isSameScale = Math.abs(pixelsPerSecond / this.pixelsPerSecond - 1) < 1e-9;
    const shift = Math.round((left - this.tapeLeft) * pixelsPerSecond);
    if (this.isTapeValid && isSameScale && shift === 0) return;
    const context = this.tapeContext;
    if (this.isTapeValid && isSameScale && Math.abs(shift) < this.tape.width) {
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.globalCompositeOperation = "copy";
      context.drawImage(this.tape, -shift, 0);
      context.globalCompositeOperation = "source-over";
      this.tapeLeft += shift / pixelsPerSecond;
      const strip = Math.abs(shift) + 2;
      this.#repaint(sources, shift > 0 ? this.tape.width - strip : 0, strip);
      return;
    }
    this.tapeLeft = left;
    this.pixelsPerSecond = pixelsPerSecond;
    this.isTapeValid = true;
    this.fullPaints += 1;
    this.#repaint(sources, 0, this.tape.width);
  }

  /**
   * Paint a part of the tape from what is known.
   *
   * @param {Source[]} sources
   * @param {number} x
   * @param {number} width in device pixels
   */
  #repaint(sources, x, width) {
    const context = this.tapeContext;
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.beginPath();
    context.rect(x, 0, width, this.tape.height);
    context.clip();
    context.clearRect(x, 0, width, this.tape.height);
    const from = this.tapeLeft + (x - 4) / this.pixelsPerSecond;
    const to = this.tapeLeft + (x + width + 4) / this.pixelsPerSecond;
    // One more at each side: what a column looks like depends on those beside it.
    const columns = new Columns(width + 2);
    this.lanes.forEach((lane, row) => {
      columns.clear();
      /** @type {(() => void)[]} */
      const over = [];
      for (const source of sources) {
        source.store.between(lane.id, Math.max(from, source.from), Math.min(to, source.to), (runs, index) => {
          const left = (Math.max(runs.start[index], source.from) - this.tapeLeft) * this.pixelsPerSecond;
          const right = (Math.min(runs.end[index], source.to) - this.tapeLeft) * this.pixelsPerSecond;
          const number = runs.functions[index];
          const status = runs.status[index];
          if (status === 0) columns.cover(left - x + 1, right - x + 1, number);
          if (status !== 0) over.push(() => this.#paintUnusual(row, left, right, number, status));
          else if (right - left > LEAST_SEPARATED) over.push(() => this.#mark(row, left, right, number, runs.count[index]));
        });
      }
      columns.pieces((place, length, share, isPale, number) => this.#fill(row, x + place - 1, length, share, isPale, number));
      for (const paint of over) paint();
    });
    context.restore();
  }

  /** @param {number} row @returns {{y: number, height: number}} in device pixels */
  #band(row) {
    const pad = this.rowHeight > 12 ? 2 : 1;
    return { y: Math.round((row * this.rowHeight + pad) * this.scale), height: Math.max(2, Math.round((this.rowHeight - 2 * pad) * this.scale)) };
  }

  /** @param {number} number of a function */
  #dimness(number) {
    return this.highlighted !== null && this.highlighted !== (this.functions.get(number) || "") ? 0.16 : 1;
  }

  /**
   * @param {number} row
   * @param {number} x
   * @param {number} width
   * @param {number} share of the columns that is filled
   * @param {boolean} isPale by colour, not by height
   * @param {number} number of the function
   */
  #fill(row, x, width, share, isPale, number) {
    const context = this.tapeContext;
    const { y, height } = this.#band(row);
    context.fillStyle = functionColour(this.functions.get(number) || "");
    context.globalAlpha = this.#dimness(number) * (isPale ? share : 1);
    const filled = isPale ? height : height * share;
    context.fillRect(x, y + height - filled, width, filled);
    context.globalAlpha = 1;
  }

  /**
   * Where a bar begins, whether it stands for several tasks, and its name, on what is filled already.
   *
   * @param {number} row
   * @param {number} left
   * @param {number} right
   * @param {number} number of the function
   * @param {number} count
   */
  #mark(row, left, right, number, count) {
    const context = this.tapeContext;
    const { y, height } = this.#band(row);
    const x = Math.ceil(left);
    const width = Math.floor(right) - x;
    context.globalAlpha = this.#dimness(number);
    context.fillStyle = colour("stream-many");
    context.fillRect(x, y, 1, height);
    if (count > 1 && height > 8) context.fillRect(x, y + height - 2 * this.scale, width, 2 * this.scale);
    this.#name(x, y, width, height, this.functions.get(number) || "");
    context.globalAlpha = 1;
  }

  /**
   * What did not succeed: failures hatched, cancelled tasks hollow.
   *
   * @param {number} row
   * @param {number} left
   * @param {number} right
   * @param {number} number
   * @param {number} status
   */
  #paintUnusual(row, left, right, number, status) {
    const context = this.tapeContext;
    const { y, height } = this.#band(row);
    const scale = this.scale;
    const x = Math.round(left);
    const width = Math.max(1, Math.round(right) - x);
    context.globalAlpha = this.#dimness(number);
    if (isFailure(status)) {
      const wide = Math.max(width, LEAST_FAILURE);
      context.fillStyle = this.#hatch();
      context.fillRect(x, y, wide, height);
      context.fillStyle = this.hatchColour;
      context.fillRect(x, y, wide, Math.max(1, scale));
      context.fillRect(x, y + height - Math.max(1, scale), wide, Math.max(1, scale));
    } else {
      context.strokeStyle = colour("muted");
      context.lineWidth = scale;
      context.strokeRect(x + scale / 2, y + scale / 2, Math.max(1, width - scale), Math.max(1, height - scale));
    }
    context.globalAlpha = 1;
  }

  /**
   * Write a name in its bar, where it fits.
   *
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {string} name
   */
  #name(x, y, width, height, name) {
    if (width < 30 * this.scale || height < 12 * this.scale || !name) return;
    const context = this.tapeContext;
    context.font = `${Math.round(11 * this.scale)}px ui-sans-serif, system-ui, sans-serif`;
    let needed = this.nameWidths.get(name);
    if (needed === undefined) {
      needed = context.measureText(name).width;
      this.nameWidths.set(name, needed);
    }
    if (needed + 8 * this.scale > width) return;
    context.fillStyle = colour("stream-ink");
    context.textBaseline = "middle";
    context.fillText(name, x + 4 * this.scale, y + height / 2 + 0.5);
  }

  #hatch() {
    if (this.hatch) return this.hatch;
    const size = Math.round(6 * this.scale);
    const tile = document.createElement("canvas");
    tile.width = tile.height = size;
    const context = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
    this.hatchColour = colour("bad");
    context.fillStyle = colour("bad-fill");
    context.fillRect(0, 0, size, size);
    context.strokeStyle = this.hatchColour;
    context.lineWidth = 1.6 * this.scale;
    context.beginPath();
    for (const shift of [-size, 0, size]) {
      context.moveTo(shift, size);
      context.lineTo(shift + size, 0);
    }
    context.stroke();
    this.hatch = /** @type {CanvasPattern} */ (this.tapeContext.createPattern(tile, "repeat"));
    return this.hatch;
  }

  #stripes() {
    const { context } = this;
    context.fillStyle = colour("stream-stripe");
    let worker = NaN;
    let isStriped = true;
    this.lanes.forEach((lane, row) => {
      if (lane.worker !== worker) isStriped = !isStriped;
      worker = lane.worker;
      if (isStriped) context.fillRect(0, AXIS_HEIGHT + row * this.rowHeight, this.width, this.rowHeight);
    });
  }

  /** @param {number} left @param {number} right */
  #axis(left, right) {
    const { context } = this;
    const perSecond = this.timeWidth() / (right - left);
    const step = NICE_SECONDS.find((seconds) => seconds * perSecond >= 84) || 3600;
    context.strokeStyle = colour("line-soft");
    context.fillStyle = colour("muted");
    context.lineWidth = 1;
    context.font = "11px ui-sans-serif, system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (let tick = Math.ceil(left / step) * step; tick <= right; tick += step) {
      const x = Math.round(this.gutter + (tick - left) * perSecond) + 0.5;
      context.beginPath();
      context.moveTo(x, AXIS_HEIGHT - 5);
      context.lineTo(x, this.height);
      context.stroke();
      const text = clock(tick + 1e-6, step < 1 ? 3 : 0);
      const half = context.measureText(text).width / 2;
      if (x - half > this.gutter && x + half < this.width) context.fillText(text, x, AXIS_HEIGHT / 2);
    }
    context.textAlign = "left";
  }

  /**
   * Time of which the scheduler did not tell, in lanes of workers that it left out.
   *
   * @param {{left: number, right: number}} view
   * @param {Source[]} sources
   */
  #untold(view, sources) {
    const { context } = this;
    const perSecond = this.timeWidth() / (view.right - view.left);
    context.fillStyle = colour("stream-untold");
    for (const source of sources) {
      for (const [from, to, oneOf] of source.store.untold) {
        const left = Math.max(from, source.from, view.left);
        const right = Math.min(to, source.to, view.right);
        if (right <= left) continue;
        this.lanes.forEach((lane, row) => {
          if (lane.worker % oneOf === 0) return;
          context.fillRect(this.gutter + (left - view.left) * perSecond, AXIS_HEIGHT + row * this.rowHeight, (right - left) * perSecond, this.rowHeight);
        });
      }
    }
  }

  /** @param {{left: number, right: number, now: number, running: import("./runs.js").Run[]}} view */
  #running(view) {
    const { context } = this;
    const perSecond = this.timeWidth() / (view.right - view.left);
    const pad = this.rowHeight > 12 ? 2 : 1;
    for (const run of view.running) {
      const row = this.rows.get(run.lane);
      if (row === undefined || run.start > view.right) continue;
      const x = this.gutter + Math.max(-2, (run.start - view.left) * perSecond);
      const width = this.gutter + (Math.min(view.now, view.right) - view.left) * perSecond - x;
      if (width <= 0) continue;
      const y = AXIS_HEIGHT + row * this.rowHeight + pad;
      const height = this.rowHeight - 2 * pad;
      const name = this.functions.get(run.function) || "";
      const own = functionColour(name);
      const isDim = this.highlighted !== null && this.highlighted !== name;
      context.fillStyle = own;
      context.globalAlpha = isDim ? 0.08 : 0.34;
      context.fillRect(x, y, width, height);
      context.globalAlpha = isDim ? 0.2 : 1;
      context.fillRect(x, y, Math.min(2, width), height);
      context.globalAlpha = 1;
    }
  }

  /** @param {{left: number, right: number, now: number}} view @param {import("./runs.js").Run} run */
  #outline(view, run) {
    const row = this.rows.get(run.lane);
    if (row === undefined) return;
    const { context } = this;
    const perSecond = this.timeWidth() / (view.right - view.left);
    const x = this.gutter + (run.start - view.left) * perSecond;
    const width = Math.max(3, ((run.end ?? view.now) - run.start) * perSecond);
    context.strokeStyle = colour("ink");
    context.lineWidth = 1.5;
    context.strokeRect(x - 0.5, AXIS_HEIGHT + row * this.rowHeight + 0.75, width + 1, this.rowHeight - 1.5);
  }

  #labels() {
    const { context } = this;
    const size = Math.max(8, Math.min(11.5, this.rowHeight - 2));
    context.font = `${size}px ui-sans-serif, system-ui, sans-serif`;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.save();
    context.beginPath();
    context.rect(0, AXIS_HEIGHT, this.gutter - 6, this.height);
    context.clip();
    this.lanes.forEach((lane, row) => {
      const y = AXIS_HEIGHT + (row + 0.5) * this.rowHeight;
      if (y > this.height) return;
      context.fillStyle = colour(lane.is_gone ? "faint" : "muted");
      context.fillText(fitted(context, String(lane.title ?? ""), this.gutter - 14), 6, y);
    });
    context.restore();
  }
}

/**
 * The end of a long title tells more than its beginning: that is where the number is.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} width
 */
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let shown = text.length > 60 ? text.slice(-60) : text;
  while (shown.length > 3 && context.measureText(`…${shown}`).width > width) shown = shown.slice(1);
  return `…${shown}`;
}
