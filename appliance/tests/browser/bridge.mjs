/**
 * A headless Chromium that does what it is told, line by line: each line of standard input is one command as JSON, each
 * line of standard output its answer.
 *
 *     tests in Python ──{"do": "click", ...}──▶ bridge ──▶ Chromium
 *                     ◀──{"result": ...} or {"error": ...}──┘
 *
 * Rules: one page at a time, each in a fresh context; whatever the page complains of (console, exceptions, failed requests,
 * answers of 400 and more) is kept for `problems`. It ends with its standard input.
 */

import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const [modules, executablePath] = process.argv.slice(2);
const { chromium } = createRequire(`${modules}/`)("playwright-core");
const browser = await chromium.launch({
  executablePath,
  args: [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
  ],
});
let context = null;
let page = null;
let problems = [];
let received = 0;
const MILLISECONDS = 30_000;

/** @type {Record<string, (told: any) => any>} */
const commands = {
  async open({ url, width = 1280, height = 800, theme = "light", motion = "no-preference", touch = false, events = null }) {
    await context?.close();
    problems = [];
    received = 0;
    context = await browser.newContext({
      viewport: { width, height },
      colorScheme: theme,
      reducedMotion: motion,
      hasTouch: touch,
      permissions: ["clipboard-read", "clipboard-write"],
    });
    page = await context.newPage();
    if (events) {
      const body = `retry: 60000\n\n${events.map((event) => `data: ${event}\n\n`).join("")}`;
      await page.route("**/events?*", (route) => route.fulfill({ contentType: "text/event-stream", body }));
    }
    page.setDefaultTimeout(MILLISECONDS);
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) problems.push(`console: ${message.text()}`);
    });
    page.on("pageerror", (error) => problems.push(`exception: ${error.stack || error}`));
    page.on("requestfailed", (request) => {
      // The page closes its stream of events, or a question that a later one replaces, whenever it goes elsewhere.
      const text = request.failure()?.errorText;
      if (text !== "net::ERR_ABORTED") problems.push(`request: ${request.url()} ${text}`);
    });
    page.on("response", (response) => {
      if (response.status() >= 400) problems.push(`answer: ${response.status()} ${response.url()}`);
    });
    const session = await context.newCDPSession(page);
    await session.send("Network.enable");
    session.on("Network.dataReceived", (event) => (received += event.dataLength));
    await page.goto(url);
  },
  goto: ({ url }) => page.goto(url).then(() => null),
  click: ({ selector, x, y }) => page.click(selector, x === undefined ? {} : { position: { x, y } }),
  fill: ({ selector, text }) => page.fill(selector, text),
  choose: ({ selector, value }) => page.selectOption(selector, value).then(() => null),
  press: ({ key }) => page.keyboard.press(key),
  hover: ({ selector, x, y }) => page.hover(selector, { position: { x, y } }),
  wheel: ({ x, y }) => page.mouse.wheel(x, y),
  async drag({ selector, from, to, y }) {
    const box = await page.locator(selector).boundingBox();
    await page.mouse.move(box.x + from, box.y + y);
    await page.mouse.down();
    await page.mouse.move(box.x + (from + to) / 2, box.y + y, { steps: 4 });
    await page.mouse.move(box.x + to, box.y + y, { steps: 4 });
    await page.mouse.up();
  },
  async hold({ selector }) {
    await page.hover(selector);
    await page.mouse.down();
  },
  letGo: () => page.mouse.up(),
  back: () => page.goBack().then(() => null),
  evaluate: ({ script }) => page.evaluate(script),
  // The driver's own waiting evaluates text within the page, which the page's Content-Security-Policy forbids.
  async wait({ condition, milliseconds = MILLISECONDS }) {
    const end = Date.now() + milliseconds;
    const script = () => `new Promise((resolve, reject) => {
      const end = performance.now() + ${Math.max(0, end - Date.now())};
      const look = () => {
        const value = (() => { try { return ${condition}; } catch { return null; } })();
        if (value) resolve(value);
        else if (performance.now() > end) reject(new Error("waited in vain"));
        else requestAnimationFrame(look);
      };
      look();
    })`;
    while (true) {
      try {
        return await page.evaluate(script());
      } catch (error) {
        // Another document has taken the place of the one that was asked.
        if (!String(error).includes("Execution context was destroyed")) throw error;
      }
    }
  },
  screenshot: ({ path }) => page.screenshot({ path }).then(() => null),
  theme: ({ theme }) => page.emulateMedia({ colorScheme: theme }),
  async hide({ isHidden }) {
    // A headless page is never hidden by itself: say that it is.
    await page.evaluate(`(() => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => ${isHidden} });
      document.dispatchEvent(new Event("visibilitychange"));
    })()`);
  },
  resize: ({ width, height }) => page.setViewportSize({ width, height }),
  problems: () => problems,
  forget: () => void (problems = []),
  received: () => received,
  async close() {
    await context?.close();
    context = page = null;
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    const told = JSON.parse(line);
    answer = { result: (await commands[told.do](told)) ?? null };
  } catch (error) {
    const state = page ? await page.evaluate(() => document.body.innerText.slice(0, 700)).catch(() => "") : "";
    answer = { error: `${error}\n\nThe page shows:\n${state}\n\nIts problems: ${problems.join("\n")}` };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
