/**
 * Charts of figures over time, drawn by uPlot.
 *
 * Rules: a chart has a name, says its newest figures in words beside it, and draws only when it has new points or another
 * size or theme. All charts of a page share one cursor. Colours come from the style sheet; where two lines share a chart,
 * they also differ in their dashes.
 */

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { element, fill, setText } from "./dom.js";
import { clock } from "./format.js";
import { colour, onTheme } from "./theme.js";

/**
 * @typedef {object} Line
 * @property {string} key of the series
 * @property {string} label
 * @property {string} colour name of a custom property
 * @property {boolean} [fills]
 * @property {number[]} [dash]
 * @property {boolean} [steps]
 */

const WHOLE = Array.from({ length: 16 }, (_nothing, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();
const POWERS_OF_TWO = Array.from({ length: 50 }, (_nothing, power) => 2 ** power);
const STEPS = [null, WHOLE, POWERS_OF_TWO];

export class Chart {
  /**
   * @param {string} title
   * @param {Line[]} lines
   * @param {(value: number | null) => string} format of the axis and the legend
   * @param {number} least the scale reaches at least to this
   * @param {number} [steps] 1: its axis has steps of whole numbers; 2: of powers of two
   */
  constructor(title, lines, format, least, steps = 0) {
    this.lines = lines;
    this.format = format;
    this.least = least;
    this.steps = STEPS[steps];
    /** @type {(number | null)[][]} */
    this.data = [[], ...lines.map(() => [])];
    /** @type {uPlot | null} */
    this.plot = null;
    this.canvas = element("div", { class: "chart-canvas" });
    this.figures = lines.map(() => element("b", { text: "–" }));
    const legend = element("ul", { class: "legend" });
    lines.forEach((line, index) => {
      const key = element("i", { class: `key ${line.dash ? "dashed" : ""}`, vars: { key: `var(--${line.colour})` } });
      legend.append(element("li", {}, key, line.label, " ", this.figures[index]));
    });
    this.at = element("span", { class: "chart-at" });
    this.element = element(
      "section",
      { class: "panel chart", "aria-label": title },
      element("header", {}, element("h2", { text: title }), this.at, legend),
      this.canvas,
    );
    this.observer = new ResizeObserver(() => this.#fit());
    this.observer.observe(this.canvas);
    this.endTheme = onTheme(() => this.#rebuild());
  }

  close() {
    this.observer.disconnect();
    this.endTheme();
    this.plot?.destroy();
    this.plot = null;
  }

  /**
   * @param {(number | null)[]} time unix seconds
   * @param {Record<string, (number | null)[]>} series
   */
  show(time, series) {
    this.data = [time, ...this.lines.map((line) => series[line.key] || time.map(() => null))];
    if (this.plot) this.plot.setData(/** @type {any} */ (this.data));
    else this.#rebuild();
    if (!this.plot || this.plot.cursor.idx === null || this.plot.cursor.idx === undefined) this.#tell(null);
  }

  /** @param {number | null} index the point to describe; null: the newest */
  #tell(index) {
    const last = this.data[0].length - 1;
    const place = index === null || index > last ? last : index;
    this.lines.forEach((_line, number) => {
      setText(this.figures[number], this.format(place < 0 ? null : (this.data[number + 1][place] ?? null)));
    });
    setText(this.at, index === null || place < 0 ? "" : clock(this.data[0][place]));
  }

  #fit() {
    const { width, height } = this.canvas.getBoundingClientRect();
    if (!width || !height) return;
    if (!this.plot) this.#rebuild();
    else if (Math.abs(this.plot.width - width) >= 1 || Math.abs(this.plot.height - height) >= 1) this.plot.setSize({ width, height });
  }

  #rebuild() {
    const { width, height } = this.canvas.getBoundingClientRect();
    if (!width || !height) return;
    this.plot?.destroy();
    fill(this.canvas);
    const axis = { stroke: colour("muted"), grid: { stroke: colour("line-soft"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    this.plot = new uPlot(
      /** @type {any} */ ({
        width,
        height,
        padding: [8, 20, 0, 0],
        legend: { show: false },
        cursor: { sync: { key: "overview" }, drag: { x: false, y: false }, y: false, points: { size: 6 } },
        scales: { x: { time: true }, y: { range: (/** @type {any} */ _plot, /** @type {number} */ _low, /** @type {number} */ high) => [0, Math.max(this.least, (high || 0) * 1.08)] } },
        axes: [
          { ...axis, size: 24, space: 56, values: (/** @type {any} */ _plot, /** @type {number[]} */ splits, /** @type {any} */ _index, /** @type {any} */ _space, /** @type {number} */ step) => splits.map((split) => (step < 60 ? clock(split) : clock(split).slice(0, 5))) },
          { ...axis, size: 58, space: 34, gap: 6, ...(this.steps ? { incrs: this.steps } : {}), values: (/** @type {any} */ _plot, /** @type {number[]} */ splits) => splits.map((split) => this.format(split)) },
        ],
        series: [
          {},
          ...this.lines.map((line) => ({
            label: line.label,
            stroke: colour(line.colour),
            width: 1.75,
            dash: line.dash,
            fill: line.fills ? colour(`${line.colour}-fill`) : undefined,
            points: { show: false },
            paths: line.steps ? uPlot.paths.stepped?.({ align: 1 }) : undefined,
          })),
        ],
        hooks: { setCursor: [(/** @type {any} */ plot) => this.#tell(plot.cursor.idx ?? null)] },
      }),
      /** @type {any} */ (this.data),
      this.canvas,
    );
  }
}
