"""A worker's program around the real core of its agent: connection, processors, files, and its death.

Rules:
- As in the real shell, events change the core, and what follows from a round of them is done once, in `_turn`. Of some
  workers each event is a round of its own, of others several events are.
- File operations are answered in the order in which they were asked for, at once or later.
- No processor that runs nothing gets tasks while as many as there are slots run some, or will.
- A worker that can drain stops no task before its time to drain, or its life, is over, unless it is told to stop at
  once. So no task runs again needlessly.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Sequence, Set

from whole_system.links.data_links import DataLinks
from whole_system.links.link_end import DATA_EFFECTS, LinkEnd
from whole_system.links.resuming_peer import ResumingPeer
from whole_system.links.worker_disk import WorkerDisk
from whole_system.processors import Processor, Slowness, chance_of, measured
from whole_system.scheduler_host import SchedulerHost
from whole_system.simulated_world import CLOCK_STEPS_SECONDS, Pipe, World
from whole_system.tenants import Key, serves
from whole_system.user_tasks import GPU, SERVED_FUNCTIONS, Task

from scaler.worker import frames
from scaler.worker.agent.core.agent_core import AgentCore
from scaler.worker.agent.core.agent_identity import AgentIdentity
from scaler.worker.agent.core.departure import FAREWELL_SECONDS, HAND_OVER_SECONDS
from scaler.worker.agent.core.effects import (
    ERROR,
    Deliver,
    EndProcessors,
    Finish,
    ImportModule,
    KillProcessor,
    Log,
    MeasureMemory,
    MeasureProcesses,
    Send,
    SpawnProcessor,
    StopProcessor,
)
from scaler.worker.exit_codes import EXIT_NO_SCHEDULER
from scaler.worker.frames import Frame, FrameKind
from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol import messages as m
from scaler_protocol.session.effects import Connect, Disconnect, StopConnecting
from scaler_protocol.session.peer_session import NEVER
from scaler_protocol.session.session_table import SessionState

if TYPE_CHECKING:
    from whole_system.nested_users import NestedUser


class WorkerHost(LinkEnd, WorkerDisk, ResumingPeer):
    """Parameters:
    new_client: starts a client in a task of a tenant.
    links: between workers.
    has_gpu: whether it must have one; it may have some otherwise.
    is_lasting: it does not leave by itself.
    """

    def __init__(
        self,
        world: World,
        scheduler: SchedulerHost,
        tasks: Dict[int, Task],
        name: str,
        key: Key,
        new_client: Callable[[str], NestedUser],
        links: DataLinks,
        has_gpu: bool = False,
        is_lasting: bool = False,
    ) -> None:
        super().__init__(world)
        random = world.random
        self.name, self.key = name, key
        self.tasks = tasks
        self.new_client = new_client
        self.is_stopping = False
        self.ended_instances: Set[int] = set()  # whose outcomes the core has
        self._started_instances: Set[int] = set()
        self._undealt: Dict[int, int] = {}  # functions of tasks that need nothing else, by instance
        self._defined: Set[int] = set()  # objects that some processor has got in this session
        self.is_shared = world.uses("shared_files")
        self.prepare_links(world, scheduler.network)
        self.open_links(links)
        self.open_disk()
        self.processors: Dict[int, Processor] = {}
        drawn = Random(f"earlier schedulers: {world.plan.seed} {name}").random()  # apart from all other draws
        self._meets_earlier_schedulers = drawn < world.rates["earlier_schedulers"]
        self._scheduler = scheduler
        self._pages: Dict[int, memoryview] = {}
        self._next_process, self._timer_at = 1, NEVER
        self._frame_seconds = random.choice((0.0, 0.0005, 0.005))
        slow = random.choice(((0.0, 0.05), (0.0, 0.7), (0.3, 3.0)))
        self._disk = Pipe(self, self.operate, lambda: random.choice(slow) if world.fault("slow_disk") else 0.0)
        self._rounds: Sequence[float] = random.choice(((), (0.0, 0.001), (0.0, 0.005, 0.05)))  # how long they take
        self._is_turn_due = False
        self._slots = world.choose("slots", (1, 1, 2, 4))
        self.is_exact = world.rates["exact_times"] > 0.0
        self.slowness = Slowness(world, name)
        self.has_gpu = world.uses("capabilities") or has_gpu
        self._leaving = Random(f"leaving: {world.plan.seed} {name}")  # apart, too
        leaving = self._leaving
        self._drain_seconds = leaving.choice((0.0, 0.5, 5.0, 25.0))
        leaves = not is_lasting and "stop_worker" not in world.plan.off
        life = leaving.choice((3.0, 12.0, 50.0)) if leaving.random() < 0.1 and leaves and not has_gpu else None
        self._stops_tasks_at = NEVER if life is None else self._end_of_tasks(life)
        self._signals = 0
        signal_rate = leaving.choice((0.0, 0.0, 0.01, 0.1))
        self._signal_rate = signal_rate if "stop_worker" not in world.plan.off else 0.0
        # In which ways each signal comes: from its supervisor, or not.
        self._ways = leaving.choice(((False,), (True,), (False, True)))
        self._has_end = life is not None
        idle_seconds = leaving.choice((0.7, 4.0)) if leaving.random() < 0.1 and leaves else 0.0
        self.stays = life is None and not idle_seconds
        is_forgetful = random.random() < 0.5
        self._knows_what_waits = not (is_forgetful or world.rates["code"])
        settings = WorkerSettings(
            address="tcp://scheduler:1",
            slots=self._slots,
            heartbeat_interval_seconds=2.0,
            garbage_collect_interval_seconds=random.choice((0.7, 30.0, 30.0)),
            object_retention_seconds=0.5 if is_forgetful else 3600.0,
            death_timeout_seconds=random.choice((10.0, 300.0)),
            per_worker_queue_size=random.choice((1, 2, 4)) if world.uses("small_limits") else 1000,
            capabilities=((GPU, random.choice((1.0, 2.0))),) if self.has_gpu else (),
            functions=SERVED_FUNCTIONS,
            drain_timeout_seconds=self._drain_seconds,
            idle_timeout_seconds=idle_seconds,
            end_of_life=None if life is None else self.now + life,
            unit=self.unit,
        )
        identity = AgentIdentity(name, "host", 77, "Python")
        self.core = AgentCore(settings, identity, self.page, lambda *_: b"too large", chance_of(random))
        self.core.start(self.now)
        self._turn()

    def page(self, number: int) -> memoryview:
        return self._pages.setdefault(number, memoryview(bytearray(8)).cast("Q"))

    @property
    def has_session(self) -> bool:
        return self.core.session.is_open and not self.is_stopping

    def frame_delay(self) -> float:
        return self.world.random.random() * self._frame_seconds

    # Its life -------------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """The whole program is killed."""
        self.world.say(self.name, "crashes")
        self._end()

    def step_clock(self, seconds: float) -> None:
        super().step_clock(seconds)
        at = self._timer_at
        self.after(0.0, lambda: self._on_time(at))

    def _end_of_tasks(self, life_seconds: float) -> float:
        """When a worker that lives for so long from now on may stop what runs."""
        whole_seconds = self._drain_seconds + HAND_OVER_SECONDS + FAREWELL_SECONDS
        kept_seconds = min(whole_seconds, life_seconds / 2)
        tasks_share = 0.0 if self._meets_earlier_schedulers else self._drain_seconds / whole_seconds
        return self.now + life_seconds - kept_seconds * (1.0 - tasks_share)

    def stop(self) -> None:
        """It is told to stop at once, or a signal asks it to."""
        if self._leaving.random() < 0.4:
            self.is_stopping = True
            self._stops_tasks_at = self.now
            self.core.on_stop_requested("asked to stop", self.now)
        else:
            self._signals += 1
            self.is_stopping |= self._signals > 1
            is_at_once = self._signals > 1 or not self.has_session or self._meets_earlier_schedulers
            seconds = 0.0 if is_at_once else self._drain_seconds
            self._stops_tasks_at = min(self._stops_tasks_at, self.now + seconds)
            name = self._leaving.choice(("SIGTERM", "SIGINT"))
            for is_forwarded in self._ways:
                self.core.on_signal(name, is_forwarded, self.now)
        self._turn()

    def _check_farewell(self, message: m.DisconnectRequest) -> None:
        is_idle = message.drain_cause == m.DrainCause.IDLE
        held = [each.number for each in self.processors.values() if each.held and not each.is_dismissed]
        assert not (is_idle and held), f"{self.name} leaves because it is idle, and processors {held} have tasks"

    def _check_end_of_processors(self) -> None:
        """A worker that stops its tasks has given them the time that they have."""
        running = [each.number for each in self.processors.values() if each.held and not each.is_dismissed]
        left_seconds = self._stops_tasks_at - self.now
        assert not running or left_seconds < 1e-6, f"{self.name} ends processors {running} {left_seconds} s too early"

    def misfortune(self) -> None:
        world = self.world
        if self._leaving.random() < self._signal_rate and not self.is_stopping:
            self.stop()
            return
        if world.fault("worker_crash"):
            self.crash()
        elif world.fault("pause"):
            self.pause(world.random.choice((0.3, 2.0, 8.0)))
        elif world.fault("clock_step"):
            self.step_clock(world.random.choice(CLOCK_STEPS_SECONDS))
        elif world.fault("stop_worker") and not self.is_stopping:
            self.stop()

    def _end(self) -> None:
        self.is_alive = False
        for processor in self.processors.values():
            processor.die("its worker ended")
        self.processors.clear()
        self.end_links()
        self.end_disk()
        self.drop()

    # Turns ----------------------------------------------------------------------------------------------------------

    def _round(self) -> None:
        """An event has changed the core; its round ends now or soon."""
        if not self._rounds:
            self._turn()
        elif not self._is_turn_due:
            self._is_turn_due = True
            self.after(self.world.random.choice(self._rounds), self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        core = self.core
        core.finish_turn(self.now)
        while core.effects and self.is_alive:
            effects = core.take_effects()
            for effect in effects:
                self._perform(effect)
            if not all(type(effect) in (Deliver, Send) for effect in effects):
                core.finish_turn(self.now)  # some are answered at once
        if self._undealt and self.is_alive and self.has_session:
            self._check_processors()
        if core.next_time < self._timer_at and self.is_alive:
            self._timer_at = core.next_time
            at = self._timer_at
            self.at_own(at, lambda: self._on_time(at))

    def _on_time(self, at: float) -> None:
        if at == self._timer_at:
            self._timer_at = NEVER
            self.core.on_time(self.now)
            self._turn()

    def _perform(self, effect: Any) -> None:
        core = self.core
        if isinstance(effect, Send):
            for each in effect.message.ids if isinstance(effect.message, (m.BalanceResponse, m.TaskResult)) else ():
                self._undealt.pop(each, None)
            if isinstance(effect.message, m.TaskCancelConfirm):
                self._check_confirmation(effect.message)
            elif isinstance(effect.message, m.BalanceResponse):
                begun = self._started_instances.intersection(effect.message.ids)
                assert not begun, f"{begun} are given back, and have begun"
            elif isinstance(effect.message, m.DisconnectRequest):
                self._check_farewell(effect.message)
            elif isinstance(effect.message, m.Hello):
                assert bool(effect.message.remaining_milliseconds) is self._has_end, "it does not say when it leaves"
            self.send(effect.message, effect.payload)
        elif isinstance(effect, Deliver):
            processor = self.processors.get(effect.number)
            if processor is not None:
                data = frames.join(effect.buffers)
                _, kind, flags = frames.HEADER.unpack_from(data)
                frame = Frame(kind, flags, data[frames.HEADER.size :])
                if kind == FrameKind.TASKS:
                    self._check_slots(processor)
                    ids = frames.parse_tasks(flags, frame.body).ids
                    processor.held += len(ids)  # as the agent sees it from now on
                    state: Any = core.tasks.pool.get(effect.number) or processor
                    is_last = core.session.state in (SessionState.ASKING, SessionState.DRAINING)
                    for instance in ids:
                        self._undealt.pop(instance, None)
                        is_new = not (instance in self._started_instances or state.actor)
                        assert not (is_new and is_last), f"{self.name} drains, and begins {instance}"
                elif kind == FrameKind.DEFINE:
                    self._defined.add(frames.parse_define(frame.body)[0])
                processor.inbox.send(frame)
        elif isinstance(effect, DATA_EFFECTS):
            self.perform_on_link(effect)
        elif isinstance(effect, Connect):
            self.connect(self._scheduler.network)
        elif isinstance(effect, StopConnecting):
            self.drop()
            self.core.on_connect_failed("timed out", self.now)
        elif isinstance(effect, Disconnect):
            self.drop()
        elif isinstance(effect, SpawnProcessor):
            self._spawn(effect)
        elif isinstance(effect, KillProcessor):
            processor = self.processors.get(effect.number)
            if processor is not None:
                processor.is_dismissed = True
                processor.after(self.frame_delay(), partial(processor.die, "was ended by signal 9 (SIGKILL)"))
        elif isinstance(effect, StopProcessor):
            processor = self.processors.get(effect.number)
            if processor is not None:
                processor.is_dismissed = True
                processor.inbox.send(Frame(FrameKind.STOP, 0, b""))
        elif isinstance(effect, EndProcessors):
            self._check_end_of_processors()
            for processor in self.processors.values():
                processor.die("its worker leaves")
            self.processors.clear()
        elif isinstance(effect, MeasureProcesses):
            core.on_processes_measured(*measured(self.world.plan.seed, effect.process_ids), self.now)
        elif isinstance(effect, MeasureMemory):
            core.on_memory_measured({})
        elif isinstance(effect, Log):
            self.world.say(self.name, effect.text)
            assert effect.level < ERROR or "contradict" not in effect.text, effect.text
        elif isinstance(effect, Finish):
            assert effect.exit_code != EXIT_NO_SCHEDULER or not self.world.must_be_connected, (
                f"{self.name} gives up, and the scheduler is there"
            )
            self.has_finished = True
            self._end()
        elif not isinstance(effect, ImportModule):
            self._disk.send(effect)

    # Processors -----------------------------------------------------------------------------------------------------

    def _spawn(self, effect: SpawnProcessor) -> None:
        assert effect.number not in self.processors, "a number is used again before its processor has ended"
        process_id, self._next_process = self._next_process, self._next_process + 1
        processor = self.processors[effect.number] = Processor(self, effect.number, process_id)

        def start() -> None:
            if processor.is_alive:
                self.core.on_processor_started(processor.number, processor.process_id)
                if self.world.fault("early_death"):
                    processor.die("exited with code 1")
                else:
                    processor.start()
                self._round()

        self.after(effect.delay_seconds + self.frame_delay(), start)

    def on_frame(self, processor: Processor, frame: Frame) -> None:
        if self.processors.get(processor.number) is processor:
            state = self.core.tasks.pool.get(processor.number)
            if frame.kind == FrameKind.RESULTS and state is not None and not state.killed:  # as at a session's end
                self.ended_instances.update(processor.arriving_instances.pop(0))
            processor.note_received(frame)
            self.core.on_frames(processor.number, [frame])
            self._round()

    def _check_slots(self, processor: Processor) -> None:
        others = [each for each in self.processors.values() if each is not processor]
        busy = sum(each.held > 0 and not each.is_blocked for each in others)
        assert processor.held or busy < self._slots, f"{busy} processors are busy, and another one gets tasks"

    def _check_processors(self) -> None:
        """No task waits for nothing while a processor is idle."""
        states = list(self.processors.values())
        free = [each for each in states if each.is_started and each.is_alive and not each.is_dismissed]
        pool = self.core.tasks.pool
        is_idle = any(not each.held and (pool.get(each.number) or each).actor == 0 for each in free)
        busy = sum(each.held > 0 for each in states)
        if is_idle and busy < self._slots and not any(each.is_blocked for each in states):
            able = self._defined - self.core.tasks._shortage._functions
            waiting = [each for each, function in self._undealt.items() if function in able]
            assert not waiting, f"tasks {waiting[:5]} wait at {self.name}, and a processor is idle"

    def _check_confirmation(self, message: m.TaskCancelConfirm) -> None:
        for instance, outcome in zip(message.ids, message.outcomes):
            is_cancelled = outcome == m.CancelOutcome.CANCELLED
            assert not (is_cancelled and instance in self.ended_instances), f"{instance} is cancelled after its end"

    def on_processor_ended(self, processor: Processor, description: str) -> None:
        if self.processors.get(processor.number) is processor:
            del self.processors[processor.number]
            before = len(self.core.effects)
            kills = (each for each in self.core.effects if isinstance(each, (KillProcessor, StopProcessor)))
            is_dismissed = processor.is_dismissed or processor.number in {each.number for each in kills}
            is_early = not (processor.page[0] or is_dismissed)
            self.core.on_processor_died(processor.number, description, self.now)
            for effect in self.core.effects[before:]:
                is_at_once = isinstance(effect, SpawnProcessor) and not effect.delay_seconds
                assert not (is_early and is_at_once), "a processor that died at once is replaced at once"
            self._round()

    def on_task_started(self, task: Task, instance: int) -> None:
        assert serves(self.key, task.tenant), f"{self.name} of {self.key.tenant!r} runs a task of {task.tenant!r}"
        task.start_count += 1
        self._started_instances.add(instance)
        self.world.say(self.name, "starts task", task.key, "instance", instance)
        assert not task.at_most_once or task.start_count == 1, f"task {task.key} may run at most once"

    # The scheduler --------------------------------------------------------------------------------------------------

    def on_connected(self) -> None:
        self.ended_instances.clear()  # another scheduler begins with the same ids
        self._started_instances.clear()
        self._undealt.clear()
        self._defined.clear()
        self.core.on_connected(self.now, self.data_address, self.data_key if self.data_address else b"")
        self._round()

    def on_connect_failed(self, reason: str) -> None:
        self.core.on_connect_failed(reason, self.now)
        self._round()

    def on_disconnected(self, reason: str) -> None:
        self.core.on_disconnected(reason, self.now)
        self._round()

    def on_message(self, message: Any, payload: bytes) -> None:
        if isinstance(message, m.Task) and message.options.actor:
            pass  # calls wait for their actor
        elif isinstance(message, m.Task) and not message.dependencies and self._knows_what_waits:
            self._undealt.update((instance, message.function) for instance in message.ids)
        elif isinstance(message, (m.TaskCancel, m.BalanceRequest, m.DisconnectRequest, m.Refusal)):
            self._undealt.clear()
        elif isinstance(message, m.Welcome) and self._meets_earlier_schedulers:
            message.features = []
        self.core.on_message(message, payload, self.now)
        if isinstance(message, m.Welcome):
            self._turn()  # so that it is known where objects are before the next message
        else:
            self._round()

    # In the end -----------------------------------------------------------------------------------------------------

    def what_is_kept(self) -> List[str]:
        """What it keeps of clients; nothing, once no client is there and it has learned so."""
        core = self.core
        kept = [] if core.tasks.is_empty else ["tasks"]
        for name in ("_inline", "_paths", "_sizes", "_fetches", "_kept", "served", "_own_files", "_looked_for"):
            table = getattr(core.objects, name)
            if table:
                kept.append(f"{name} {table}")
        kept += self.what_links_keep()
        if self.files or self.folders:
            kept.append(f"files {list(self.files)}, folders {list(self.folders)}")
        return kept
