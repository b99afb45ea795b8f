/**
 * The program of the page: it puts the parts together.
 *
 *     address ──▶ route ──▶ page in view ──parameters──▶ Feed ──events──▶ page in view, header, notices
 *     keys, buttons ──────────▶ route
 *
 * Rules: a page knows only its context; one page lives at a time, and is closed before the next one opens. An error in
 * showing one event is told to the reader once, and does not stop the following events.
 */

import { element, fill } from "./dom.js";
import { Feed } from "./feed.js";
import { Header } from "./header.js";
import { startKeyboard } from "./keyboard.js";
import { Notices } from "./notices.js";
import { PAGES } from "./pages.js";
import * as route from "./route.js";
import { startTheme } from "./theme.js";

/**
 * What a page is given.
 *
 * @typedef {object} Context
 * @property {() => any} head the newest head of the server, or null
 * @property {() => void} watch ask the server for what `parameters()` says now
 * @property {Notices} notices
 * @property {Feed} feed
 *
 * What it gives.
 *
 * @typedef {object} Page
 * @property {HTMLElement} element
 * @property {string} [feed] the server's name of the page, where it is another one; "" for none
 * @property {() => Record<string, string | number | null | undefined>} parameters
 * @property {(route: route.Route) => void} routed the address was changed within this page
 * @property {(body: any, head: any) => void} receive
 * @property {() => void} [reset] another scheduler is there: forget what was
 * @property {(event: KeyboardEvent) => boolean} [key] true: it was for this page
 * @property {() => void} [search] go to the search field
 * @property {(condition: import("./feed.js").FeedCondition) => void} [condition]
 * @property {() => void} [close]
 */

const pageElement = /** @type {HTMLElement} */ (document.getElementById("page"));
const notices = new Notices(/** @type {HTMLElement} */ (document.getElementById("notices")));
/** @type {Page | null} */
let page = null;
let pageName = "";
/** @type {any} */
let head = null;
let brokenEvents = 0;

const feed = new Feed(receive, (condition) => {
  header.showCondition(condition);
  notices.showCondition(condition, head);
  document.body.dataset.feed = condition.state;
  page?.condition?.(condition);
});
const header = new Header({ onPause: togglePause, onHelp: () => keyboard.help() });
const keyboard = startKeyboard({ page: () => page, pause: togglePause });

/** @type {Context} */
const context = { head: () => head, watch, notices, feed };

/** @param {{head: any, body: any}} event */
function receive(event) {
  const isRestart = head !== null && (event.head.generation !== head.generation || event.head.scheduler_id !== head.scheduler_id);
  const hadScheduler = head !== null && Boolean(head.scheduler_id);
  head = event.head;
  try {
    if (isRestart) {
      page?.reset?.();
      if (hadScheduler) notices.restarted(head);
    }
    header.show(head);
    if (event.body) page?.receive(event.body, head);
    brokenEvents = 0;
  } catch (error) {
    brokenEvents += 1;
    if (brokenEvents === 1) {
      console.warn("an event could not be shown", error);
      notices.trouble("This page could not show the newest figures. Reloading it may help.");
    }
  }
  document.body.dataset.events = String(Number(document.body.dataset.events || 0) + 1);
}

function watch() {
  if (!page) return;
  feed.watch(page.feed ?? pageName, page.parameters());
}

function togglePause() {
  feed.pause(!feed.isPaused);
}

function routed() {
  const where = route.current();
  const known = PAGES[where.page];
  if (!known) {
    route.replace(route.address("overview"));
    return;
  }
  const identity = where.page === "task" ? [where.page, ...where.path].join("/") : where.page;
  if (page && identity === document.body.dataset.identity) {
    page.routed(where);
  } else {
    page?.close?.();
    pageName = where.page;
    document.body.dataset.identity = identity;
    document.body.dataset.page = where.page;
    document.title = `${known.title} · Scaler`;
    page = known.open(context, where);
    fill(pageElement, element("h1", { class: "sr", text: known.title }), page.element);
    pageElement.scrollTo(0, 0);
    header.showPage(known.tab || where.page);
    page.routed(where);
    page.condition?.(feed.condition());
  }
  watch();
}

startTheme();
window.addEventListener("hashchange", routed);
routed();
