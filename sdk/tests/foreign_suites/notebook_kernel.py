"""A client in a real kernel of IPython: its cells are run as a notebook runs them."""

from __future__ import annotations

import threading
from typing import Any, Dict, Iterator, List, NamedTuple

import pytest
from jupyter_client.manager import KernelManager

TIMEOUT_SECONDS = 60

PROLOGUE = """
import time
from scaler import Client, SchedulerClusterCombo
cluster = SchedulerClusterCombo(n_workers=2, logging_level="ERROR")
client = Client(cluster.get_address(), stream_output=True)

def work(text, seconds=0.0):
    print(text)
    time.sleep(seconds)
    return text
"""


class Cell(NamedTuple):
    """The outcome of a cell: its printed text, what its value is displayed as, and the name of its error."""

    printed: str
    shown: Dict[str, str]
    error: str


class Kernel:
    """Runs cells."""

    def __init__(self) -> None:
        self.manager = KernelManager()
        self.manager.start_kernel()
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=TIMEOUT_SECONDS)
        self.printed: Dict[str, str] = {}  # by the cell that shows it

    def start(self, code: str) -> str:
        """Begin to run a cell; returns its id."""
        return str(self.client.execute(code))

    def end(self, cell: str) -> Cell:
        """Wait for the end of a cell."""
        shown: Dict[str, str] = {}
        error = ""
        while True:
            message = self.client.get_iopub_msg(timeout=TIMEOUT_SECONDS)
            kind, content, of = message["msg_type"], message["content"], message["parent_header"].get("msg_id", "")
            if kind == "stream":
                self.printed[of] = self.printed.get(of, "") + content["text"]
            elif of == cell and kind == "execute_result":
                shown = content["data"]
            elif of == cell and kind == "error":
                error = content["ename"]
            elif of == cell and kind == "status" and content["execution_state"] == "idle":
                return Cell(self.printed.get(cell, ""), shown, error)

    def run(self, code: str) -> Cell:
        return self.end(self.start(code))

    def wait_for_output(self, cell: str, text: str) -> None:
        """Wait until a cell shows a text, whichever cell runs now."""
        while text not in self.printed.get(cell, ""):
            message = self.client.get_iopub_msg(timeout=TIMEOUT_SECONDS)
            if message["msg_type"] == "stream":
                of = message["parent_header"].get("msg_id", "")
                self.printed[of] = self.printed.get(of, "") + message["content"]["text"]

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    try:
        assert kernel.run(PROLOGUE).error == ""
        yield kernel
    finally:
        kernel.close()


def test_futures_clients_clusters_and_their_sizes_are_boxes(kernel: Kernel) -> None:
    kernel.run("future = client.submit(abs, -1); future.result()")
    for code, title in (("future", "ScalerFuture"), ("client", "Client"), ("cluster", "SchedulerClusterCombo")):
        assert f"<strong>{title}</strong>" in kernel.run(code).shown["text/html"]
    assert "2 on 1 worker" in kernel.run("client.info()").shown["text/html"]


def test_the_futures_of_a_graph_are_a_box(kernel: Kernel) -> None:
    kernel.run("futures = client.submit_graph({'a': 1, 'b': (abs, 'a')}, ['a', 'b'])")
    assert "<strong>Graph</strong>" in kernel.run("client.wait(futures); futures").shown["text/html"]


def test_a_progress_bar_reaches_its_end_without_a_warning(kernel: Kernel) -> None:
    cell = kernel.run(
        "import warnings; warnings.simplefilter('always'); sum(client.map(abs, range(500), progress=True))"
    )
    assert (cell.shown["text/plain"], cell.error) == ("124750", "")
    assert "500/500" in cell.printed and "Warning" not in cell.printed


def test_output_is_shown_in_the_cell_that_submitted_the_task(kernel: Kernel) -> None:
    first = kernel.start("first = client.submit(work, 'from the first cell')")
    kernel.end(first)
    second = kernel.start("second = client.map(work, ['from the second cell', 'and again'])")
    kernel.end(second)
    kernel.run("first.result()")
    kernel.wait_for_output(first, "from the first cell")
    kernel.wait_for_output(second, "from the second cell")
    kernel.wait_for_output(second, "and again")
    shown_elsewhere: List[str] = [text for cell, text in kernel.printed.items() if cell not in (first, second)]
    assert not any("cell" in text for text in shown_elsewhere)


@pytest.mark.parametrize("wait", ["client.map(work, ['a', 'b'], [60, 60])", "client.submit(work, 'c', 60).result()"])
def test_an_interrupt_ends_the_cell_and_the_client_goes_on(kernel: Kernel, wait: str) -> None:
    cell = kernel.start(f"print('begins', flush=True)\n{wait}")
    kernel.wait_for_output(cell, "begins")
    kernel.wait_for_output(cell, "[task")  # its tasks run
    interrupter = threading.Thread(target=kernel.manager.interrupt_kernel)
    interrupter.start()
    assert kernel.end(cell).error == "KeyboardInterrupt"
    interrupter.join(TIMEOUT_SECONDS)
    assert kernel.run("client.clear(); client.submit(abs, -2).result()").shown["text/plain"] == "2"


def test_a_synchronous_client_runs_tasks_with_event_loops_of_their_own(kernel: Kernel) -> None:
    code = """
async def later(value):
    import asyncio
    await asyncio.sleep(0)
    return value

with Client.synchronous() as here:
    result = here.submit(later, 5).result()
result
"""
    done: Any = kernel.run(code)
    assert (done.shown.get("text/plain"), done.error) == ("5", "")
