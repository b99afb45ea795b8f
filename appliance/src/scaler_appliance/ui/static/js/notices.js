/**
 * Notices over the page: insecure, stale, paused, restarted, and short messages.
 *
 * Rules: while the picture is not live, a banner says so, and since when; nothing else covers it. Messages leave by
 * themselves or by a button, and the warning of an insecure scheduler never does; screen readers hear them once.
 */

import { element, setText } from "./dom.js";
import { clock, span } from "./format.js";

const MESSAGE_SECONDS = 12;

export class Notices {
  /** @param {HTMLElement} place */
  constructor(place) {
    this.place = place;
    this.banner = element("div", { class: "notice banner", hidden: true });
    this.isBanner = "";
    this.insecure = element("div", { class: "notice", "data-kind": "insecure", hidden: true });
    place.append(this.insecure, this.banner);
  }

  /** @param {any} head */
  show(head) {
    const text = "Insecure: this scheduler was started with --insecure. All who reach it can run programs as its user, and read all tasks.";
    this.insecure.hidden = !head.is_insecure;
    setText(this.insecure, head.is_insecure ? text : "");
  }

  /**
   * @param {import("./feed.js").FeedCondition} condition
   * @param {any} head
   */
  showCondition(condition, head) {
    const { state, since, reason, refusal } = condition;
    let text = "";
    if (state === "paused") text = `Paused at ${clock(since / 1000)}. What you see is from then; press space to go on.`;
    if (state === "refused" && refusal?.status === 401) text = "scaler_ui wants a token (again): open the link that it printed when it started.";
    else if (state === "refused" && refusal && (refusal.status >= 500 || refusal.status === 429)) text = `scaler_ui answers, and cannot show this now: ${refusal.text}. Trying again.`;
    if (state === "stale") {
      const age = span((Date.now() - since) / 1000);
      const when = `Stale since ${clock(since / 1000)} (${age} ago): `;
      const why = head?.silence_reason ? ` (${head.silence_reason}.)` : "";
      if (reason === "scheduler" && head?.scheduler_id) text = `${when}the scheduler at ${head.address || "its address"} publishes nothing. Waiting for it.${why}`;
      else if (reason === "scheduler") text = `No scheduler has been heard of at ${head?.monitor || "the monitor address"} yet. Waiting for one; start it with: scaler_scheduler ADDRESS${why}`;
      else text = `${when}scaler_ui does not answer. Trying again.`;
    }
    this.banner.hidden = !text;
    this.banner.dataset.kind = state;
    setText(this.banner, text);
  }

  /** @param {any} head of the new scheduler */
  restarted(head) {
    this.message(`Another scheduler is at ${head.address || "this address"} since ${clock(head.clock)}: all figures start from zero.`, "restart");
  }

  /** @param {string} text */
  trouble(text) {
    this.message(text, "trouble");
  }

  /**
   * @param {string} text
   * @param {string} [kind]
   */
  message(text, kind = "message") {
    for (const other of [...this.place.querySelectorAll(`.notice[data-kind="${kind}"]:not(.banner)`)]) other.remove();
    const notice = element("div", { class: "notice", "data-kind": kind }, element("span", { text }));
    const close = element("button", { type: "button", class: "quiet small", text: "Dismiss", on: { click: () => notice.remove() } });
    notice.append(close);
    this.place.append(notice);
    setTimeout(() => notice.remove(), MESSAGE_SECONDS * 1000);
  }
}
