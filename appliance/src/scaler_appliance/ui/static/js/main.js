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
import { name } from "./format.js";
import { Feed, isFinal } from "./feed.js";
import { Header } from "./header.js";
import { startKeyboard } from "./keyboard.js";
import { Notices } from "./notices.js";
import { PAGES } from "./pages.js";
import * as route from "./route.js";
import { act } from "./server.js";
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
 * @property {string[]} names of the parameters that its address may have
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
let schedulerId = ""; // of the last scheduler that was heard of
/** @type {HTMLElement | null} what stands in the place of a page that cannot be shown */
let explanation = null;

const feed = new Feed(receive, (condition) => {
  header.showCondition(condition);
  notices.showCondition(condition, head);
  document.body.dataset.feed = condition.state;
  const refusal = condition.refusal;
  if (refusal && isFinal(refusal.status)) {
    explain(`This cannot be shown: ${refusal.text}`);
    feed.watch("head", {}); // what stands above the page goes on
  }
  page?.condition?.(condition);
});
const header = new Header({ onPause: togglePause, onHelp: () => keyboard.help(), onLogout: logOut });
const keyboard = startKeyboard({ page: () => page, pause: togglePause });

/** @type {Context} */
const context = { head: () => head, watch, notices, feed };

/** @param {{head: any, body: any}} event */
function receive(event) {
  // A scaler_ui that was restarted has not heard of a scheduler yet, and counts them from 1: only their ids tell.
  const isRestart = Boolean(event.head.scheduler_id) && event.head.scheduler_id !== schedulerId;
  const hadScheduler = Boolean(schedulerId);
  head = event.head;
  if (head.scheduler_id) schedulerId = head.scheduler_id;
  try {
    if (isRestart && hadScheduler) {
      page?.reset?.();
      notices.restarted(head);
    }
    if (event.body && explanation) endExplanation();
    header.show(head);
    notices.show(head);
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
  if (!page || explanation) return;
  feed.watch(page.feed ?? pageName, page.parameters());
}

function togglePause() {
  feed.pause(!feed.isPaused);
}

async function logOut() {
  try {
    const answer = await act("logout");
    if (answer.ok || answer.status === 401) location.reload(); // the server says what is needed to come back
    else notices.message(`Logging out did not work: ${await answer.text()}`, "action");
  } catch {
    notices.message("Logging out did not work: scaler_ui does not answer.", "action");
  }
}

/**
 * Say why an address shows nothing, in the place of what was there.
 *
 * @param {string} text
 */
function explain(text) {
  if (explanation?.dataset.text === text) return;
  endExplanation();
  const known = entry(pageName);
  const back = known ? [element("a", { href: route.address(known.tab || pageName), text: `Back to ${PAGES[known.tab || pageName].title}` }), " · "] : [];
  explanation = element("section", { class: "panel empty wrong-address", role: "alert", "data-text": text }, element("p", { class: "empty-title", text }), element("p", {}, ...back, element("a", { href: route.address("overview"), text: "Overview" })));
  pageElement.append(/** @type {HTMLElement} */ (explanation));
  if (page) page.element.hidden = true;
}

function endExplanation() {
  explanation?.remove();
  explanation = null;
  if (page) page.element.hidden = false;
}

/** @param {string} page @returns {import("./pages.js").Entry | null} names that every object has are no pages */
function entry(page) {
  return Object.hasOwn(PAGES, page) ? PAGES[page] : null;
}

/** @param {route.Route} where */
function checkNames(where) {
  for (const asked of where.query.keys()) {
    const names = page?.names || [];
    if (!names.includes(asked)) throw new route.AddressError(`“${name(asked)}” is nothing that this page can be asked for${names.length ? `; it knows ${names.join(", ")}` : ""}.`);
  }
}

function routed() {
  const where = route.current();
  const known = where.path.length === 0 || where.page === "task" ? entry(where.page) : null;
  endExplanation();
  try {
    if (!known) throw new route.AddressError(`There is no page “${name([where.page, ...where.path].join("/"))}”.`);
    show(known, where);
  } catch (error) {
    if (!(error instanceof route.AddressError)) throw error;
    if (!known) leave(where);
    explain(error.message);
    feed.watch("head", {});
  }
}

/** @param {route.Route} where no page of ours */
function leave(where) {
  page?.close?.();
  page = null;
  pageName = "";
  Object.assign(document.body.dataset, { identity: "", page: "" });
  document.title = "Scaler";
  fill(pageElement, element("h1", { class: "sr", text: name(where.page) }));
  header.showPage("");
}

/**
 * @param {import("./pages.js").Entry} known
 * @param {route.Route} where
 */
function show(known, where) {
  const identity = where.page === "task" ? [where.page, ...where.path].join("/") : where.page;
  if (!page || identity !== document.body.dataset.identity) {
    page?.close?.();
    page = null;
    pageName = where.page;
    document.body.dataset.identity = identity;
    document.body.dataset.page = where.page;
    document.title = `${known.title} · Scaler`;
    fill(pageElement, element("h1", { class: "sr", text: known.title }));
    header.showPage(known.tab || where.page);
    page = known.open(context, where);
    pageElement.append(page.element);
    pageElement.scrollTo(0, 0);
    checkNames(where);
    page.routed(where);
    page.condition?.(feed.condition());
  } else {
    checkNames(where);
    page.routed(where);
  }
  watch();
}

startTheme();
window.addEventListener("hashchange", routed);
routed();
