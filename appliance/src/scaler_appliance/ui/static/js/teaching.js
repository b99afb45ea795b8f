/**
 * What empty pages say: how to begin.
 *
 * Rule: each is something to copy and run as it is, with the address of the cluster in view.
 */

import { copyable, element } from "./dom.js";

/** @param {any} head */
const addressOf = (head) => head?.address || "tcp://127.0.0.1:2345";

/** @param {any} head */
export function noWorkers(head) {
  return element(
    "div",
    {},
    element("p", { class: "empty-title", text: "No workers yet" }),
    element("p", { text: "Tasks wait until there is one. Start one with four slots on this or another machine:" }),
    copyable(`scaler_cluster -n 4 ${addressOf(head)}`),
  );
}

/** @param {any} head */
export function noTasks(head) {
  return element(
    "div",
    {},
    element("p", { class: "empty-title", text: "No tasks yet" }),
    element("p", { text: "Three lines of Python give the cluster something to do:" }),
    copyable(`from scaler import Client\nclient = Client(address="${addressOf(head)}")\nprint(sum(client.map(abs, range(-1000, 1000))))`),
    head && !head.workers ? element("p", { class: "muted", text: "They will wait: no worker is connected." }) : null,
  );
}

/**
 * @param {string} title
 * @param {string} text
 * @param {string} [code]
 */
export function nothing(title, text, code) {
  return element("div", {}, element("p", { class: "empty-title", text: title }), element("p", { text }), code ? copyable(code) : null);
}
