/**
 * What stands around every page: navigation, the state of the feed, and the cluster in one line.
 *
 * Rules: figures here come from the head of each event; the badge says "live" only while events come. Text and a shape say
 * the state as well as the colour.
 */

import { element, fill, icon, setAttribute, setText, setVariable } from "./dom.js";
import { bytes, clock, count, percent, rate, short, span } from "./format.js";
import { PAGES, TABS } from "./pages.js";
import { address } from "./route.js";
import { drawLink } from "./table.js";
import { nextTheme, onTheme, theme } from "./theme.js";

const STATE_WORDS = { connecting: "connecting", live: "live", stale: "stale", paused: "paused", hidden: "hidden", refused: "not shown" };

export class Header {
  /** @param {{onPause: () => void, onHelp: () => void, onLogout: () => void}} actions */
  constructor(actions) {
    this.links = new Map();
    const navigation = /** @type {HTMLElement} */ (document.getElementById("navigation"));
    TABS.forEach((name, index) => {
      const link = element("a", { href: address(name), title: `${PAGES[name].title} (key ${index + 1})` }, icon(PAGES[name].icon), element("span", { text: PAGES[name].title }), element("kbd", { text: index + 1 }));
      this.links.set(name, link);
      navigation.append(link);
    });

    this.themeButton = element("button", { type: "button", class: "quiet", id: "theme", on: { click: nextTheme } });
    onTheme(() => this.#showTheme());
    this.#showTheme();
    const help = element("button", { type: "button", class: "quiet", id: "help", title: "Keys (?)", on: { click: actions.onHelp } }, element("span", { text: "Keys" }), element("kbd", { text: "?" }));
    this.logout = element("button", { type: "button", class: "quiet", id: "logout", title: "End this browser's session", hidden: true, "aria-label": "Log out", on: { click: actions.onLogout } }, icon("M2 2h5v1.500H3.500v9H7V14H2zM9.500 4.500L13.500 8l-4 3.500V9h-4V7h4z"), element("span", { text: "Log out" }));
    document.getElementById("side-foot")?.append(this.themeButton, help, this.logout);

    this.badge = element("span", { class: "state", "data-state": "connecting" }, element("i"), element("b", { text: "connecting" }));
    this.pause = element("button", { type: "button", id: "pause", class: "quiet", "aria-pressed": "false", title: "Pause or go on (space)", on: { click: actions.onPause } }, "Pause");
    this.where = element("span", { class: "where" });
    /** @type {Record<string, HTMLElement>} */
    this.vitals = {};
    const vitals = element("dl", { class: "vitals" });
    for (const [name, label, title] of [
      ["rate", "tasks/s", "Tasks that ended in the last seconds, a second"],
      ["running", "at workers", "Tasks at workers: those that run, and those that workers hold ready"],
      ["waiting", "waiting", "Tasks that wait for a worker or for other tasks"],
      ["workers", "workers", "Connected now"],
      ["busy", "busy", "Slots that have a task, of all"],
      ["failed", "failed", "Tasks that failed since the scheduler started"],
      ["rss", "scheduler", "Processor time and memory of the scheduler"],
    ]) {
      this.vitals[name] = element("dd", { text: "–" });
      vitals.append(element("div", { title, "data-vital": name }, element("dt", { text: label }), this.vitals[name]));
    }
    document.getElementById("top")?.append(element("div", { class: "top-line" }, this.badge, this.where, this.pause), vitals);
  }

  #showTheme() {
    const word = { auto: "As the system", light: "Light", dark: "Dark" }[theme()];
    fill(this.themeButton, icon("M8 1.500v13a6.500 6.500 0 000-13zM8 1.500a6.500 6.500 0 000 13"), element("span", { text: word }), element("kbd", { text: "t" }));
    this.themeButton.title = `Theme: ${word} (t)`;
    this.themeButton.setAttribute("aria-label", `Theme: ${word}. Change it`);
  }

  /** @param {string} name of the page in view */
  showPage(name) {
    for (const [key, link] of this.links) {
      setAttribute(link, "aria-current", key === name ? "page" : null);
      // In a narrow window the navigation scrolls sideways.
      if (key === name && link.parentElement.scrollWidth > link.parentElement.clientWidth) {
        link.parentElement.scrollLeft = link.offsetLeft - link.parentElement.clientWidth / 2 + link.offsetWidth / 2;
      }
    }
  }

  /** @param {import("./feed.js").FeedCondition} condition */
  showCondition(condition) {
    setAttribute(this.badge, "data-state", condition.state);
    setText(/** @type {Element} */ (this.badge.lastElementChild), STATE_WORDS[condition.state]);
    const isPaused = condition.state === "paused";
    setAttribute(this.pause, "aria-pressed", isPaused ? "true" : "false");
    setText(this.pause, isPaused ? "Go on" : "Pause");
  }

  /** @param {any} head */
  show(head) {
    this.logout.hidden = !head.is_logged_in;
    const tasks = head.tasks || {};
    const version = head.version ? `Scaler ${head.version}` : "";
    const python = head.python ? `${head.python}` : "";
    const words = [head.address, version, python, Number.isFinite(head.uptime_seconds) ? `up ${span(head.uptime_seconds)}` : ""];
    setText(this.where, words.filter(Boolean).join("  ·  ") || "no scheduler yet");
    setAttribute(this.where, "title", `Status from ${head.monitor || "?"}; the server's clock: ${clock(head.clock)}`);
    setText(this.vitals.rate, rate(head.rates?.finished));
    setText(this.vitals.running, short(tasks.running));
    setText(this.vitals.waiting, short((tasks.unassigned || 0) + (tasks.waiting || 0)));
    setText(this.vitals.workers, count(head.workers));
    const share = head.slots ? head.busy / head.slots : 0;
    setText(this.vitals.busy, head.slots ? `${short(head.busy)} / ${short(head.slots)}` : "–");
    setVariable(/** @type {HTMLElement} */ (this.vitals.busy.parentElement), "share", Math.min(1, share).toFixed(3));
    const failed = (tasks.failed || 0) + (tasks.lost || 0);
    if (failed > 0) drawLink(this.vitals.failed, address("tasks", [], { state: "failures" }), short(failed), `${count(failed)} failed: show them`);
    else fill(this.vitals.failed, "0");
    setAttribute(/** @type {Element} */ (this.vitals.failed.parentElement), "data-alarm", failed > 0);
    setText(this.vitals.rss, `${percent(head.cpu)} · ${bytes(head.rss)}`);
  }
}
