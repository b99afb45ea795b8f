/**
 * A page that is one list: a search field, filters, a table, and a pager.
 *
 * Rules: the server sorts, filters and cuts; what it is asked for is in the address, so a list can be sent as a link. The
 * list says how much of how much is in view. Where it is empty it says why, and what to do about that.
 */

import { debounced, element, fill, setAttribute, setText } from "./dom.js";
import { count } from "./format.js";
import { address, go, positive, replace } from "./route.js";
import { DataTable } from "./table.js";

const TYPING_MILLISECONDS = 200;
const SIZES = [25, 50, 100, 200];

/**
 * @typedef {object} ListSettings
 * @property {string} page
 * @property {string} caption
 * @property {string} noun "workers": for "12 workers"
 * @property {string} sort the order at first; "" where the list has one order only
 * @property {string} [searchName] of the parameter, "filter" unless said
 * @property {string} placeholder
 * @property {import("./table.js").Column[]} columns
 * @property {(row: any) => string | number} key
 * @property {(row: any) => string} [label]
 * @property {(row: any) => Node | null} [detail]
 * @property {(row: any, shown: Element, body: any) => void} [redraw]
 * @property {string[]} [filters] further parameters that the address may have
 * @property {HTMLElement[]} [controls] further controls beside the search field
 * @property {(query: URLSearchParams, head: any) => string} [missing] why a filter may find nothing
 * @property {(head: any) => Node} empty what to show when there is nothing at all
 * @property {(body: any, head: any) => void} [onBody]
 * @property {(body: any) => string} [remark] beside the count
 */

/**
 * @param {import("./main.js").Context} context
 * @param {ListSettings} settings
 * @returns {import("./main.js").Page & {query: () => URLSearchParams, change: (changes: Record<string, string | number | null>, isLarge?: boolean) => void, table: DataTable}}
 */
export function openList(context, settings) {
  const searchName = settings.searchName || "filter";
  let query = new URLSearchParams();
  let matching = 0;
  let isClosed = false;
  /** @type {any} */
  let body = {};

  const table = new DataTable({
    caption: settings.caption,
    columns: settings.columns,
    key: settings.key,
    label: settings.label,
    onSort: settings.sort ? (sort) => change({ sort, offset: null }) : undefined,
    detail: settings.detail,
    redraw: settings.redraw && ((row, shown) => settings.redraw?.(row, shown, body)),
    onToggle: () => context.watch(),
  });

  const search = element("input", { type: "search", placeholder: settings.placeholder, "aria-label": settings.placeholder, spellcheck: "false", autocomplete: "off", maxlength: 200 });
  const typed = debounced(() => change({ [searchName]: search.value.trim(), offset: null }), TYPING_MILLISECONDS);
  search.addEventListener("input", typed);
  search.addEventListener("change", () => {
    typed.cancel();
    change({ [searchName]: search.value.trim(), offset: null });
  });
  const before = element("button", { type: "button", "aria-label": "Page before", text: "‹", on: { click: () => turn(-1) } });
  const after = element("button", { type: "button", "aria-label": "Next page", text: "›", on: { click: () => turn(1) } });
  const shown = element("output", { class: "shown" });
  const size = element("select", { "aria-label": "Rows on a page" }, ...SIZES.map((rows) => element("option", { value: rows, text: `${rows} rows` })));
  size.addEventListener("change", () => change({ limit: size.value === "50" ? null : size.value, offset: null }));
  const empty = element("div", { class: "empty", hidden: true });
  const tools = element(
    "div",
    { class: "tools" },
    element("label", { class: "search" }, search, element("kbd", { text: "/" })),
    ...(settings.controls || []),
    element("span", { class: "spread" }),
    shown,
    element("span", { class: "pager" }, before, after),
    size,
  );

  /** @param {number} pages */
  function turn(pages) {
    const offset = Math.max(0, number("offset", 0) + pages * number("limit", 50));
    if (pages > 0 && offset >= matching) return;
    change({ offset: offset || null }, true);
  }

  /** @param {string} name @param {number} otherwise */
  function number(name, otherwise) {
    return Number(query.get(name)) || otherwise;
  }

  /**
   * @param {Record<string, string | number | null>} changes of the address; null removes
   * @param {boolean} [isLarge] "back" undoes it
   */
  function change(changes, isLarge = false) {
    // A field that is taken off the page tells that it changed, when the reader is elsewhere already.
    if (isClosed) return;
    const next = new URLSearchParams(query);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") next.delete(name);
      else next.set(name, String(value));
    }
    const hash = address(settings.page, [], next);
    if (isLarge) go(hash);
    else replace(hash);
  }

  function isFiltered() {
    return [searchName, ...(settings.filters || [])].some((name) => query.get(name));
  }

  /** @param {any} head */
  function showEmpty(head) {
    const unknown = Array.isArray(body.unknown) ? body.unknown.map(String) : [];
    const kind = matching > 0 ? "" : isFiltered() ? `filtered ${query} ${unknown} ${settings.missing?.(query, head)}` : `nothing ${head?.address} ${head?.workers ? 1 : 0}`;
    empty.hidden = !kind;
    table.element.hidden = Boolean(kind);
    if (empty.dataset.kind === kind) return;
    empty.dataset.kind = kind;
    if (!kind) fill(empty);
    else if (isFiltered()) {
      const all = element("a", { href: address(settings.page, [], { sort: query.get("sort") }), text: "Show all" });
      const title = unknown.length ? `There is no ${unknown.join(", and no ")} (any more).` : `No ${settings.noun} match.`;
      const missing = settings.missing?.(query, head);
      fill(empty, element("p", { class: "empty-title", text: title }), missing ? element("p", { text: missing }) : null, element("p", {}, all));
    } else fill(empty, settings.empty(head));
  }

  return {
    element: element("div", { class: "list" }, tools, table.element, empty),
    table,
    change,
    query: () => query,
    parameters() {
      /** @type {Record<string, string | number | null>} */
      const asked = { offset: number("offset", 0), limit: number("limit", 50), [searchName]: query.get(searchName) };
      if (settings.sort) asked.sort = query.get("sort") || settings.sort;
      for (const name of settings.filters || []) asked[name] = query.get(name);
      if (settings.redraw && table.opened.size) asked.expand = [...table.opened].join(",");
      return asked;
    },
    names: [searchName, "offset", "limit", ...(settings.sort ? ["sort"] : []), ...(settings.filters || [])],
    routed(where) {
      positive(where, "offset", "a whole number", true);
      const limit = positive(where, "limit", "a whole number", true);
      if (limit && ![...size.options].some((option) => option.value === String(limit))) size.append(element("option", { value: limit, text: `${limit} rows` }));
      query = where.query;
      if (document.activeElement !== search) search.value = query.get(searchName) || "";
      size.value = String(number("limit", 50));
      table.showSort(query.get("sort") || settings.sort);
    },
    receive(news, head) {
      const rows = (Array.isArray(news.rows) ? news.rows : []).filter((/** @type {unknown} */ row) => row && typeof row === "object");
      body = { ...news, rows };
      matching = Number(news.matching ?? rows.length) || 0;
      const offset = Number(news.offset) || 0;
      if (rows.length === 0 && matching > 0 && offset >= matching) {
        // The list has become shorter than where the reader was.
        change({ offset: null });
        return;
      }
      settings.onBody?.(body, head);
      table.show(rows);
      const total = Number(news.total ?? matching) || matching;
      const range = rows.length ? `${count(offset + 1)}–${count(offset + rows.length)} of ${count(matching)}` : "0";
      const outOf = matching < total ? ` matching, ${count(total)} ${settings.noun} in all` : ` ${settings.noun}`;
      setText(shown, range + outOf + (settings.remark?.(news) || ""));
      setAttribute(before, "disabled", offset <= 0);
      setAttribute(after, "disabled", offset + rows.length >= matching);
      showEmpty(head);
    },
    reset() {
      table.clear();
      matching = 0;
      setText(shown, "");
      change({ offset: null });
      context.watch();
    },
    search() {
      search.focus();
      search.select();
    },
    key(event) {
      // In a table that is wider than the window, these keys scroll it.
      if (event.target === table.element && table.element.scrollWidth > table.element.clientWidth) return false;
      if (event.key === "ArrowLeft" && !before.disabled) turn(-1);
      else if (event.key === "ArrowRight" && !after.disabled) turn(1);
      else return false;
      return true;
    },
    close() {
      isClosed = true;
      typed.cancel();
    },
  };
}
