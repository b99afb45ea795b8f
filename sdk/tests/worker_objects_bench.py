"""A bench for a worker's objects: it plays the scheduler and the tasks; the files are real."""

from __future__ import annotations

from typing import Any, List, Tuple

from scaler.data_serving.rounds import Rounds
from scaler.data_serving.side_work import SideWork
from scaler.worker.agent.core.effects import (
    CloseData,
    ConnectData,
    Log,
    OpenObjects,
    RemoveLeftovers,
    Send,
    SendData,
)
from scaler.worker.agent.core.worker_objects import WorkerObjects
from scaler.worker.agent.shell.worker_files import WorkerFiles
from scaler.worker.frames import ContentPlace
from scaler_protocol import messages as m
from scaler_protocol.programs.event_loop import BuiltinLoop

CREATE = m.ObjectAction.CREATE
INLINE, SHARED, REMOTE = m.ObjectStorage.INLINE, m.ObjectStorage.SHARED, m.ObjectStorage.REMOTE
CHUNK = 1000


class Bench:
    """Objects, their files, and listeners of both."""

    def __init__(self, **welcome: Any) -> None:
        self.effects: List[Any] = []
        self.patterns: List[str] = []
        self.messages: List[Tuple[Any, bytes]] = []
        self.logs: List[str] = []
        self.data: List[Any] = []  # effects about other workers
        self.write_prefix = ""
        self._events: List[Tuple[str, int]] = []
        self.objects = WorkerObjects(self.effects, iter(range(1, 1 << 39)))
        self.objects.data_address = "tcp://127.0.0.1:1"
        self.objects.listener = self
        core: Any = self  # as far as files need it
        self._loop = BuiltinLoop()
        self._rounds = Rounds(self._loop, lambda: None)
        connections: Any = self  # as far as files need it
        self.files = WorkerFiles(core, self.patterns.append, connections, SideWork(self._rounds))
        self.start_session(3, **welcome)

    def start_session(self, session: int, **fields: Any) -> None:
        welcome = m.Welcome(session=session, limits=m.Limits(chunk_bytes=CHUNK), **fields)
        self.objects.start_session(welcome)
        self.effects.append(OpenObjects(welcome.object_directory, welcome.object_directory_token))
        self.perform()

    def close(self) -> None:
        self.objects.forget_all()
        self.perform()
        self.files.close()
        self._rounds.close()
        self._loop.close()

    def perform(self) -> None:
        """Do what was asked for, until nothing is."""
        while self.effects:
            taken, self.effects[:] = list(self.effects), []
            for effect in taken:
                if isinstance(effect, Send):
                    self.messages.append((effect.message, bytes(effect.payload)))
                elif isinstance(effect, (ConnectData, SendData, CloseData)):
                    self.data.append(effect)
                elif isinstance(effect, Log):
                    self.logs.append(effect.text)
                else:
                    self.files.operations[type(effect)](effect)

    def remove_leftovers(self, process_id: int) -> None:
        self.effects.append(RemoveLeftovers(process_id))
        self.perform()

    # As data connections

    def memory(self, connection: int, size: int) -> memoryview:
        return memoryview(bytearray(size))

    # As a core

    def on_objects_opened(self, is_shared: bool, write_prefix: str, now: float) -> None:
        self.write_prefix = write_prefix
        self.objects.open(is_shared, write_prefix)

    def on_object_found(self, object_id: int, is_there: bool) -> None:
        self.objects.on_found(object_id, is_there)

    def on_chunk_written(self, *answer: Any) -> None:
        self.objects.on_chunk_written(*answer)

    def on_copy_named(self, *answer: Any) -> None:
        self.objects.on_copy_named(*answer)

    def on_copy_linked(self, *answer: Any) -> None:
        self.objects.on_copy_linked(*answer)

    def on_chunk_failed(self, *answer: Any) -> None:
        self.objects.on_chunk_failed(*answer)

    def on_chunk_read(self, *answer: Any) -> None:
        self.objects.served.on_chunk_read(*answer)

    def on_result_kept(self, *answer: Any) -> None:
        self.objects.on_kept(*answer)

    # As a listener

    def on_object_available(self, object_id: int) -> None:
        self._events.append(("available", object_id))

    def on_object_missing(self, object_id: int, is_maker_lost: bool = False) -> None:
        self._events.append(("maker lost" if is_maker_lost else "missing", object_id))

    def on_no_room_for_object(self, object_id: int, why: str) -> None:
        self._events.append(("no room", object_id))

    def on_object_served(self, object_id: int) -> None:
        self._events.append(("served", object_id))

    def on_object_unserved(self, object_id: int) -> None:
        self._events.append(("unserved", object_id))

    # As a test

    @property
    def events(self) -> List[Tuple[str, int]]:
        """What a listener has heard."""
        self.perform()
        return self._events

    def create(self, object_id: int, storage: int, content: bytes = b"", size: int = 0) -> None:
        instruction = m.ObjectInstruction(
            action=CREATE,
            ids=[object_id],
            sizes=[size or len(content)],
            storages=bytes([storage]),
            kinds=bytes([m.ObjectKind.FUNCTION]),
        )
        assert self.objects.on_instruction(instruction, content if storage == INLINE else b"") == []

    def definition(self, object_id: int) -> Tuple[int, ContentPlace, bytes]:
        """The definition of an available object for processors."""
        found = self.objects.definition(object_id)
        assert found is not None, f"{object_id} is not available"
        kind, place, content = found
        return kind, place, bytes(content)

    def sent_with_payloads(self) -> List[Tuple[Any, bytes]]:
        """The messages sent since last asked, with their payloads."""
        self.perform()
        taken, self.messages = self.messages, []
        return taken

    def sent(self) -> List[Any]:
        """The messages sent since last asked."""
        return [message for message, _ in self.sent_with_payloads()]

    def respond(self, request: m.ObjectRequest, content: bytes) -> None:
        response = m.ObjectResponse(id=request.id, offset=request.offset, size=len(content))
        self.objects.on_response(response, content[request.offset : request.offset + request.length])
        self.perform()

    def write_result(self, content: bytes) -> int:
        """A processor writes a large result, which becomes an object."""
        path = self.write_prefix + "77-1"
        with open(path, "wb") as file:
            file.write(content)
        object_id = self.objects.adopt(path, len(content))
        self.perform()
        return object_id
