"""A headless Chromium for tests of the pages, driven through `browser/bridge.mjs`.

Rules: what it needs (Node.js, Chromium, the driver in build/browser) is there or named in one reason to skip; each wait
is for a condition of the page, with a deadline; what the page complained of is asked for at the end of each test.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, List, Optional

TREE = Path(__file__).resolve().parents[2]
MODULES = TREE / "build" / "browser" / "node_modules"
BRIDGE = Path(__file__).parent / "browser" / "bridge.mjs"
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> Optional[str]:
    return next(filter(None, map(shutil.which, CHROMIUMS)), None)


def unavailable() -> str:
    """Why there can be no browser; empty when there can."""
    missing = [
        name
        for name, is_there in (
            ("Node.js", shutil.which("node")),
            ("Chromium", chromium()),
            ("playwright-core in build/browser", (MODULES / "playwright-core").is_dir()),
        )
        if not is_there
    ]
    return f"no browser: {', '.join(missing)} missing; `make browser` installs what it can" if missing else ""


class Browser:
    """One Chromium, with one page at a time."""

    def __init__(self) -> None:
        command = ["node", str(BRIDGE), str(MODULES), str(chromium())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._url = ""

    def _do(self, command: str, **told: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": command, **told}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the browser has ended"
        answer = json.loads(line)
        assert "error" not in answer, f"{command} {told}: {answer['error']}"
        return answer["result"]

    # Going somewhere ------------------------------------------------------------------------------------------------

    def open(self, url: str, fragment: str = "", **options: Any) -> None:
        """Open a page as a new visitor.

        Parameters:
            options: `width`, `height` in pixels; `theme`: light or dark; `motion`: reduce or no-preference; `touch`;
                `events`: what the page is told, line by line, in the place of the server's events.
        """
        self._url = url
        self._do("open", url=url + fragment, **options)

    def visit(self, fragment: str) -> None:
        """Go to another fragment of the same address, as by a link."""
        self.evaluate(f"location.hash = {json.dumps(fragment)}")

    def go_to(self, url: str) -> None:
        """Go to another address, in the same tab, with what the browser keeps."""
        self._do("goto", url=url)

    def reload(self, fragment: str) -> None:
        self._do("goto", url="about:blank")
        self._do("goto", url=self._url + fragment)

    def back(self) -> None:
        self._do("back")

    # Doing something ------------------------------------------------------------------------------------------------

    def click(self, selector: str, x: Optional[float] = None, y: Optional[float] = None) -> None:
        self._do("click", selector=selector, **({} if x is None else {"x": x, "y": y}))

    def fill(self, selector: str, text: str) -> None:
        self._do("fill", selector=selector, text=text)

    def choose(self, selector: str, value: str) -> None:
        self._do("choose", selector=selector, value=value)

    def press(self, *keys: str) -> None:
        for key in keys:
            self._do("press", key=key)

    def hover(self, selector: str, x: float, y: float) -> None:
        self._do("hover", selector=selector, x=x, y=y)

    def wheel(self, x: float, y: float) -> None:
        self._do("wheel", x=x, y=y)

    def drag(self, selector: str, start: float, end: float, y: float) -> None:
        self._do("drag", selector=selector, **{"from": start, "to": end, "y": y})

    def hold(self, selector: str) -> None:
        """Press the mouse's button on it, until `let_go`."""
        self._do("hold", selector=selector)

    def let_go(self) -> None:
        self._do("letGo")

    def hide(self, is_hidden: bool) -> None:
        """As if the reader went to another tab, or came back."""
        self._do("hide", isHidden=is_hidden)

    def set_theme(self, theme: str) -> None:
        self._do("theme", theme=theme)

    # Looking --------------------------------------------------------------------------------------------------------

    def evaluate(self, script: str) -> Any:
        return self._do("evaluate", script=script)

    def wait(self, condition: str) -> Any:
        """Wait until an expression of the page is true; returns its value."""
        return self._do("wait", condition=condition)

    def wait_long(self, condition: str, seconds: float) -> Any:
        """Likewise, for what takes longer than a reader would wait."""
        return self._do("wait", condition=condition, milliseconds=seconds * 1000)

    def wait_for_text(self, selector: str, text: str) -> None:
        self.wait(
            f"[...document.querySelectorAll({json.dumps(selector)})].some((it) =>"
            f" it.checkVisibility() && it.textContent.includes({json.dumps(text)}))"
        )

    def texts(self, selector: str) -> List[str]:
        found = self.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map((it) => it.textContent)")
        return list(found)

    def wait_for_events(self, more: int = 2) -> None:
        """Wait until the page has been told so many things more."""
        seen = self.evaluate("Number(document.body.dataset.events || 0)")
        self.wait(f"Number(document.body.dataset.events || 0) >= {seen + more}")

    def problems(self) -> List[str]:
        return list(self._do("problems"))

    def forget_problems(self) -> None:
        self._do("forget")

    def received_bytes(self) -> int:
        return int(self._do("received"))

    def screenshot(self, path: Path) -> None:
        self._do("screenshot", path=str(path))

    def close_page(self) -> None:
        self._do("close")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
