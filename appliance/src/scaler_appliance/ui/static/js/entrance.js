/**
 * The page that a link with a token opens: it keeps the key of the new session, and goes on.
 *
 * Rule: the key comes in the page, so that it is in no address, and stays in the storage of this origin.
 */

import { keepKey } from "./server.js";

const key = document.querySelector('meta[name="page-key"]')?.getAttribute("content") || "";
const next = /** @type {HTMLAnchorElement | null} */ (document.getElementById("continue"));
if (next && keepKey(key)) {
  location.replace(next.href + location.hash);
} else if (next) {
  next.replaceWith("This browser keeps no data of this page, and a login needs that: allow site data for this address, and open the link again.");
}
