"""A scheduler is asked that a worker leaves: by libzmq's ROUTER, which is another end than ours."""

from __future__ import annotations

import asyncio
import threading
from typing import Callable, Iterator, List, Optional

import pytest
import zmq

from scaler_appliance.ui import actions
from scaler_appliance.ui.actions import ActionError, NotAllowedError, reachable, shut_down_worker
from scaler_protocol import decode, encode
from scaler_protocol import messages as m

Answer = Callable[[m.Message], List[m.Member]]


class Scheduler:
    """Answers each message of one peer with others."""

    def __init__(self, address: str = "tcp://127.0.0.1:*") -> None:
        self.answer: Answer = lambda _: []
        self.received: List[m.Message] = []
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(address)
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_closing.is_set():
            if self._socket.poll(20):
                peer, header, *_ = self._socket.recv_multipart()
                self.received.append(decode(header))
                for answer in self.answer(self.received[-1]):
                    self._socket.send_multipart([peer, encode(answer)])

    def close(self) -> None:
        self._is_closing.set()
        self._thread.join()
        self._socket.close()
        self._context.term()


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    scheduler = Scheduler()
    yield scheduler
    scheduler.close()


def accepting(message: m.Message, accepted: bool = True, protected: bool = False, text: str = "done") -> List[m.Member]:
    if isinstance(message, m.Hello):
        return [m.Welcome(major=message.major, session=7, protected=protected), m.HeartbeatEcho()]
    if isinstance(message, m.WorkerShutdown):
        late = m.WorkerShutdownResponse(request_id=message.request_id + 1, accepted=not accepted)
        return [late, m.WorkerShutdownResponse(request_id=message.request_id, accepted=accepted, message=text)]
    return []


def ask(address: str, session: int = 1001, is_draining: bool = True) -> str:
    return asyncio.run(shut_down_worker(address, session, is_draining, insecure=True))


@pytest.mark.parametrize("is_draining", [True, False])
def test_the_scheduler_is_asked_as_a_client_asks(scheduler: Scheduler, is_draining: bool) -> None:
    scheduler.answer = accepting

    assert ask(scheduler.address, 1001, is_draining) == "done"

    hello, question = scheduler.received[0], scheduler.received[1]
    assert isinstance(hello, m.Hello) and hello.role == m.Role.CLIENT and hello.name == "scaler_ui"
    assert isinstance(question, m.WorkerShutdown)
    assert (question.session, question.is_draining) == (1001, is_draining)


def test_a_refusal_is_told_in_the_schedulers_words(scheduler: Scheduler) -> None:
    scheduler.answer = lambda message: accepting(message, accepted=False, text="worker 1001 has left")

    with pytest.raises(NotAllowedError, match="worker 1001 has left"):
        ask(scheduler.address)


def test_a_protected_scheduler_is_asked_to_drain_workers_and_not_to_stop_them(scheduler: Scheduler) -> None:
    scheduler.answer = lambda message: accepting(message, protected=True)

    with pytest.raises(NotAllowedError, match="--no-protected"):
        ask(scheduler.address, is_draining=False)
    assert not any(isinstance(message, m.WorkerShutdown) for message in scheduler.received)
    assert ask(scheduler.address, is_draining=True) == "done"


def test_a_scheduler_that_does_not_know_the_question_is_named(scheduler: Scheduler) -> None:
    def answer(message: m.Message) -> List[m.Member]:
        if isinstance(message, m.Hello):
            return accepting(message)
        return [m.Refusal(reason=m.RefusalReason.PROTOCOL_VIOLATION, message="WorkerShutdown is not for schedulers")]

    scheduler.answer = answer
    with pytest.raises(ActionError, match="WorkerShutdown is not for schedulers"):
        ask(scheduler.address)


def test_a_scheduler_that_is_silent_is_not_waited_for(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "ANSWER_TIMEOUT_SECONDS", 0.2)

    with pytest.raises(ActionError, match="did not answer"):
        ask(scheduler.address)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "", "nonsense", "ipc:///nonexistent/socket"])
def test_an_action_fails_at_once_if_nothing_listens(address: str) -> None:
    with pytest.raises(ActionError, match="cannot be asked"):
        ask(address)


def test_who_is_no_scheduler_is_told() -> None:
    async def run() -> Optional[str]:
        async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SSH-2.0-OpenSSH_9.2p1 something else altogether, and of some length\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ActionError, match="does not speak ZMTP"):
                await shut_down_worker(f"tcp://127.0.0.1:{port}", 1, True, insecure=True)
        return None

    asyncio.run(run())


@pytest.mark.parametrize(
    ("address", "monitor", "wanted"),
    [
        ("tcp://10.0.0.1:2345", "ipc:///tmp/x", "tcp://10.0.0.1:2345"),
        ("tcp://0.0.0.0:2345", "ipc:///tmp/x", "tcp://127.0.0.1:2345"),
        ("tcp://*:2345", "tcp://10.0.0.2:2346", "tcp://10.0.0.2:2345"),
        ("tcp://[::]:2345", "tcp://*:2346", "tcp://127.0.0.1:2345"),
        ("ipc:///tmp/scheduler", "ipc:///tmp/x", "ipc:///tmp/scheduler"),
        ("", "ipc:///tmp/x", ""),
    ],
)
def test_a_scheduler_that_listens_everywhere_is_reached_where_its_status_comes_from(
    address: str, monitor: str, wanted: str
) -> None:
    assert reachable(address, monitor) == wanted
