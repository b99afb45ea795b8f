/**
 * A live table: rows come sorted, filtered and cut to a page by the server; this shows them.
 *
 * Rules: it is a real `<table>` with `scope` and `aria-sort`; sorting is by buttons in its head. A row keeps its elements
 * as long as its key is in view, and only cells whose text changed are touched: focus, selection and an opened row stay
 * where they are while figures move, and nothing moves while a row is pressed. Elements of rows that leave are used for
 * those that come. What a row opens to stands in a row of its own under it.
 */

import { element, fill, setAttribute, setText, setVariable } from "./dom.js";
import { unlessPressed } from "./pressed.js";
import { functionStyle } from "./theme.js";

/**
 * @typedef {object} Column
 * @property {string} key of the row, and of the sort order
 * @property {string} label
 * @property {string} [title] what it means
 * @property {boolean} [sorts] false: the server does not sort by it
 * @property {string} [kind] a class of its cells: "number", "name", "small", ...
 * @property {(row: any) => string} [text]
 * @property {(cell: HTMLTableCellElement, row: any) => void} [draw] where text is not all
 */

/**
 * @typedef {{key: string, row: any, line: HTMLTableRowElement, cells: HTMLTableCellElement[], toggle: HTMLButtonElement | null, detail: HTMLTableRowElement | null}} Line
 */

export class DataTable {
  /**
   * @param {object} settings
   * @param {string} settings.caption read out, not shown
   * @param {Column[]} settings.columns
   * @param {(row: any) => string | number} settings.key
   * @param {(sort: string) => void} [settings.onSort] with "cpu" or "-cpu"
   * @param {(row: any) => Node | null} [settings.detail] what an opened row shows, made once
   * @param {(row: any, shown: Element) => void} [settings.redraw] bring that up to date
   * @param {(key: string) => void} [settings.onToggle]
   * @param {(row: any) => string} [settings.label] names a row, for buttons
   */
  constructor(settings) {
    this.settings = settings;
    this.sort = "";
    /** @type {Map<string, Line>} */
    this.lines = new Map();
    /** @type {Set<string>} */
    this.opened = new Set();
    /** @type {Map<string, HTMLTableCellElement>} */
    this.heads = new Map();
    const head = element("tr");
    if (settings.detail) head.append(element("th", { scope: "col", class: "toggle" }, element("span", { class: "sr", text: "Details" })));
    for (const column of settings.columns) head.append(this.#head(column));
    this.body = element("tbody");
    this.table = element("table", { class: "data" }, element("caption", { class: "sr", text: settings.caption }), element("thead", {}, head), this.body);
    this.element = element("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": settings.caption }, this.table);
  }

  /** @param {Column} column */
  #head(column) {
    const cell = element("th", { scope: "col", class: column.kind || "", title: column.title });
    if (column.sorts === false || !this.settings.onSort) {
      cell.append(column.label);
      return cell;
    }
    const button = element("button", { type: "button", class: "sort" }, column.label, element("span", { class: "arrow", "aria-hidden": "true" }));
    button.addEventListener("click", () => {
      const isNumber = (column.kind || "").includes("number");
      const first = isNumber ? `-${column.key}` : column.key;
      const other = isNumber ? column.key : `-${column.key}`;
      this.settings.onSort?.(this.sort === first ? other : first);
    });
    cell.append(button);
    this.heads.set(column.key, cell);
    return cell;
  }

  /** @param {string} sort "cpu", or "-cpu" for the largest first */
  showSort(sort) {
    this.sort = sort;
    for (const [key, cell] of this.heads) {
      setAttribute(cell, "aria-sort", sort === key ? "ascending" : sort === `-${key}` ? "descending" : "none");
    }
  }

  /** @param {any[]} rows */
  show(rows) {
    unlessPressed(this.body, () => this.#show(rows));
  }

  /** @param {any[]} rows */
  #show(rows) {
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    const keys = rows.map((row) => String(this.settings.key(row)));
    const wanted = new Set(keys);
    const free = [...this.lines.keys()].filter((key) => !wanted.has(key)).map((key) => this.#release(key));
    const shown = rows.map((row, index) => {
      const key = keys[index];
      const line = this.lines.get(key) || free.pop() || this.#make();
      this.lines.set(key, line);
      line.key = key;
      line.row = row;
      this.#draw(line);
      return line;
    });
    for (const line of free) line.line.remove();
    // Elements move only where the order changed.
    let place = this.body.firstElementChild;
    for (const line of shown) {
      for (const part of line.detail ? [line.line, line.detail] : [line.line]) {
        if (part === place) place = place.nextElementSibling;
        else this.body.insertBefore(part, place);
      }
    }
    if (focused && focused !== document.activeElement && focused.isConnected) /** @type {HTMLElement} */ (focused).focus({ preventScroll: true });
  }

  clear() {
    this.opened.clear();
    this.show([]);
  }

  /** @returns {Line} */
  #make() {
    const line = element("tr");
    /** @type {HTMLButtonElement | null} */
    let toggle = null;
    if (this.settings.detail) {
      toggle = element("button", { type: "button", class: "quiet disclose", "aria-expanded": "false", on: { click: () => this.toggle(made.key) } });
      line.append(element("td", { class: "toggle" }, toggle));
    }
    const cells = this.settings.columns.map((column) => element("td", { class: column.kind || "" }));
    line.append(...cells);
    /** @type {Line} */
    const made = { key: "", row: null, line, cells, toggle, detail: null };
    return made;
  }

  /**
   * @param {string} key of a row that is not in view any more
   * @returns {Line} to be used for another one
   */
  #release(key) {
    const line = /** @type {Line} */ (this.lines.get(key));
    line.detail?.remove();
    line.detail = null;
    // A key pressed now is meant for the row that was there.
    if (line.line.contains(document.activeElement)) /** @type {HTMLElement} */ (document.activeElement).blur();
    this.lines.delete(key);
    return line;
  }

  /** @param {string} key open or close what is under a row */
  toggle(key) {
    if (!this.opened.delete(key)) this.opened.add(key);
    const line = this.lines.get(key);
    if (line?.row) this.#draw(line);
    this.settings.onToggle?.(key);
  }

  /** @param {Line} line */
  #draw(line) {
    const { row, cells } = line;
    this.settings.columns.forEach((column, index) => {
      if (column.draw) column.draw(cells[index], row);
      else setText(cells[index], column.text ? column.text(row) : String(row[column.key] ?? "–"));
    });
    if (!line.toggle) return;
    const key = line.key;
    const isOpen = this.opened.has(key);
    setAttribute(line.toggle, "aria-expanded", isOpen ? "true" : "false");
    setAttribute(line.toggle, "aria-label", `${isOpen ? "Close" : "Open"} ${this.settings.label ? this.settings.label(row) : key}`);
    if (!isOpen) {
      line.detail?.remove();
      line.detail = null;
      return;
    }
    let detail = line.detail;
    if (!detail) {
      const made = this.settings.detail?.(row);
      detail = /** @type {HTMLTableRowElement} */ (element("tr", { class: "detail" }, element("td", { colspan: cells.length + 1 }, made)));
      line.detail = detail;
      line.line.after(detail);
    }
    this.settings.redraw?.(row, /** @type {Element} */ (detail.firstElementChild));
  }
}

/**
 * A cell with a bar behind its text.
 *
 * @param {HTMLElement} cell
 * @param {number} share of 1
 * @param {string} text
 */
export function drawBar(cell, share, text) {
  let bar = /** @type {HTMLElement | null} */ (cell.querySelector(".bar"));
  if (!bar) {
    bar = element("span", { class: "bar" }, element("span"));
    cell.append(/** @type {HTMLElement} */ (bar));
  }
  setVariable(/** @type {HTMLElement} */ (bar), "share", Math.max(0, Math.min(1, share || 0)).toFixed(3));
  setText(/** @type {Element} */ (bar?.firstElementChild), text);
}

/**
 * A cell with a link.
 *
 * @param {HTMLElement} cell
 * @param {string} address
 * @param {string} text
 * @param {string} [title]
 */
export function drawLink(cell, address, text, title) {
  let link = cell.querySelector("a");
  if (!link) {
    link = element("a");
    fill(cell, link);
  }
  setAttribute(/** @type {Element} */ (link), "href", address);
  setAttribute(/** @type {Element} */ (link), "title", title || null);
  setText(/** @type {Element} */ (link), text);
}

/**
 * A cell that names a function, with its colour before it.
 *
 * @param {HTMLElement} cell
 * @param {string} text
 * @param {string | null} [address] where it links to
 */
export function drawFunction(cell, text, address = null) {
  let swatch = /** @type {HTMLElement | null} */ (cell.querySelector(".swatch"));
  if (!swatch || (swatch.nextElementSibling?.tagName === "A") !== Boolean(address)) {
    swatch = element("i", { class: "swatch", "aria-hidden": "true" });
    fill(cell, swatch, element(address ? "a" : "span"));
  }
  const named = /** @type {Element} */ (swatch?.nextElementSibling);
  setVariable(/** @type {HTMLElement} */ (swatch), "own", functionStyle(text));
  setAttribute(named, "title", text.length > 24 ? text : null);
  if (address) setAttribute(named, "href", address);
  setText(named, text);
}

/**
 * Badges: words that stand out, each with a kind that colours it.
 *
 * @param {HTMLElement} cell
 * @param {[string, string][]} badges text and kind
 */
export function drawBadges(cell, badges) {
  const wanted = badges.map(([text, kind]) => `${kind}:${text}`).join("|");
  if (cell.dataset.badges === wanted) return;
  cell.dataset.badges = wanted;
  fill(cell, ...badges.map(([text, kind]) => element("span", { class: `badge ${kind}`, text })));
}
