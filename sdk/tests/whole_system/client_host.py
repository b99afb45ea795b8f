"""A client's program around the real core and the real session: what the I/O thread does, and its connection and files.

Rules:
- As in the real shell: commands are taken, then effects performed, those of the core before those of the session, one
  of these at a time.
- Of some clients each message is a round of its own, of others several are: what follows is done once, at its end.
- Commands wait until the I/O thread looks, which takes a moment; sending deferred tasks is another thread's work.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from random import Random
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Union

from whole_system.futures import Asker, Future
from whole_system.links.data_links import DataLinks
from whole_system.links.resuming_peer import ResumingPeer
from whole_system.links.serving_end import DIRECT_BYTES, ServingEnd
from whole_system.scheduler_host import SchedulerHost
from whole_system.simulated_world import World
from whole_system.tenants import Key

from scaler.client.core import commands as c
from scaler.client.core import effects as e
from scaler.client.core.client_core import ClientCore
from scaler.client.core.client_objects import missing
from scaler.client.core.deferring import PREDECESSORS, DeferredTask
from scaler.client.core.kept_objects import KeptObject
from scaler.client.core.outbox import FunctionKey
from scaler.exceptions import DisconnectedError
from scaler.values.codecs import PYTHON_CODEC
from scaler.values.payload import RESULT_IS_OBJECT, RESULTS_MARK
from scaler.values.sizes import INLINE_BYTES
from scaler_protocol.session.effects import (
    Connect,
    Disconnect,
    EndCause,
    Ended,
    Interrupted,
    Opened,
    StopConnecting,
    Transmit,
)
from scaler_protocol.session.peer_session import NEVER, PeerSession, SessionSettings
from scaler_protocol.wire import messages as m

GIVE_UP_SECONDS = (8.0, 60.0)


class FileContent:
    """A file of the client's own, on the scheduler's host."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.is_discarded = False


Content = Union[bytes, FileContent]


class ClientHost(ResumingPeer, ServingEnd):
    def __init__(self, world: World, scheduler: SchedulerHost, name: str, key: Key, links: DataLinks) -> None:
        super().__init__(world)
        self.name, self.key = name, key
        self.is_shared = world.uses("shared_files")
        self.prepare_links(world, scheduler.network)
        self.prepare_serving(links)
        self.core: Optional[ClientCore] = None  # there is none before the first session
        self.ended: Optional[Ended] = None
        self.is_leaving = False
        self.session_losses = 0
        self.give_up_seconds = world.random.choice(GIVE_UP_SECONDS)
        self.on_session: Callable[[], None] = lambda: None  # called when one has begun
        self.open_askers: Dict[Asker, None] = {}
        self.room = 0
        self._scheduler = scheduler
        self._commands: List[Any] = []
        self._is_awake = False
        self._rounds: Sequence[float] = world.random.choice(((), (0.0, 0.001), (0.0, 0.02)))  # how long they take
        self._is_round_open = False
        self._is_over = False
        self._numbers = itertools.count(1)
        self._timer_at = NEVER
        self._effects: List[Any] = []
        host = Random(f"host of {name}: {world.plan.seed}").choice(("host", "laptop"))  # workers are on "host"
        hello = m.Hello(role=m.Role.CLIENT, codecs=[PYTHON_CODEC], name=name, host=host, features=[PREDECESSORS])
        self.offer(hello)
        settings = SessionSettings(
            2.0, silence_timeout_seconds=6.0, give_up_seconds=self.give_up_seconds, lasting_seconds=3.0
        )
        self.session = PeerSession(hello, settings, self._effects, lambda now: m.Heartbeat(), world.random.random)
        self._performers: Dict[type, Callable[[Any], object]] = {
            e.Send: lambda effect: self.send(effect.message, b"".join(effect.payload)),
            e.PlaceObject: self._place_object,
            e.SendChunk: self._send_chunk,
            e.DiscardObject: self._discard,
            e.FollowToDisk: lambda effect: None,
            e.OpenResult: self._open_result,
            e.SettleResults: self._settle_results,
            e.SettleOutcomes: self._settle_outcomes,
            e.Cancelled: lambda effect: [each.end("cancelled") for each in effect.futures],
            e.Failed: lambda effect: [each.end("error", effect.error) for each in effect.futures],
            e.FailedAfter: lambda effect: effect.future.end("after", effect.failed),
            e.CancelAnswered: lambda effect: effect.future.on_cancel_answered(),
            e.NoteStack: lambda effect: None,
            e.SendDeferred: lambda effect: self.after(world.delay(), lambda: self._send_deferred(effect.task)),
            e.Tell: lambda effect: effect.asker.put(effect.answer),
            e.Warn: lambda effect: None,
        }
        self.session.start(self.now)
        self._perform()

    # What user threads do -------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether users may call it."""
        return self.is_alive and self.core is not None and self.ended is None and not self.is_leaving

    @property
    def has_session(self) -> bool:
        return self.session.is_open and not self.is_leaving

    def post(self, command: Any) -> None:
        if self.ended is not None:
            self._refuse([command])
            return
        self._commands.append(command)
        if not self._is_awake:
            self._is_awake = True
            self.after(self.world.random.choice((0.0, 0.0, 0.002, 0.05)), self._turn)

    def asker(self, then: Callable[[Any], None] = lambda answer: None) -> Asker:
        asker = Asker(self.open_askers, then)
        self.open_askers[asker] = None
        return asker

    def send_object(self, content: bytes, kind: m.ObjectKind = m.ObjectKind.VALUE) -> KeptObject:
        """Place an object in the cluster, which is held until it is let go."""
        assert self.core is not None
        number = next(self._numbers)
        object_id = self.core.objects._session_bits | number
        kept: Content = FileContent(content) if self.is_shared and len(content) >= INLINE_BYTES else content
        made = KeptObject(number, object_id, "", kind, len(content), PYTHON_CODEC, kept)
        self.post(c.HoldObject(made))
        return made

    def submit_plain(self, future: Future, function: FunctionKey, options: Optional[m.TaskOptions]) -> None:
        """As the real shell: a bare tuple, a task that this thread sends itself, or one that waits for credit."""
        assert self.core is not None
        payload = future.task.payload
        if len(self._commands) >= self.room:
            self.submit(c.SubmitTask(future, function, payload, options))
        elif isinstance(function, int) and self._may_send_alone() and self.world.uses("lone_tasks"):
            message = m.Task(ids=array("Q", [self.core.next_task_id]), payload_sizes=array("I", [len(payload)]))
            message.function, message.codec = self.core.objects.wire_id(function), PYTHON_CODEC
            if options is not None:
                message.options = options
            self.send(message, payload)
            self.core.on_sent((future, function, payload, options))
            self.room = self.core.room
            future.on_applied()
        else:
            self.post((future, function, payload, options))

    def submit(self, task: c.SubmitTask) -> None:
        """Submit any task; its user has the future as soon as the scheduler takes one more."""
        future: Any = task.future
        if task.arguments_bytes or len(self._commands) >= self.room:
            future.is_in_hand = False
            self.post(task._replace(asker=self.asker(lambda answer: future.on_applied())))
        else:
            self.post(task)

    def _may_send_alone(self) -> bool:
        core = self.core
        assert core is not None
        is_asleep = not (self._commands or self._is_round_open)
        return core.is_idle and is_asleep and core.room > 0 and self.session.is_open

    def leave(self) -> None:
        self.is_leaving = True
        self.after(0.0, self._turn)

    def step_clock(self, seconds: float) -> None:
        super().step_clock(seconds)
        at = self._timer_at
        self.after(0.0, lambda: self._on_time(at))

    def crash(self) -> None:
        self.world.say(self.name, "crashes")
        self.is_alive = False
        self.end_links()
        self.drop()

    # Turns ----------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._is_awake = False
        if self._is_over:
            return
        self._take_commands()
        if self.is_leaving and (self.core is None or not self.core.is_closed):
            self._leave()
        self._perform()

    def _take_commands(self) -> None:
        commands, self._commands = self._commands, []
        if commands and self.core is not None:
            self.core.apply(commands)
            self.room = self.core.room
            for command in commands:
                if type(command) is tuple or type(command) is c.SubmitTask:
                    future: Any = command[0]
                    future.on_applied()

    def _leave(self) -> None:
        if self.core is not None:
            self.core.on_leaving()
        self._perform()
        self.session.leave(self.now)

    def _perform(self) -> None:
        while True:
            effects = [] if self.core is None else self.core.take_effects()
            for effect in effects:
                self._performers[type(effect)](effect)
            if not effects:
                if not self._effects:
                    break
                self._perform_session(self._effects.pop(0))
        self._plan()

    def _plan(self) -> None:
        if self.session.next_time < self._timer_at and not self._is_over:
            at = self._timer_at = self.session.next_time
            self.at_own(at, lambda: self._on_time(at))

    def _on_time(self, at: float) -> None:
        if at == self._timer_at and not self._is_over:
            self._timer_at = NEVER
            self.session.on_time(self.now)
            self._perform()

    def _perform_session(self, effect: Any) -> None:
        if isinstance(effect, Transmit):
            self.send(effect.message)
        elif isinstance(effect, Connect):
            self.connect(self._scheduler.network)
        elif isinstance(effect, StopConnecting):
            self.drop()
            self.session.on_connect_failed(self.now, "timed out")
        elif isinstance(effect, Disconnect):
            self.drop()
        elif isinstance(effect, Opened):
            self._on_opened(effect.welcome)
        elif isinstance(effect, Interrupted):
            self.world.say(self.name, "interrupted:", effect.reason, effect.refusal)
            if effect.was_open:
                self.session_losses += 1
                assert self.core is not None
                self.core.on_lost()
                self._end_session()
                late = [task_id for task_id, future in self.core.futures.items() if future._is_cancel_asked]
                assert not late, f"{self.name} would send tasks {late} again, which were to be cancelled"
        else:
            self._on_ended(effect)

    def _on_opened(self, welcome: m.Welcome) -> None:
        welcome = self.agreed(welcome)
        self._directory = welcome.object_directory
        if self.core is None:
            self.core = ClientCore(welcome, self._numbers, direct_bytes=DIRECT_BYTES)
            self.serve(self.core)
        else:
            count = self.core.on_welcome(welcome)
            self.world.say(self.name, "is session", welcome.session, "and sends again", count)
        self.on_session()
        self.room = self.core.room

    def _on_ended(self, effect: Ended) -> None:
        self.world.say(self.name, "ended:", effect)
        assert effect.cause is not EndCause.REFUSED, f"{self.name} takes a refusal for final: {effect.reason}"
        has_reason = effect.cause is not EndCause.GAVE_UP or not self.world.must_be_connected
        assert has_reason, f"{self.name} gives up, and the scheduler is there"
        self._is_over = True
        error = None if effect.cause is EndCause.LEFT else DisconnectedError(effect.reason)
        if self.core is not None:
            self._take_commands()
            self.core.on_end(error)
            self.ended = effect
            for each in self.core.take_effects():
                self._performers[type(each)](each)
        self.ended = effect
        self._end_session()
        self.room = 0
        self._refuse(self._commands)
        self._commands = []
        self.drop()

    def _refuse(self, commands: List[Any]) -> None:
        futures, askers = c.refused(commands)
        for future in futures:
            future.end("cancelled")  # type: ignore[attr-defined]  # one of ours
        for asker in askers:
            asker.put(None)

    # The scheduler --------------------------------------------------------------------------------------------------

    def on_connected(self) -> None:
        self.session.on_connected(self.now)
        self._perform()

    def on_connect_failed(self, reason: str) -> None:
        self.session.on_connect_failed(self.now, reason)
        self._perform()

    def on_disconnected(self, reason: str) -> None:
        if not self._is_over:
            self.session.on_disconnected(self.now, reason)
            self._perform()

    def on_message(self, message: Any, payload: bytes) -> None:
        if self._is_over:
            return
        self._take_commands()  # tasks before their results
        now = self.now
        if self.session.on_message(now, message):
            assert self.core is not None
            if isinstance(message, m.TaskResult):
                self.session.made_progress(now)
            if isinstance(message, m.TaskCancelConfirm):
                self._confirm_cancels(message, payload)
            elif not isinstance(message, m.TaskLog):
                self.core.on_message(message, payload)
                self.on_served_message(message)
        if self._effects or not self._rounds:
            self._end_round()
        elif not self._is_round_open:
            self._is_round_open = True
            self.after(self.world.random.choice(self._rounds), self._end_round)

    def _end_round(self) -> None:
        """What was received is processed: perform what follows."""
        self._is_round_open = False
        if not self._is_over:
            self._perform()
        if self.core is not None and self.ended is None:
            self.room = self.core.room

    def _confirm_cancels(self, message: m.TaskCancelConfirm, payload: bytes) -> None:
        """Who is told that a task was not cancelled has its future still."""
        assert self.core is not None
        futures = self.core.futures
        outcomes = list(zip(message.ids, message.outcomes))
        cancelled = {task_id for task_id, outcome in outcomes if outcome == m.CancelOutcome.CANCELLED}
        others = [(each, futures[each]) for each in message.ids if each in futures and each not in cancelled]
        self.core.on_message(message, payload)
        assert all(futures.get(task_id) is future for task_id, future in others), "a cancel was refused, and done"

    # Outcomes -------------------------------------------------------------------------------------------------------

    def _settle_results(self, effect: e.SettleResults) -> None:
        offset = 0
        for future, size in zip(effect.futures, effect.sizes):
            if future is not None:
                future.end("result", bytes(effect.payload[offset : offset + size]))  # type: ignore[attr-defined]  # one of ours
            offset += size

    def _settle_outcomes(self, effect: e.SettleOutcomes) -> None:
        for outcome in effect.outcomes:
            assert outcome.payload is not None
            kind = "failure" if outcome.has_failed else "result"
            outcome.future.end(kind, bytes(outcome.payload))  # type: ignore[attr-defined]  # one of ours

    def _send_deferred(self, task: DeferredTask) -> None:
        """Another thread puts results in front of the payload."""
        needed: Any = task.predecessors
        if any(each.kind == "cancelled" for each in needed):
            self.post(c.EndDeferred(task))
            return
        failed = next((each for each in needed if each.kind != "result"), None)
        if failed is not None:
            self.post(c.EndDeferred(task, failed=failed))
            return
        if self.core is None or self.ended is not None:
            return
        parts: List[bytes] = []
        sizes: List[int] = []
        objects: List[int] = []
        inline_bytes = len(task.payload)
        for each in needed:
            if inline_bytes + len(each.value) < INLINE_BYTES:
                inline_bytes += len(each.value)
                parts.append(each.value)
                sizes.append(len(each.value))
            else:
                objects.append(self.send_object(each.value).object_id)
                sizes.append(RESULT_IS_OBJECT)
        header = struct.pack(f"<II{len(sizes)}I", RESULTS_MARK, len(sizes), *sizes)
        self.post(c.SubmitDeferred(task, b"".join([header, *parts, task.payload]), objects, objects))

    # Files ----------------------------------------------------------------------------------------------------------

    def _place_object(self, effect: e.PlaceObject) -> None:
        content, instruction = effect.kept.content, effect.instruction
        if self.is_shared and isinstance(content, FileContent) and not content.is_discarded:
            path = f"{self._directory}/{instruction.ids[0]:016x}"
            if self._scheduler.has_directory(path):
                self._scheduler.files[path] = content.content
                instruction.storages = bytes([m.ObjectStorage.SHARED])
        self.send(instruction)

    def _send_chunk(self, effect: e.SendChunk) -> None:
        kept, request = effect
        content = kept.content
        if isinstance(content, FileContent):
            if content.is_discarded:
                self.send(missing(request))
                return
            content = content.content
        chunk = content[request.offset : request.offset + request.length]
        self.send(m.ObjectResponse(id=request.id, offset=request.offset, size=kept.size), chunk)
        if self.world.rates["maker_crash"] and self.world.fault("maker_crash"):
            self.after(0.0, self.crash)

    def _discard(self, effect: e.DiscardObject) -> None:
        content = effect.kept.content
        if isinstance(content, FileContent):
            assert not content.is_discarded, "a file is removed twice"
            content.is_discarded = True

    def _open_result(self, effect: e.OpenResult) -> None:
        assert self.core is not None
        path = f"{self._directory}/{effect.object_id:016x}"
        content = self._scheduler.files.get(path) if self.is_shared else None
        self.core.on_result_opened(effect.object_id, effect.outcome, content)

    # In the end -----------------------------------------------------------------------------------------------------

    def what_is_kept(self) -> List[str]:
        """What it keeps; nothing, once all futures have ended and everything was let go."""
        core = self.core
        assert core is not None
        tables: Dict[str, Iterable[object]] = {
            "unfinished futures": core.futures,
            "objects for tasks that have ended": core.pending.needs,
            "deferred tasks": core.pending.deferring.waiting,
            "tasks that wait for credit": core._waiting,
            "results of tasks that have ended": core.objects._fetching,
            "objects that no task needs": [hex(each.object_id) for each in core.objects.kept() if not each.is_held],
        }
        return [f"{name} {list(table)}" for name, table in tables.items() if table] + self.what_is_served()
