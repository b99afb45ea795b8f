"""Sessions that go on over another connection, at a scheduler process."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

from scheduler_harness import hello, task
from scheduler_process import SchedulerProcess

from scaler_appliance.shell.connections import Connections
from scaler_protocol import messages as m
from scaler_protocol.recording.recording_file import RecordedInput, Recording
from scaler_protocol.session.features import RESUME

Start = Callable[..., SchedulerProcess]


def greeting(**more: Any) -> m.Hello:
    return hello(m.Role.CLIENT, features=[RESUME], **more)


def resuming(welcome: m.Welcome, received: int, attempt: int = 1, token: bytes = b"") -> m.Hello:
    named = {"previous_session": welcome.session, "resume_token": token or welcome.resume_token}
    return greeting(**named, received=received, resume_attempt=attempt)


def test_a_session_goes_on_over_another_connection_and_a_third(scheduler: SchedulerProcess) -> None:
    worker, client = scheduler.worker(), scheduler.peer()
    client.send(greeting())
    welcome, _ = client.take(m.Welcome)
    client.send(*task([7], [b"question"]))
    given = worker.take_task_ids()
    client.send(*task([8], [b"another"]))

    second = scheduler.peer()
    second.send(resuming(welcome, received=0))
    resumed, _ = second.take(m.Welcome)
    assert resumed.is_resumed and resumed.session == welcome.session
    assert resumed.received in (1, 2)  # the first connection is not read to its end
    worker.finish(given, b"answer")
    result, payload = second.take(m.TaskResult)
    assert (list(result.ids), payload) == ([7], b"answer")

    third = scheduler.peer()
    third.send(resuming(welcome, received=0, attempt=2))
    assert third.take(m.Welcome)[0].is_resumed
    assert third.take(m.TaskResult)[1] == b"answer"


def test_a_session_that_cannot_go_on_ends_and_its_tasks_with_it(scheduler: SchedulerProcess) -> None:
    worker, client = scheduler.worker(), scheduler.peer()
    client.send(greeting())
    welcome, _ = client.take(m.Welcome)
    client.send(*task([7], [b"question"]))
    given = worker.take_task_ids()

    second = scheduler.peer()
    second.send(resuming(welcome, received=99))

    again, _ = second.take(m.Welcome)
    assert not again.is_resumed and again.session != welcome.session
    cancel, _ = worker.take(m.TaskCancel)
    assert list(cancel.ids) == list(given)


def test_half_of_what_may_wait_for_peers_is_kept_for_sessions_to_be_resumed() -> None:
    peers = Connections("tcp://127.0.0.1:0", 1 << 20, lambda name: None, maximum_waiting_bytes=100_000)
    try:
        peers.sessions.on_hello(b"peer", b"", greeting())
        peers.sessions.begin(b"peer", b"", m.Welcome(session=7))
        session = peers.sessions.find(b"peer")
        assert session is not None
        peers.sessions.keep(session, [bytes(40_000)])
        assert session.log.kept_bytes > 40_000
        peers.sessions.keep(session, [bytes(10_000)])
        assert session.log.kept_bytes == 0
    finally:
        peers.close()


def test_neither_a_recording_nor_the_log_has_a_token(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "recording"
    scheduler = start("--record", str(path), "--record-payloads")
    client = scheduler.peer()
    client.send(greeting())
    welcome, _ = client.take(m.Welcome)
    tokens = [bytes(welcome.resume_token), bytes(range(64, 96))]
    for attempt, token in enumerate(list(tokens), start=1):
        second = scheduler.peer()
        second.send(resuming(welcome, 0, attempt, token))
        tokens.append(bytes(second.take(m.Welcome)[0].resume_token))
        second.send(*task([attempt], [b"what is recorded"]))
        second.send(m.InfoRequest())
        second.take(m.Info)
    scheduler.process.terminate()
    scheduler.wait_for_end()

    with path.open("rb") as file:
        inputs = [each for _, each in Recording(file).records() if isinstance(each, RecordedInput)]
    written = b"".join(each.body for each in inputs) + scheduler.output().encode(errors="surrogateescape")
    assert written.count(b"what is recorded") == 2 and b"goes on over another connection" in written

    for token in tokens:
        assert token not in written and token.hex().encode() not in written
