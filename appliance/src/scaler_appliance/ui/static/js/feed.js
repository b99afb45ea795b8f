/**
 * The one stream of events from the server.
 *
 *     server ──events?page=…──▶ Feed ──onEvent(head, body)──▶ the page in view
 *                                 └────onState(state)───────▶ the badge and the banner
 *
 * Rules: one stream at a time, only for what is in view, none while the tab is hidden or the reader has paused it.
 * The server sends a head each second, so silence means something: after `STALE_SECONDS` without, or when the server says
 * that it has not heard of the scheduler for so long, the state is "stale", and it is shown since when. What a server says
 * that answers and refuses is shown: it is not one that does not answer. An event that cannot be read is dropped and
 * counted, and the page goes on.
 */

import { ask, readEvents } from "./server.js";

export const STALE_SECONDS = 4;
const FIRST_RETRY_SECONDS = 0.5;
const LAST_RETRY_SECONDS = 5;

/**
 * @typedef {"connecting" | "live" | "stale" | "paused" | "hidden" | "refused"} FeedState
 * @typedef {{state: FeedState, since: number, reason: "server" | "scheduler" | "", refusal?: Refusal}} FeedCondition since:
 *     Date.now() of the last thing that is known to be true
 * @typedef {{status: number, text: string}} Refusal what the server answered in the place of events
 */

export class Feed {
  /**
   * @param {(event: {head: any, body: any}) => void} onEvent
   * @param {(condition: FeedCondition) => void} onCondition
   */
  constructor(onEvent, onCondition) {
    this.onEvent = onEvent;
    this.onCondition = onCondition;
    /** @type {AbortController | null} */
    this.stream = null;
    /** @type {number | undefined} */
    this.retryTimer = undefined;
    this.firstRetrySeconds = this.retrySeconds = FIRST_RETRY_SECONDS;
    this.address = "";
    this.isPaused = false;
    this.pausedAt = 0;
    this.unreadable = 0;
    /** @type {Refusal | null} */
    this.refusal = null;
    this.silentFrom = Date.now(); // since when an event is due
    this.lastEventAt = 0; // Date.now()
    this.schedulerAge = 0; // seconds, at the last event
    this.isSchedulerConnected = true;
    document.addEventListener("visibilitychange", () => this.#resume());
    window.addEventListener("pagehide", () => this.#close());
    window.addEventListener("pageshow", (event) => event.persisted && this.#resume());
    setInterval(() => this.#tell(), 1000);
  }

  /**
   * Watch another page, or the same with other parameters.
   *
   * @param {string} page
   * @param {Record<string, string | number | null | undefined>} parameters
   */
  watch(page, parameters) {
    const query = new URLSearchParams({ page });
    for (const [name, value] of Object.entries(parameters)) {
      if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
    }
    const address = `events?${query}`;
    if (address === this.address && (this.stream || this.refusal)) return;
    if (address !== this.address) this.refusal = null;
    this.address = address;
    this.#reopen();
  }

  /** @param {boolean} isPaused */
  pause(isPaused) {
    if (isPaused === this.isPaused) return;
    this.isPaused = isPaused;
    this.pausedAt = Date.now();
    this.#resume();
  }

  /** @returns {FeedCondition} */
  condition() {
    if (this.isPaused) return { state: "paused", since: this.pausedAt, reason: "" };
    if (document.hidden) return { state: "hidden", since: this.lastEventAt, reason: "" };
    if (this.refusal) return { state: "refused", since: this.silentFrom, reason: "server", refusal: this.refusal };
    const isDue = this.lastEventAt < this.silentFrom;
    if (Date.now() - Math.max(this.lastEventAt, this.silentFrom) > STALE_SECONDS * 1000) {
      return { state: "stale", since: this.lastEventAt || this.silentFrom, reason: "server" };
    }
    if (isDue) return { state: "connecting", since: this.silentFrom, reason: "" };
    if (!this.isSchedulerConnected || this.schedulerAge > STALE_SECONDS) {
      return { state: "stale", since: this.lastEventAt - this.schedulerAge * 1000, reason: "scheduler" };
    }
    return { state: "live", since: this.lastEventAt, reason: "" };
  }

  #tell() {
    this.onCondition(this.condition());
  }

  // After a time in which nothing was to be heard, the first event shows that what is in view is true again.
  #resume() {
    this.silentFrom = Date.now();
    this.#reopen();
  }

  #close() {
    clearTimeout(this.retryTimer);
    const stream = this.stream;
    this.stream = null;
    stream?.abort();
  }

  #reopen() {
    this.#close();
    if (this.address && !this.isPaused && !document.hidden) this.#open();
    this.#tell();
  }

  async #open() {
    const stream = new AbortController();
    this.stream = stream;
    let refusal = null;
    try {
      const answer = await ask(this.address, { signal: stream.signal, headers: { Accept: "text/event-stream" }, cache: "no-store" });
      if (!answer.ok) {
        refusal = { status: answer.status, text: said(await answer.text()) };
      } else if (answer.body) {
        await readEvents(
          answer.body,
          (data) => stream === this.stream && this.#receive(data),
          (milliseconds) => (this.firstRetrySeconds = this.retrySeconds = milliseconds / 1000),
        );
      }
    } catch {
      // The server does not answer, the connection broke, or the stream was closed here.
    }
    if (stream !== this.stream) return;
    this.stream = null;
    this.refusal = refusal;
    this.#tell();
    // A wrong question stays wrong.
    if (refusal && isFinal(refusal.status)) return;
    this.retryTimer = setTimeout(() => this.#reopen(), this.retrySeconds * 1000);
    this.retrySeconds = Math.min(this.retrySeconds * 2, Math.max(LAST_RETRY_SECONDS, this.firstRetrySeconds));
  }

  /** @param {string} text */
  #receive(text) {
    let event;
    try {
      event = JSON.parse(text);
    } catch {
      this.unreadable += 1;
      return;
    }
    if (!event || typeof event !== "object" || typeof event.head !== "object" || event.head === null) {
      this.unreadable += 1;
      return;
    }
    this.retrySeconds = this.firstRetrySeconds;
    this.refusal = null;
    this.lastEventAt = Date.now();
    this.schedulerAge = Number(event.head.age_seconds) || 0;
    this.isSchedulerConnected = event.head.is_connected !== false;
    this.#tell();
    this.onEvent(event);
  }
}

/** @param {number} status of a refusal @returns {boolean} whether the same question would be refused again */
export function isFinal(status) {
  return status >= 400 && status < 500 && status !== 401 && status !== 429;
}

/** @param {string} body of an answer @returns {string} what it says, for people */
function said(body) {
  try {
    const told = JSON.parse(body);
    if (told && typeof told.error === "string") return told.error;
  } catch {
    // It is text.
  }
  return body.trim().slice(0, 300);
}
