"""Retake the pictures of docs/monitoring.md: a real cluster under a mixed load, each page of scaler_ui in Chromium.

    make screenshots                      docs/images
    make screenshots ARGS='--all FOLDER'  every page, light and dark, wide and 400 pixels, into another folder

Rules: what the pictures show is real: real tasks on real workers, whose names and figures stand as they are. Pictures
are made small by pngquant where there is one, and none that stays in the tree is larger than 150 kB.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

TREE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TREE / "appliance" / "tests"))

from browser_driver import Browser, unavailable  # noqa: E402
from ui_server import UiServer, monitor_address_of  # noqa: E402

MOST_BYTES = 150_000
AGENTS, WORKERS_A_AGENT = 4, 4
PAGES = ("overview", "stream", "workers", "tasks", "task", "functions", "clients", "objects", "graphs", "actors")
WIDE, NARROW = (1280, 800), (400, 820)
KEPT = [
    ("overview", "light", WIDE),
    ("stream", "dark", WIDE),
    ("stream", "light", WIDE),
    ("workers", "light", WIDE),
    ("tasks", "dark", WIDE),
    ("task", "light", WIDE),
    ("functions", "light", WIDE),
    ("graphs", "dark", WIDE),
    ("actors", "light", WIDE),
    ("overview", "light", NARROW),
    ("stream", "dark", NARROW),
    ("workers", "light", NARROW),
    ("tasks", "dark", NARROW),
]


# The cluster -----


def programs() -> List[Callable[[str, threading.Event], None]]:
    """Those of pictured_work.py; pictures show a file of that name, and not where it was on this machine."""
    source = TREE / "docs" / "pictured_work.py"
    names: Dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source.read_text(), "research.py", "exec"), names)
    return [names["simulate"], names["score"], names["serve"]]


@contextlib.contextmanager
def processes(commands: List[List[str]]) -> Iterator[None]:
    running = []
    try:
        for command in commands:
            running.append(subprocess.Popen([sys.executable, "-m", *command], stdin=subprocess.PIPE))
            time.sleep(1.0)
        yield
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(20)


@contextlib.contextmanager
def cluster_under_load(seconds: float) -> Iterator[str]:
    """The address of a scheduler that has been busy for so long."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    quiet = ["-ll", "ERROR"]
    commands = [["scaler_appliance", address, *quiet]]
    for _ in range(AGENTS):
        commands.append(["scaler.worker", address, "-n", str(WORKERS_A_AGENT), *quiet])
    with processes(commands):
        ends = threading.Event()
        givers = [threading.Thread(target=program, args=(address, ends)) for program in programs()]
        for giver in givers:
            giver.start()
        try:
            yield address
        finally:
            ends.set()
            for giver in givers:
                giver.join()


# The pictures -----


def show(browser: Browser, page: str) -> None:
    """Bring a page to where there is something to see."""
    if page == "task":
        browser.visit("#/tasks?state=failed")
        browser.wait("document.querySelector('#page td a') && location.hash.startsWith('#/tasks')")
        browser.click("#page td a")
        browser.wait("document.querySelector('.failure')")
        return
    browser.visit(f"#/{page}")
    browser.wait(f"document.body.dataset.page === '{page}'")
    if page == "stream":
        browser.wait("Number(document.querySelector('.stream-canvas').dataset.runs) > 50")
    browser.wait_for_events(3)
    if page == "workers" and browser.evaluate("innerWidth") > 700:
        browser.click("#page tbody tr:nth-child(2) .disclose")
        browser.wait_for_events(2)


def smaller(path: Path) -> None:
    if shutil.which("pngquant"):
        command = ["pngquant", "--force", "--skip-if-larger", "--quality", "70-100", "--output", str(path), str(path)]
        subprocess.run(command, check=False)


def take(folder: Path, pictures: List[Tuple[str, str, Tuple[int, int]]], seconds: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, cluster_under_load(seconds) as address:
        server = UiServer(Path(scratch), monitor_address_of(address))
        browser = Browser()
        try:
            browser.open(server.url)
            # Charts and the task stream are to show some time.
            began = browser.evaluate("Date.now()")
            browser.wait_long(f"Date.now() - {began} > {seconds * 1000}", seconds + 30)
            for page, theme, (width, height) in pictures:
                browser.open(server.url, width=width, height=height, theme=theme)
                show(browser, page)
                path = folder / f"ui-{page}-{theme}{'-narrow' if width < 700 else ''}.png"
                browser.screenshot(path)
                smaller(path)
                print(f"{path.name}: {path.stat().st_size} bytes", *browser.problems())
        finally:
            browser.close()
            server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", metavar="FOLDER", type=Path, help="every page in every form, into this folder")
    parser.add_argument("--seconds", type=float, default=150.0, help="that the cluster works before the first picture")
    options = parser.parse_args()
    reason = unavailable()
    if reason:
        sys.exit(reason)
    if options.all:
        every = [(page, theme, size) for size in (WIDE, NARROW) for theme in ("light", "dark") for page in PAGES]
        take(options.all, every, options.seconds)
        return
    take(TREE / "docs" / "images", KEPT, options.seconds)
    too_large = [path.name for path in (TREE / "docs" / "images").glob("ui-*.png") if path.stat().st_size > MOST_BYTES]
    if too_large:
        sys.exit(f"larger than {MOST_BYTES} bytes: {', '.join(too_large)}; is pngquant installed?")


if __name__ == "__main__":
    main()
