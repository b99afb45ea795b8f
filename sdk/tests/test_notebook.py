"""Clients, futures and clusters in a notebook and at a prompt: what is known already, and nothing that could run."""

from __future__ import annotations

import dataclasses
import os
import signal
from contextvars import ContextVar
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest
from sdk_tasks import wait_for_file

from scaler import Client, Cluster, ScalerFuture, SchedulerClusterCombo
from scaler.notebook import Link, card
from scaler_protocol.host.discovery import USER_INTERFACE, Announcement

TIMEOUT_SECONDS = 60


class Page(HTMLParser):
    """The texts and links of a piece of HTML, of which every tag must have its end."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: List[str] = []
        self.links: List[str] = []
        self._open: List[str] = []
        self.feed(html)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: List[Tuple[str, Optional[str]]]) -> None:
        self._open.append(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def rows(self) -> Dict[str, str]:
        return dict(zip(self.texts[1::2], self.texts[2::2]))


def fail() -> None:
    raise ValueError("<script>")


def say(text: str, padding: bytes = b"") -> None:
    print(text)


def name_of_type(value: object) -> str:
    return type(value).__name__


def strange_name() -> Any:
    def function() -> int:
        return 1

    function.__name__ = function.__qualname__ = "<img src=x onerror=alert(1)>"
    return function


def test_futures(any_client: Client) -> None:
    future = any_client.submit(pow, 2, 10)
    any_client.wait([future])
    assert repr(future) == f"<ScalerFuture {future.task_id} of pow: finished, has a result>"
    future.result()
    assert repr(future) == f"<ScalerFuture {future.task_id} of pow: finished, returned int>"
    failing = any_client.submit(fail)
    any_client.wait([failing])
    assert repr(failing) == f"<ScalerFuture {failing.task_id} of fail: finished, failed>"
    assert isinstance(failing.exception(), ValueError)
    assert Page(failing._repr_html_()).rows()["state"] == "finished, raised ValueError"


def test_the_futures_of_a_graph_are_counted_and_named_by_their_keys(any_client: Client) -> None:
    graph: Dict[Any, Any] = {
        ("a", 1): 5,
        "b": (abs, ("a", 1)),
        "<i>": (fail,),
        **{f"x{number}": (abs, number) for number in range(30)},
    }
    by_key: Any = any_client.get(graph, list(graph), block=False)
    in_order: Any = any_client.submit_graph(graph, list(graph))
    for futures in (by_key.values(), in_order):
        any_client.wait(futures)
    rows = Page(by_key._repr_html_()).rows()
    assert (rows["keys"], rows["finished"], rows["failed"], rows["other keys"]) == ("33", "32", "1", "13")
    assert rows["('a', 1)"] == "finished, returned int" and rows["'<i>'"].startswith("finished, ")
    assert Page(in_order._repr_html_()).rows()["failed"] == "1"
    assert (type(by_key), type(in_order)) != (dict, list) and isinstance(by_key, dict) and isinstance(in_order, list)
    few: Any = any_client.submit_graph(graph, ["b", "x1"])
    assert any_client.submit(sum, few).result(TIMEOUT_SECONDS) == 6
    assert any_client.submit(name_of_type, few).result(TIMEOUT_SECONDS) == "list"


def test_names_are_texts(any_client: Client) -> None:
    future = any_client.submit(strange_name())
    html = future._repr_html_()
    assert "<img" not in html
    assert Page(html).rows()["function"] == "<img src=x onerror=alert(1)>"


def test_the_size_of_a_cluster_is_a_box_with_its_workers(any_client: Client) -> None:
    any_client.submit(abs, -1).result(TIMEOUT_SECONDS)  # a worker is there
    rows = Page(any_client.info()._repr_html_()).rows()
    assert rows["slots"].startswith("2 on 1 worker, ") and rows["scheduler"].startswith(any_client._address)
    worker = any_client.info().workers[0]
    assert rows[worker.name].startswith(f"{worker.host}: 2 slots")
    many = dataclasses.replace(any_client.info(), workers=(worker,) * 50, worker_count=70)
    assert Page(many._repr_html_()).rows()["other workers"] == "50"


def test_output_is_shown_in_the_context_that_submitted_the_task(any_address: str) -> None:
    """A notebook knows by it which cell the output belongs to."""
    cell: ContextVar[str] = ContextVar("cell", default="none")
    shown: List[Tuple[str, str]] = []
    with Client(any_address, stream_output=lambda output: shown.append((cell.get(), output.text))) as client:
        cell.set("first")
        first = client.submit(say, "one")
        cell.set("second")
        client.map(say, ["two"])
        client.submit(say, "three", bytes(100_000)).result(TIMEOUT_SECONDS)
        cell.set("third")
        first.result(TIMEOUT_SECONDS)
    assert sorted((name, text.strip()) for name, text in shown) == [
        ("first", "one"),
        ("second", "three"),
        ("second", "two"),
    ]


def test_links_lead_to_web_pages_only_and_tokens_are_not_shown() -> None:
    assert Page(card("A", [("link", Link("javascript:alert(1)"))])).links == []
    page = Page(card("A", [("link", Link("https://host/?token='\"<secret>"))]))
    assert page.links == ["https://host/?token='\"<secret>"]
    assert page.rows()["link"] == "https://host/"


def test_a_cluster_its_client_and_their_user_interface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "run"))
    with SchedulerClusterCombo(n_workers=1, logging_level="ERROR") as combo:
        address = combo.get_address()
        assert repr(combo) == f"<SchedulerClusterCombo {address}, 1 slot on 1 worker, running>"
        assert repr(combo.cluster) == f"<Cluster of 1 slot on 1 worker for {address}, process {combo.cluster.pid}>"
        with Client(address) as client:
            client.submit(abs, -1).result()
            assert repr(client) == f"<Client {address}, 0 unfinished tasks>"
            assert "user interface" not in Page(client._repr_html_()).rows()
            url = "http://127.0.0.1:8081/?token=secret"
            with Announcement(USER_INTERFACE, combo.get_monitor_address(), url=url):
                for shown in (client, combo):
                    page = Page(shown._repr_html_())
                    assert page.links == [url]
                    assert page.rows()["scheduler"] == address
        assert Page(client._repr_html_()).rows()["state"] == "disconnected"
    assert Page(combo._repr_html_()).rows()["state"] == "stopped"
    assert Page(combo.cluster._repr_html_()).rows()["state"] == "stopped"


def test_displaying_does_not_wait_for_a_hung_scheduler() -> None:
    with SchedulerClusterCombo(n_workers=1, logging_level="ERROR") as combo, Client(combo.get_address()) as client:
        scheduler = combo.scheduler.pid
        assert scheduler is not None
        os.kill(scheduler, signal.SIGSTOP)
        try:
            future = client.submit(abs, -1)
            with future._condition:  # displaying does not wait for locks
                assert repr(future).endswith("of abs: running>")
                assert Page(future._repr_html_()).rows()["state"] == "running"
                assert Page(client._repr_html_()).rows()["state"] == "1 unfinished task"
                assert repr(combo).endswith("running>")
        finally:
            os.kill(scheduler, signal.SIGCONT)


def test_a_worker_that_was_not_started() -> None:
    cluster = Cluster("tcp://127.0.0.1:1", n_workers=3)
    assert repr(cluster) == "<Cluster of 3 slots on 1 worker for tcp://127.0.0.1:1, not started>"
    assert Page(cluster._repr_html_()).rows()["slots"] == "3"


@pytest.mark.parametrize("outcome", ["unfinished", "a result", "an error", "cancelled"])
def test_what_a_future_shows_agrees_with_what_it_answers(any_address: str, tmp_path: Path, outcome: str) -> None:
    go = tmp_path / "go"
    with Client(any_address) as client:
        if outcome == "a result":
            future: ScalerFuture[Any] = client.submit(abs, -1)
            future.result(TIMEOUT_SECONDS)
        elif outcome == "an error":
            future = client.submit(int, "x")
            assert isinstance(future.exception(TIMEOUT_SECONDS), ValueError)
        else:
            future = client.submit(wait_for_file, str(go))
            assert outcome != "cancelled" or future.cancel(TIMEOUT_SECONDS)
        shown = {repr(future).partition(": ")[2].rstrip(">"), Page(future._repr_html_()).rows()["state"]}
        assert len(shown) == 1
        state = shown.pop()
        assert future.running() is (state == "running") is (outcome == "unfinished")
        assert future.cancelled() is (state == "cancelled") is (outcome == "cancelled")
        assert future.done() is (state == "cancelled" or state.startswith("finished"))
        assert future.done() is not future.running()
        go.touch()
