"""An address is asked for notice until there is one, whatever it answers before."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import pytest

from scaler.worker.agent.shell import notice_address
from scaler.worker.agent.shell.notice_address import TOKEN_HEADER, TOKEN_PATH, NoticeAddress

DEADLINE_SECONDS = 30.0


class Request(NamedTuple):
    method: str
    path: str
    headers: Dict[str, str]


Answer = Tuple[int, str]


class MetadataService:
    """Answers as it is told, the last way again and again.

    Parameters:
        answers: one for each request in turn, or what makes one.
    """

    def __init__(self, answers: Sequence[Answer] | Callable[[Request], Answer]) -> None:
        self.requests: List[Request] = []
        self._answers = answers
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.give_answer()

            def do_PUT(self) -> None:
                self.give_answer()

            def give_answer(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, text = service.answer(Request(self.command, self.path, headers))
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/latest/notice?version=1"

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        if callable(self._answers):
            return self._answers(request)
        return self._answers[min(len(self.requests), len(self._answers)) - 1]


@contextlib.contextmanager
def served(answers: Any) -> Iterator[MetadataService]:
    service = MetadataService(answers)
    thread = threading.Thread(target=service.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield service
    finally:
        service.server.shutdown()
        service.server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def is_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice_address, "ASK_INTERVAL_SECONDS", 0.01)


def notice(url: str, headers: Sequence[Tuple[str, str]] = (), text: str = "") -> str:
    """What is told when there is a notice."""
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    address = NoticeAddress(url, headers, text, told.put)
    address.start()
    try:
        return told.get(timeout=DEADLINE_SECONDS)
    finally:
        address.close()


def test_what_is_not_found_is_asked_for_again_until_it_is_there() -> None:
    with served([(404, "not found"), (404, "not found"), (200, '{"action": "terminate"}')]) as service:
        assert notice(service.url) == f"{service.url} gives notice (drain_url)"
    assert [(each.method, each.path) for each in service.requests] == [("GET", "/latest/notice?version=1")] * 3


def test_an_answer_must_have_the_text_and_requests_have_the_headers() -> None:
    with served([(200, "FALSE"), (404, "TRUE"), (500, "TRUE"), (200, "TRUE")]) as service:
        notice(service.url, [("Metadata-Flavor", "Google")], "TRUE")
    assert [each.headers["metadata-flavor"] for each in service.requests] == ["Google"] * 4


def test_a_service_that_wants_a_token_gets_it_and_another_one_when_that_has_expired() -> None:
    given: List[str] = []

    def answer(request: Request) -> Answer:
        if (request.method, request.path) == ("PUT", TOKEN_PATH):
            assert request.headers["x-aws-ec2-metadata-token-ttl-seconds"].isdigit()
            given.append(f"token-{len(given)}")
            return 200, given[-1]
        token = request.headers.get(TOKEN_HEADER.lower(), "")
        if not given or token != given[-1] or (token == "token-0" and len(service.requests) > 4):
            return 401, "unauthorized"
        return (200, "now") if token == "token-1" else (404, "not yet")

    with served(answer) as service:
        notice(service.url)
    assert given == ["token-0", "token-1"]


def test_proxies_are_for_others_and_what_goes_wrong_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: List[str] = []
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setattr(notice_address.logger, "warning", lambda text, *values: warnings.append(text % values))
    with served([(503, ""), (503, ""), (503, ""), (404, ""), (401, ""), (401, ""), (200, "")]) as service:
        notice(service.url)
    assert [each.rpartition("(drain_url): ")[2] for each in warnings] == [
        "status 503; trying again",
        "status 401; trying again",
    ]


def test_an_answer_that_is_no_http_fills_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: queue.SimpleQueue[str] = queue.SimpleQueue()
    monkeypatch.setattr(notice_address.logger, "warning", lambda text, *values: warnings.put(text % values))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = NoticeAddress(f"http://127.0.0.1:{server.getsockname()[1]}/", (), "", pytest.fail)
        address.start()
        try:
            with server.accept()[0] as caller:
                caller.recv(1 << 16)
                caller.sendall(b"x" * 50_000 + b"\r\n")
            fault = warnings.get(timeout=DEADLINE_SECONDS)
        finally:
            address.close()
    assert "x" * 100 in fault and len(fault) < 500


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", f"http://{'a' * 70}.invalid/"], ids=["refused", "no host name"])
def test_an_address_that_cannot_be_reached_is_asked_until_it_is_closed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: queue.SimpleQueue[str] = queue.SimpleQueue()
    address = NoticeAddress(url, (), "", lambda text: pytest.fail(text))
    monkeypatch.setattr(address, "_warn", faults.put)
    address.start()
    for _ in range(3):
        faults.get(timeout=DEADLINE_SECONDS)
    address.close()


def test_without_room_for_a_thread_it_can_be_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def has_no_room(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    with served([(200, "")]) as service:
        address = NoticeAddress(service.url, (), "", told.put)
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(threading.Thread, "start", has_no_room)
            assert not address.start() and not address.start()
        assert caplog.text.count("cannot be asked for notice (drain_url): there is no room for a thread") == 1
        assert address.start()
        assert told.get(timeout=DEADLINE_SECONDS)
        address.close()
    assert address.start(), "once it is closed, there is nothing to try again"


def test_a_loop_that_has_ended_is_told_nothing() -> None:
    is_told = threading.Event()

    def tell(_: str) -> None:
        is_told.set()
        raise RuntimeError("the event loop is closed")

    with served([(200, "")]) as service:
        address = NoticeAddress(service.url, (), "", tell)
        address.start()
        assert is_told.wait(DEADLINE_SECONDS)
        address.close()
