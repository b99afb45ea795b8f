"""What the pages of scaler_ui cost a browser that shows a large cluster: bytes a second, and frames.

    python benchmarks/pages.py --workers 5000 --rate 50000

    played scheduler ──status──▶ scaler_ui ──events──▶ headless Chromium: each page in turn, live, for some seconds

Rules:
- The cluster is played, since 5 000 workers fit on no machine that measures; scaler_ui and the browser are real.
- A page is measured once it is live: what it loads at first is told apart, as `first_bytes`.
- Frames are what the page itself sees: the times between calls of requestAnimationFrame, and the tasks of its thread
  that took 50 ms and more. Chromium draws without a graphics card here, on cores that the others use too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parents[1]
TESTS = TREE / "appliance" / "tests"
sys.path.insert(0, str(TESTS))

from browser_driver import Browser, unavailable  # noqa: E402
from ui_server import UiServer  # noqa: E402

PAGES = {
    "overview": "#/overview",
    "stream": "#/stream",
    "workers": "#/workers?sort=-processors_cpu",
    "tasks": "#/tasks",
    "functions": "#/functions",
    "clients": "#/clients",
    "objects": "#/objects",
    "graphs": "#/graphs",
}

COUNT_FRAMES = """
(() => {
  const figures = { intervals: [], long: [] };
  window.figures = figures;
  new PerformanceObserver((list) => figures.long.push(...list.getEntries().map((each) => each.duration)))
    .observe({ type: "longtask" });
  let last = performance.now();
  const look = (now) => {
    figures.intervals.push(now - last);
    last = now;
    requestAnimationFrame(look);
  };
  requestAnimationFrame((now) => { last = now; requestAnimationFrame(look); });
})()
"""


def main() -> None:
    """Program entry."""
    parser = argparse.ArgumentParser(
        description="Measure what the pages of scaler_ui cost a browser.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--workers", type=int, default=5000)
    parser.add_argument("--rate", type=int, default=50_000, help="tasks that end a second")
    parser.add_argument("--seconds", type=float, default=15.0, help="that each page is shown")
    parser.add_argument("--pages", nargs="*", default=list(PAGES), choices=list(PAGES))
    options = parser.parse_args()
    reason = unavailable()
    if reason:
        sys.exit(reason)
    figures = measure(options)
    print(json.dumps({"workers": options.workers, "rate": options.rate, "pages": figures}, indent=1))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{folder}/monitor"
        command = [sys.executable, "-m", "monitoring.played_status", address]
        command += ["--workers", str(options.workers), "--rate", str(options.rate)]
        played = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(TESTS)}, stdout=subprocess.DEVNULL)
        server = UiServer(Path(folder), address)
        browser = Browser()
        try:
            return {page: measure_page(browser, server, page, options.seconds) for page in options.pages}
        finally:
            browser.close()
            server.close()
            played.terminate()
            played.wait(20)


def measure_page(browser: Browser, server: UiServer, page: str, seconds: float) -> dict[str, Any]:
    browser.open(server.url + PAGES[page])
    browser.wait_long("document.body.dataset.feed === 'live' && document.body.dataset.events >= 2", 60)
    browser.wait_for_events(2)
    first = browser.received_bytes()
    browser.evaluate(COUNT_FRAMES)
    began = time.monotonic()
    browser.wait_long(f"figures.intervals.reduce((sum, each) => sum + each, 0) > {seconds * 1000}", seconds * 4 + 30)
    elapsed = time.monotonic() - began
    received = browser.received_bytes() - first
    figures = browser.evaluate("figures")
    intervals = sorted(figures["intervals"])
    return {
        "first_bytes": first,
        "bytes_per_second": round(received / elapsed),
        "frames_per_second": round(len(intervals) / elapsed, 1),
        "frame_p50_ms": round(intervals[len(intervals) // 2], 1),
        "frame_p95_ms": round(intervals[int(len(intervals) * 0.95)], 1),
        "frame_longest_ms": round(intervals[-1], 1),
        "long_tasks_per_minute": round(len(figures["long"]) * 60 / elapsed, 1),
        "longest_task_ms": round(max(figures["long"], default=0.0), 1),
        "problems": browser.problems(),
    }


if __name__ == "__main__":
    main()
