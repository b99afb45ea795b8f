"""Repeats the recording of a client: see `scaler_protocol.recording.replaying`."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Sequence

from scaler.client.core import commands as c
from scaler.client.core import effects as e
from scaler.client.core.client_core import ClientCore
from scaler.client.core.deferring import DeferredTask
from scaler.client.core.handles import NOT_NUMBERED
from scaler.client.core.kept_objects import KeptObject
from scaler.client.core.outbox import GraphRun
from scaler.client.shell.client_recording import INPUTS, crc_of
from scaler.values.sizes import DIRECT_BYTES
from scaler_protocol.recording.recording_file import RecordedInput, Recording, RecordingError, decode_body
from scaler_protocol.recording.replaying import Reads, Replay, Tables
from scaler_protocol.wire import messages as m
from scaler_protocol.wire.codec import decode, decode_struct
from scaler_protocol.wire.errors import MalformedMessageError


class _RecordedError(Exception):
    """An error that was raised when the recording was made: its text."""


class _Future:
    """Stands for a future: the fields that the core knows."""

    __slots__ = ("number", "_task_id", "_source", "_is_cancel_asked")

    def __init__(self, number: int) -> None:
        self.number = number
        self._task_id = NOT_NUMBERED
        self._source: Any = None
        self._is_cancel_asked = False


class _Asker:
    """Stands for an asker that waited for an answer."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def put(self, answer: Any) -> None:
        """Do nothing: there is no waiting thread in a replay."""


class _Function:
    """Stands for a named function."""

    __slots__ = ("name", "codec")

    def __init__(self, name: str, codec: str) -> None:
        self.name = name
        self.codec = codec


class _References(Dict[int, KeptObject]):
    """Objects that exist as long as they did when the recording was made."""

    def __init__(self, reads: Reads) -> None:
        super().__init__()
        self._reads = reads

    def get(self, number: int, default: Any = None) -> Any:
        return self[number] if self._reads.next() else default


class _Known:
    """What a recording knows by number. Also the names of futures and askers in digests."""

    def __init__(self) -> None:
        self.futures: Dict[int, _Future] = {}
        self.askers: Dict[int, _Asker] = {}
        self.objects: Dict[int, KeptObject] = {}  # that were placed, whether the core has taken them or not
        self.others: Dict[int, Any] = {}  # options and named functions
        self.deferred: Dict[int, DeferredTask] = {}  # that wait to be sent, by the number of the future
        self.opening: Dict[int, e.Outcome] = {}  # large results, by the number of the object

    def future_of(self, number: int) -> _Future:
        return self.futures.setdefault(number, _Future(number))

    def asker_of(self, number: int) -> Any:
        return self.askers.setdefault(number, _Asker(number)) if number else None

    def function_of(self, found: Any) -> Any:
        if isinstance(found, int):
            return found
        number, name, codec = found
        return self.others.setdefault(number, _Function(name, codec))

    def options_of(self, found: Any) -> Any:
        if isinstance(found, list):
            self.others[found[0]] = decode_struct(m.TaskOptions, found[1])
            return self.others[found[0]]
        return None if found is None else self.others[found]

    @staticmethod
    def future(future: _Future) -> int:
        return future.number

    @staticmethod
    def asker(asker: _Asker) -> int:
        return asker.number


class ClientReplay(Replay):
    """A client's core that gets the inputs of a recording.

    Parameters:
        recording: read from its beginning.

    Raises RecordingError if its beginning cannot be read.
    """

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self._reads = Reads()
        self._known = _Known()
        self._objects = _References(self._reads)
        try:
            welcome: Any = decode(bytes.fromhex(recording.header.settings["welcome"]))
        except (KeyError, ValueError, MalformedMessageError) as error:
            raise RecordingError(f"the beginning of the recording cannot be read: {error}") from error
        direct_bytes = int(recording.header.settings.get("direct_bytes", DIRECT_BYTES))
        self.core = ClientCore(welcome, self._numbers(), self._objects, direct_bytes)

    def _numbers(self) -> Iterator[int]:
        while True:
            yield self._reads.next()

    def repeat(self, entry: RecordedInput) -> None:
        found = decode_body(entry.body, self._recording.header.has_payloads)
        self._reads.begin(entry)
        self._repeat(self.name_of(entry.kind), found)
        self._reads.end()

    def _repeat(self, name: str, found: List[Any]) -> None:
        core = self.core
        if name == "apply":
            core.apply([self._command(each) for each in found])
        elif name == "take_effects":
            effects = core.take_effects()
            self.count(effects)
            self._perform(effects)
        elif name == "on_message":
            message: Any = decode(found[0])
            core.on_message(message, found[1])
        elif name == "on_sent":
            core.on_sent(self._plain(found))
        elif name == "on_result_opened":
            core.on_result_opened(found[0], self._known.opening.pop(found[0]), found[1])
        elif name == "on_welcome":
            welcome: Any = decode(found[0])
            core.on_welcome(welcome)
        elif name == "on_end":
            core.on_end(None if found[0] is None else _RecordedError(found[0]))
        else:
            getattr(core, name)()

    def _perform(self, effects: Sequence[e.Effect]) -> None:
        """What the shell does to futures, and what later inputs refer to."""
        known = self._known
        for effect in effects:
            if isinstance(effect, (e.SettleResults, e.Cancelled, e.Failed)):
                for future in effect.futures:
                    if future is not None:
                        future._source = None
            elif isinstance(effect, e.SettleOutcomes):
                for outcome in effect.outcomes:
                    outcome.future._source = None
            elif isinstance(effect, e.FailedAfter):
                effect.future._source = None
            elif isinstance(effect, e.SendDeferred):
                task: Any = effect.task
                known.deferred[task.future.number] = task
            elif isinstance(effect, e.OpenResult):
                known.opening[effect.object_id] = effect.outcome
            elif isinstance(effect, e.Tell):
                asker: Any = effect.asker
                known.askers.pop(asker.number, None)

    def crc_of(self, effects: Sequence[e.Effect]) -> int:
        return crc_of(effects, self._known)

    # Commands -------------------------------------------------------------------------------------------------------

    def _command(self, found: List[Any]) -> Any:
        if isinstance(found[0], int):
            return self._plain(found)
        return _COMMANDS[found[0]](self, *found[1:])

    def _plain(self, found: List[Any]) -> c.PlainTask:
        future, function, payload, options = found
        known = self._known
        return known.future_of(future), known.function_of(function), payload, known.options_of(options)

    def future(self, number: int) -> Any:
        return self._known.future_of(number)

    def futures(self, numbers: List[int]) -> List[Any]:
        return [self._known.future_of(number) for number in numbers]

    def asker(self, number: int) -> Any:
        return self._known.asker_of(number)

    def task(
        self,
        future: int,
        function: Any,
        payload: bytes,
        options: Any,
        dependencies: List[int],
        predecessors: List[int],
        arguments_bytes: int,
        asker: int,
    ) -> c.SubmitTask:
        plain = self._plain([future, function, payload, options])
        return c.SubmitTask(
            *plain, dependencies, self.futures(predecessors), arguments_bytes, self._known.asker_of(asker)
        )

    def graph(
        self, header: bytes, payload: bytes, functions: List[int], dependencies: List[int], targets: List[List[int]]
    ) -> c.SubmitGraph:
        columns: Any = decode(header)
        run = GraphRun(columns, payload, [self._known.objects[number] for number in functions])
        return c.SubmitGraph(
            run, dependencies, {position: self._known.future_of(future) for position, future in targets}
        )

    def kept(self, number: int, *fields: Any) -> c.HoldObject:
        kept = self._known.objects[number] = KeptObject(number, *fields)
        return c.HoldObject(kept)

    def deferred(self, future: int, payload: bytes, results: List[int], made: List[int]) -> c.SubmitDeferred:
        return c.SubmitDeferred(self._known.deferred.pop(future), payload, results, made)

    def end_deferred(self, future: int, failed: Any, error: Any) -> c.EndDeferred:
        return c.EndDeferred(
            self._known.deferred.pop(future),
            None if failed is None else self._known.future_of(failed),
            None if error is None else _RecordedError(error),
        )

    # For display -----------------------------------------------------------------------------------------------------

    def tables(self) -> Tables:
        core = self.core
        return {
            "client": [
                {
                    "next_task_id": core.next_task_id,
                    "unfinished": len(core.futures),
                    "ended": core.next_task_id - len(core.futures),
                    "is_connected": core.is_connected,
                    "is_closed": core.is_closed,
                    "room": core.room,
                    "to_be_sent": len(core.outbox.items),
                    "slots_of_the_cluster": core.slots,
                }
            ],
            "unfinished tasks": [
                {"id": task_id, "sent_as": type(future._source).__name__, "cancel_asked": future._is_cancel_asked}
                for task_id, future in core.futures.items()
            ],
            "objects": [
                {
                    "id": f"{kept.object_id:x}",
                    "name": kept.name,
                    "kind": m.ObjectKind(kept.kind).name,
                    "size": kept.size,
                    "is_held": kept.is_held,
                    "tasks": kept.references,
                }
                for kept in core.objects.kept()
            ],
        }

    @staticmethod
    def name_of(kind: int) -> str:
        return INPUTS[kind - 1]

    @staticmethod
    def summary(recording: Recording, entry: RecordedInput) -> str:
        name, found = ClientReplay.name_of(entry.kind), decode_body(entry.body, recording.header.has_payloads)
        if name == "apply":
            kinds = ["plain task" if isinstance(each[0], int) else each[0] for each in found]
            return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        if name == "on_message":
            message = decode(found[0])
            ids = getattr(message, "ids", None)
            about = f" of {len(ids)} from id {ids[0]}" if ids else ""
            return f"{type(message).__name__}{about}, {len(found[1])} bytes"
        return " ".join(f"{len(each)} bytes" if isinstance(each, bytes) else str(each) for each in found)


_COMMANDS: Dict[str, Callable[..., Any]] = {
    "SubmitTask": ClientReplay.task,
    "AwaitRoom": lambda replay, asker: c.AwaitRoom(replay.asker(asker)),
    "SubmitGraph": ClientReplay.graph,
    "SubmitDeferred": ClientReplay.deferred,
    "EndDeferred": ClientReplay.end_deferred,
    "Number": lambda replay, future: c.NumberFuture(replay.future(future)),
    "HoldObject": ClientReplay.kept,
    "LetGo": lambda replay, object_ids: c.LetGo(object_ids),
    "Cancel": lambda replay, futures, force: c.Cancel(replay.futures(futures), force),
    "GiveUp": lambda replay, futures: c.GiveUp(replay.futures(futures)),
    "CancelAll": lambda replay, asker: c.CancelAll(replay.asker(asker)),
    "Clear": lambda replay, object_ids: c.Clear(object_ids),
    "Ask": lambda replay, query, asker: c.Ask(decode(query), replay.asker(asker)),
    "Explain": lambda replay, future, asker: c.Explain(replay.future(future), replay.asker(asker)),
    "ForgetQuery": lambda replay, asker: c.ForgetQuery(replay.asker(asker)),
    "Barrier": lambda replay, asker: c.Barrier(replay.asker(asker)),
}
