"""Large parts of objects while small messages come: they are sealed, opened and written in another thread."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Tuple, cast

import pytest

from scaler.data_serving import rounds as rounds_module
from scaler.data_serving.data_connections import KEPT_PARTS, DataConnections
from scaler.data_serving.rounds import FEW_OTHERS, Rounds
from scaler.data_serving.side_work import SideWork
from scaler.worker.agent.core.agent_core import AgentCore
from scaler.worker.agent.core.effects import (
    CloseData,
    ConnectData,
    LinkCopy,
    NameCopy,
    RemoveFiles,
    SendData,
    WriteChunk,
)
from scaler.worker.agent.shell import worker_files
from scaler.worker.agent.shell.worker_files import WorkerFiles
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import Address
from scaler_protocol.host.segments import ObjectDirectory
from scaler_protocol.host.sodium import SodiumBox, load_sodium
from scaler_protocol.host.spill import NoRoomError
from scaler_protocol.programs.event_loop import BuiltinLoop
from scaler_protocol.wire.secure_zmtp import ClientSecurity

SIZE = 1 << 20
NAME = "0000000000000007-token"  # of the file of an object
DEADLINE_SECONDS = 60.0


class Peer:
    """A worker's data connections in an event loop that others wait for, and what they report."""

    def __init__(self, loop: BuiltinLoop, security: Optional[ClientSecurity]) -> None:
        self.loop = loop
        self.events: List[Tuple[Any, ...]] = []
        self.free: List[Callable[[], None]] = []  # what gives back the memory of parts that are kept
        self.keeps = False
        self.on_part: Optional[Callable[[Any, Any], None]] = None  # instead of noting it
        self.rounds = Rounds(loop, lambda: None)
        self.connections = DataConnections(self.rounds, loop, self)
        for _ in range(FEW_OTHERS):
            self.rounds.note_others()
        self.place = self.connections.listen(Address("*", 0), "127.0.0.1", security)

    def do(self, effect: Any) -> None:
        self.connections.operations[type(effect)](effect)

    def on_data_accepted(self, connection: int, key: bytes) -> None:
        self._note("accepted", connection)

    def on_data_connected(self, connection: int) -> None:
        self._note("connected", connection)

    def on_data_message(self, connection: int, message: Any, payload: Any) -> None:
        if self.on_part is not None:
            self.on_part(message, payload)
            return
        if self.keeps:
            self.free.append(self.connections.keep(payload))
        self._note("message", connection, message, payload if self.keeps else bytes(payload))

    def on_data_closed(self, connection: int, reason: str) -> None:
        self._note("closed", connection, reason)

    def _note(self, *event: Any) -> None:
        self.events.append(event)
        self.loop.stop()

    def take(self, kind: str) -> Tuple[Any, ...]:
        """Wait for an event of a kind, which has to be the next one."""
        timer = self.loop.call_later(DEADLINE_SECONDS, pytest.fail, f"no {kind}")
        while not self.events:
            self.loop.run_forever()
        timer.cancel()
        event = self.events.pop(0)
        assert event[0] == kind, event
        return event[1:]

    def close(self) -> None:
        self.connections.close()
        self.rounds.close()


class Scene:
    """A fetcher that is connected to a holder."""

    def __init__(self, has_keys: bool) -> None:
        self.loop = BuiltinLoop()
        self.loop.set_exception_handler(self._on_exception)
        self.errors: List[Any] = []
        sodium = load_sodium()
        keys = [ClientSecurity(sodium, sodium.new_keys(), b"") if has_keys else None for _ in range(2)]
        self.fetcher, self.holder = (Peer(self.loop, each) for each in keys)
        self.fetcher.do(ConnectData(1, self.holder.place.address, self.holder.place.key))
        self.fetcher.take("connected")
        self.fetcher.do(SendData(1, m.ObjectRequest(id=7, length=SIZE)))
        [self.caller] = self.holder.take("accepted")
        self.holder.take("message")

    def _on_exception(self, loop: Any, context: Any) -> None:
        self.errors.append(context["exception"])

    def send(self, content: bytes, offset: int = 0) -> None:
        self.holder.do(SendData(self.caller, m.ObjectResponse(id=7, offset=offset, size=SIZE), content))

    def run_some_rounds(self) -> None:
        for _ in range(20):
            self.loop.call_later(0.001, self.loop.stop)
            self.loop.run_forever()

    def close(self) -> None:
        for peer in (self.fetcher, self.holder):
            peer.close()
        self.loop.close()
        assert self.errors == []


@pytest.fixture(autouse=True)
def others_count_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module, "OTHERS_WITHIN_SECONDS", 1e9)


@pytest.fixture
def secure() -> Iterator[Scene]:
    made = Scene(has_keys=True)
    yield made
    made.close()


@pytest.fixture
def plain() -> Iterator[Scene]:
    made = Scene(has_keys=False)
    yield made
    made.close()


@pytest.fixture
def cipher_threads(monkeypatch: pytest.MonkeyPatch) -> List[int]:
    """The threads in which large texts are sealed and opened."""
    seen: List[int] = []
    for name in ("seal_into", "open_in_place"):
        original = getattr(SodiumBox, name)

        def noted(*arguments: Any, original: Any = original) -> Any:
            seen.append(threading.get_ident())
            return original(*arguments)

        monkeypatch.setattr(SodiumBox, name, noted)
    return seen


def test_large_parts_are_sealed_and_opened_in_another_thread(secure: Scene, cipher_threads: List[int]) -> None:
    parts = [os.urandom(SIZE) for _ in range(4)]
    for number, part in enumerate(parts):
        secure.send(part, number)
    for number, part in enumerate(parts):
        _, message, received = secure.fetcher.take("message")
        assert message.offset == number and received == part
    assert len(cipher_threads) >= 5, "one sealing at a time is done aside, and each opening"
    assert threading.get_ident() not in (cipher_threads[0], *cipher_threads[-1:])


def test_a_refusal_after_a_part_waits_for_its_sealing(secure: Scene) -> None:
    secure.send(b"x" * SIZE)
    secure.holder.do(SendData(secure.caller, m.Refusal(message="enough")))
    secure.holder.do(CloseData(secure.caller))
    assert secure.fetcher.take("message")[2] == b"x" * SIZE
    assert secure.fetcher.take("message")[1] == m.Refusal(message="enough")
    secure.fetcher.take("closed")


def test_what_waits_before_a_part_does_not_take_it_along_unsealed(secure: Scene) -> None:
    gate = threading.Event()
    secure.holder.connections.side_work.run(lambda: gate.wait(DEADLINE_SECONDS), lambda error: None, SIZE)
    connection = secure.holder.connections._connections[secure.caller].connection
    sent: List[bytes] = []
    while not connection.has_unsent:  # of small parts, which are sealed at once
        sent.append(os.urandom(60_000))
        secure.send(sent[-1])
    sent.append(b"x" * SIZE)
    secure.send(sent[-1])
    secure.run_some_rounds()
    gate.set()
    for part in sent:
        assert secure.fetcher.take("message")[2] == part


def test_what_is_closed_meanwhile_is_not_touched_any_more(secure: Scene) -> None:
    secure.send(b"x" * SIZE)
    secure.fetcher.do(CloseData(1))
    secure.holder.take("closed")
    secure.run_some_rounds()
    assert secure.fetcher.events == secure.holder.events == []


def test_a_forged_part_ends_the_connection(secure: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    original = SodiumBox.seal_into

    def forging(box: SodiumBox, memory: memoryview, *others: Any) -> None:
        original(box, memory, *others)
        memory[-1] ^= 1

    monkeypatch.setattr(SodiumBox, "seal_into", forging)
    secure.send(b"x" * SIZE)
    connection, reason = secure.fetcher.take("closed")
    assert connection == 1 and "changed on its way" in reason
    gc.collect()  # CPython below 3.12.7 does not survive all errors about views of memory (gh-77894)


@pytest.mark.parametrize("scene", ["secure", "plain"])
def test_parts_that_are_kept_are_not_overwritten_and_stop_the_reading(
    scene: str, request: pytest.FixtureRequest
) -> None:
    both: Scene = request.getfixturevalue(scene)
    both.fetcher.keeps = True
    parts = [os.urandom(SIZE) for _ in range(KEPT_PARTS + 2)]
    for number, part in enumerate(parts):
        both.send(part, number)
    kept = [both.fetcher.take("message")[2] for _ in range(KEPT_PARTS)]
    both.run_some_rounds()
    assert both.fetcher.events == [], "there is no memory for more"
    assert kept == parts[:KEPT_PARTS]
    both.fetcher.free[0]()
    assert both.fetcher.take("message")[2] == parts[KEPT_PARTS]
    assert kept[1:] == parts[1:KEPT_PARTS]
    for free in both.fetcher.free[1:]:
        free()
    both.fetcher.keeps = False
    assert both.fetcher.take("message")[2] == parts[-1]


# Files ----------------------------------------------------------------------------------------------------------------


class Core:
    """What files tell the core."""

    def __init__(self, loop: BuiltinLoop) -> None:
        self._loop = loop
        self.answers: List[Tuple[Any, ...]] = []

    def on_chunk_written(self, *answer: Any) -> None:
        self._note("written", *answer)

    def on_chunk_failed(self, *answer: Any) -> None:
        self._note("failed", *answer)

    def on_copy_named(self, *answer: Any) -> None:
        self._note("named", *answer)

    def on_copy_linked(self, *answer: Any) -> None:
        self._note("linked", *answer)

    def _note(self, *answer: Any) -> None:
        self.answers.append(answer)
        self._loop.stop()


class FilesScene(Scene):
    """Files of the fetcher, whose other thread is held until `open_gate`."""

    def __init__(self) -> None:
        super().__init__(has_keys=False)
        self.core = Core(self.loop)
        self.side_work = SideWork(self.fetcher.rounds)
        core = cast(AgentCore, self.core)
        self.files = WorkerFiles(core, lambda pattern: None, self.fetcher.connections, self.side_work)
        self.gate = threading.Event()
        self.side_work.run(lambda: self.gate.wait(DEADLINE_SECONDS), lambda error: self.loop.stop(), SIZE)

    @property
    def path(self) -> Path:
        """Of the object that is written."""
        return Path(self.files._own_directory().path, NAME)

    def remove(self, path: Path) -> None:
        self.files.operations[RemoveFiles](RemoveFiles((str(path),)))

    def write(self, effect: WriteChunk) -> None:
        self.files.operations[WriteChunk](effect)

    def write_part(self, fetch: int, chunk: Any, size: int, offset: int = 0) -> None:
        """Write a part of the object, which has so many bytes."""
        self.write(WriteChunk(7, fetch, offset, chunk, size, not offset))

    def name(self, fetch: int) -> None:
        """All of it is written."""
        path = self.path.with_name(f"{self.files._token}fetch{fetch}")
        self.files.operations[NameCopy](NameCopy(7, fetch, str(path), NAME))

    def open_gate(self, answers: int) -> List[Tuple[Any, ...]]:
        """Let the other thread go on, and wait for so many answers."""
        assert self.core.answers == []
        self.gate.set()
        while len(self.core.answers) < answers:
            self.loop.run_forever()
        found: List[Tuple[Any, ...]] = self.core.answers
        return found

    def close(self) -> None:
        self.gate.set()
        self.files.close()
        super().close()


@pytest.fixture
def files() -> Iterator[FilesScene]:
    made = FilesScene()
    yield made
    made.close()


def test_parts_are_written_in_another_thread_and_in_order(files: FilesScene) -> None:
    content = os.urandom(SIZE + 10)
    files.write_part(1, memoryview(content)[:SIZE], len(content))
    files.write_part(1, content[SIZE:], len(content), offset=SIZE)
    files.name(1)
    first, second, named = files.open_gate(3)
    assert first[:4] == ("written", 7, 1, SIZE) and second[:4] == ("written", 7, 1, 10)
    assert named == ("named", 7, 1, str(files.path)) and not Path(first[4]).exists()
    assert files.path.read_bytes() == content


def test_a_part_that_arrives_is_kept_until_it_is_written(files: FilesScene) -> None:
    parts = [os.urandom(SIZE) for _ in range(5)]
    files.fetcher.on_part = lambda message, payload: files.write(
        WriteChunk(7, 1, message.offset * SIZE, payload, 5 * SIZE, not message.offset)
    )
    for number, part in enumerate(parts):
        files.send(part, number)
    files.run_some_rounds()
    answers = files.open_gate(5)
    assert Path(answers[-1][4]).read_bytes() == b"".join(parts)


def test_a_file_is_removed_after_the_parts_that_came_before_and_before_those_that_come_after(files: FilesScene) -> None:
    files.write_part(1, memoryview(b"1" * SIZE), SIZE)
    files.name(1)
    files.remove(files.path)
    files.write_part(2, memoryview(b"2" * 10), 10)
    files.name(2)
    files.open_gate(4)
    assert files.path.read_bytes() == b"2" * 10


def test_a_fetch_that_was_given_up_disturbs_no_later_one_and_leaves_no_file(files: FilesScene) -> None:
    files.write_part(1, memoryview(b"1" * SIZE), 2 * SIZE)
    files.write_part(2, memoryview(b"2" * 10), 10)
    files.name(2)
    first, *_ = files.open_gate(3)
    files.remove(Path(first[4]))
    files.write_part(1, memoryview(b"1" * SIZE), 2 * SIZE, offset=SIZE)
    files.name(1)
    while len(files.core.answers) < 5:
        files.loop.run_forever()
    failed = [answer[0] for answer in files.core.answers[3:]]
    assert failed == ["failed", "failed"], "there is no file for its second part, and none that could be named"
    assert files.path.read_bytes() == b"2" * 10 and not Path(first[4]).exists()


def test_a_file_nearby_is_linked_after_what_is_written_and_removed(files: FilesScene) -> None:
    other = ObjectDirectory()
    try:
        Path(other.path, NAME).write_bytes(b"1" * 10)
        files.path.write_bytes(b"of a fetch that has ended")
        files.remove(files.path)
        files.files.operations[LinkCopy](LinkCopy(7, 3, NAME, 10))
        assert files.open_gate(1) == [("linked", 7, 3, str(files.path))]
        assert files.path.samefile(Path(other.path, NAME))
    finally:
        other.remove()


def test_what_waits_to_be_removed_is_removed_at_the_end(files: FilesScene, tmp_path: Path) -> None:
    elsewhere = tmp_path / "a result"
    elsewhere.touch()
    files.remove(elsewhere)
    assert elsewhere.exists()
    threading.Timer(0.01, files.gate.set).start()
    files.files.close()
    assert not elsewhere.exists()


def test_a_file_that_cannot_be_written_fails_as_ever(files: FilesScene, monkeypatch: pytest.MonkeyPatch) -> None:
    def make_no_room(path: str, size: int) -> None:
        Path(path).touch()
        raise NoRoomError(28, "no room")

    monkeypatch.setattr(worker_files, "make_room", make_no_room)
    files.write_part(3, memoryview(bytes(SIZE)), SIZE)
    [(what, object_id, fetch, reason, is_full)] = files.open_gate(1)
    assert (what, object_id, fetch, is_full) == ("failed", 7, 3, True) and "no room" in reason
    assert not list(files.path.parent.glob("new-*")), "nothing is left"
