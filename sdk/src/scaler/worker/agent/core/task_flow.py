"""The path of tasks through a worker: which task runs on which processor, and its outcome.

    Task ─▶ waiting for objects ─▶ queue ─▶ chunk on a processor ─▶ outcomes ─▶ TaskResult
                                     ▲               │
                                     └─ given back, died, not started

Rules:
- `on_<event>` methods change state and append to `effects`; `finish_turn` follows once after a round of events.
- There is no object and no dictionary entry per task. Tasks are columns; a task's position in a processor's stream says
  where it is.
- Credit: a processor gets as many tasks at once as take about CHUNK_SECONDS by the measured mean of their function, one
  at a time while that is unknown. A second chunk may wait behind a chunk of several tasks, never behind a chunk of one:
  only the former are watched by the processor (see `processor`).
- Calls of actors wait apart, see `call_flow`. If they and other tasks wait for the same slots, they take turns,
  unless the others are more urgent.
- A task that must not run again has a chunk of its own, so that it is not lost because of another task.
- An outcome that was accepted from a processor is the task's outcome; a task without one is run again, unless it
  forbids that.
"""

from __future__ import annotations

from typing import Callable, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from scaler.values.codecs import CODECS, NEUTRAL_CODECS, PYTHON_CODEC
from scaler.worker import frames
from scaler.worker.agent.core.actor_flow.call_flow import CallFlow
from scaler.worker.agent.core.cancellations import Cancellations
from scaler.worker.agent.core.chunk_sizes import PIPELINE_TASK_SECONDS, chunk_size
from scaler.worker.agent.core.dead_processors import DeadProcessors, Death, MemoryShortage
from scaler.worker.agent.core.effects import Deliver, Effect, FunctionCode, ObjectListener, ObjectSource, Send
from scaler.worker.agent.core.finished_tasks import NOT_RUN, FinishedTasks, Ran, TooLargePayload
from scaler.worker.agent.core.printed_output import PrintedOutput
from scaler.worker.agent.core.processor_pool import KillReason, ProcessorChunk, ProcessorPool, ProcessorState
from scaler.worker.agent.core.task_durations import TaskDurations
from scaler.worker.agent.core.task_limits import TaskLimits
from scaler.worker.agent.core.task_queue import HeldTasks, TaskQueue, batch_from_message
from scaler.worker.agent.core.waiting_tasks import WaitingTasks
from scaler.worker.frames import Buffer, Results
from scaler_protocol import messages as m

TICK_SECONDS = 0.02


class TaskFlowSettings(NamedTuple):
    slots: int
    name: str = ""  # of the worker, for error messages
    task_timeout_seconds: float = 0.0  # for tasks without a limit of their own; 0: none
    only_named: bool = False  # functions run


class TaskFlow(ObjectListener):
    """The state of one worker's tasks and processors.

    Parameters:
        progress: gives the progress entry of a processor number.
        objects: provides functions and values, and takes large results.
        effects: shared with the rest of the core.
        too_large_payload: see `FinishedTasks`.
        code: provides code of clients; None: not supported.
    """

    def __init__(
        self,
        settings: TaskFlowSettings,
        progress: Callable[[int], memoryview],
        objects: ObjectSource,
        effects: List[Effect],
        too_large_payload: TooLargePayload,
        code: Optional[FunctionCode] = None,
    ) -> None:
        self.effects = effects
        self.queue = TaskQueue()
        self.waiting = WaitingTasks()
        self.pool = ProcessorPool(settings.slots, progress, effects)
        self._settings = settings
        self._objects = objects
        self._code = code
        self._durations = TaskDurations()
        self._outcomes = FinishedTasks(objects, settings.name, too_large_payload)
        self._output = PrintedOutput()
        self._cancellations = Cancellations(self.pool)
        self._dead = DeadProcessors(self._cancellations, effects, self._requeue, self._lose)
        self._shortage = MemoryShortage(self.pool, self.queue, effects)
        self.calls = CallFlow(
            self.pool, objects, code, self._durations, self._cancellations, self._dead, self._lose, self._give
        )
        self._limits = TaskLimits(self.pool, effects)
        self.is_watched = False  # by monitors of the scheduler
        self._is_draining = False
        self._is_turn_of_calls = True  # if others of the same priority wait for the same slots
        self._reporting: List[ProcessorState] = []  # which sent outcomes in this turn

    # From the scheduler -------------------------------------------------------------------------------------

    def on_tasks(self, message: m.Task, payload: Buffer) -> None:
        """Tasks to run. Raises MalformedMessageError if the message contradicts itself."""
        batch = batch_from_message(message, payload, self._settings.task_timeout_seconds)
        understood = CODECS if message.function_name else (PYTHON_CODEC,)
        if self._settings.only_named and (not message.function_name or message.codec not in NEUTRAL_CODECS):
            text = f"this worker serves named functions only (--only-named), called in {' or '.join(NEUTRAL_CODECS)}"
            self._lose(batch, m.FailureKind.CODEC_UNKNOWN, text)
            return
        if message.codec and message.codec not in understood:  # SCL-COD-004
            what = "named functions" if message.function_name else "functions that are sent"
            text = f"this worker understands {' and '.join(understood)} for {what}, not {message.codec!r}"
            self._lose(batch, m.FailureKind.CODEC_UNKNOWN, text)
            return
        missing = {i for i in batch.needed_objects() if not self._objects.is_available(i)}
        if batch.traits.is_call:
            self.calls.on_calls(batch, missing)
            return
        if not missing:
            # SCL-WRK-001
            self._enqueue(batch)
            return
        for ready in self.waiting.add(batch, missing):
            self._enqueue(ready)
        for object_id in missing:
            self._objects.fetch(object_id)

    def _enqueue(self, batch: HeldTasks) -> None:
        """All objects of a batch are here: it can run, unless its function needs code that is missing."""
        missing = self._code.missing(batch.traits.function) if self._code is not None else set()
        if not missing:
            self.queue.append(batch)
            return
        self.waiting.add_whole(batch, missing)
        for object_id in missing:
            if not self._objects.is_available(object_id):  # else it is being read or unpacked
                self._objects.fetch(object_id)

    def on_code_failed(self, archives: Iterable[int], why: str) -> None:
        """Archives of code cannot be unpacked."""
        for object_id in archives:
            for batch in self._take_lost(object_id):
                self._lose(batch, m.FailureKind.FUNCTION_NOT_LOADED, why)

    def on_object_available(self, object_id: int) -> None:
        for batch in self.waiting.arrived(object_id):
            self._enqueue(batch)
        self.calls.actors.arrived(object_id)

    def _take_lost(self, object_id: int) -> List[HeldTasks]:
        """Take the tasks that wait for an object, which cannot be fetched."""
        return self.waiting.lost(object_id) + self.calls.actors.lost(object_id)

    def on_object_missing(self, object_id: int, is_maker_lost: bool = False) -> None:
        what = "was lost with the worker that had made it" if is_maker_lost else "does not exist (any more)"
        reason = m.MissingReason.MAKER_LOST if is_maker_lost else m.MissingReason.UNKNOWN
        for batch in self._take_lost(object_id):
            # SCL-WRK-014, SCL-OBJ-020
            text = f"object {object_id:x}, which the task needs, {what}"
            self._lose(batch, m.FailureKind.OBJECT_MISSING, text, missing_reason=reason)

    def on_no_room_for_object(self, object_id: int, why: str) -> None:
        for batch in self._take_lost(object_id):
            # SCL-OBJ-020
            text = f"object {object_id:x}, which the task needs, {why}"
            self._lose(batch, m.FailureKind.OBJECT_MISSING, text, missing_reason=m.MissingReason.NO_ROOM)

    def on_object_deleted(self, object_ids: Set[int]) -> None:
        """The scheduler deleted objects: processors need not keep them."""
        for state in self.pool.states():
            dropped = object_ids.intersection(state.defined)
            if dropped:
                for object_id in dropped:
                    del state.defined[object_id]
                self.effects.append(Deliver(state.number, frames.drop_frame(sorted(dropped))))
        self.calls.on_objects_deleted(object_ids)
        if self._code is not None:
            self.pool.retire(self._code.forget(object_ids))
            self._sweep_code()

    def _sweep_code(self) -> None:
        if self._code is not None:
            self._code.sweep({folder for state in self.pool.states() for folder in state.code_folders})

    def on_object_served(self, object_id: int) -> None:
        """The outcome whose result is this object may be sent."""
        self._outcomes.on_served(object_id)

    def on_object_unserved(self, object_id: int) -> None:
        """A large result is gone before the scheduler has fetched it."""
        self._outcomes.on_unserved(object_id)

    # SCL-WRK-019
    def on_cancel(self, message: m.TaskCancel) -> None:
        wanted = set(message.ids)
        queued = self.queue.remove(wanted) + self.waiting.remove(wanted) + self.calls.actors.remove(wanted)
        # SCL-WRK-020, SCL-WRK-021
        self._cancellations.confirm(queued, m.CancelOutcome.CANCELLED)
        wanted.difference_update(queued)
        held = self._outcomes.held_among(wanted)
        self._cancellations.confirm(held, m.CancelOutcome.RUNNING)
        wanted -= held
        if wanted:
            self._cancellations.request(wanted, message.force)

    def on_balance(self, message: m.BalanceRequest) -> None:
        """Give tasks back that have not started, the newest first."""
        # SCL-WRK-026, SCL-WRK-027
        ids = self.queue.take_newest(message.count)
        # SCL-WRK-025
        self.effects.append(Send(m.BalanceResponse(request_id=message.request_id, ids=ids)))

    def watch(self, is_watched: bool) -> None:
        """Whether monitors want to know which processor ran which task."""
        self.is_watched = is_watched
        self._outcomes.watch(is_watched)

    def drain(self) -> None:
        """Start no more tasks: those that have not begun are given back, in each turn."""
        self._is_draining = True

    def reset(self, maximum_message_bytes: int = 0) -> None:
        """A new session begins: the tasks and objects of the old one no longer belong to this worker.

        Parameters:
            maximum_message_bytes: the scheduler's limit; 0: it is not known.
        """
        # SCL-WRK-028, SCL-SES-021
        self.queue = TaskQueue()
        self._shortage.reset(self.queue)
        self.waiting.clear()
        self.calls.clear()
        self.watch(False)
        self._outcomes.clear()
        self._outcomes.keep_to(maximum_message_bytes)
        self._output.drain()
        self._cancellations.clear()
        self._durations.clear()
        for state in self.pool.states():
            if state.chunks or state.defined:
                for chunk in state.chunks:
                    chunk.reported = chunk.count  # outcomes that it may still send are ignored
                # SCL-WRK-029
                self.pool.kill(state)
        if self._code is not None:
            self.pool.retire(self._code.forget_all())
            self._sweep_code()

    # From processors ----------------------------------------------------------------------------------------

    def on_results(self, number: int, results: Results) -> None:
        """Outcomes of consecutive tasks. Raises FrameError when they are not those that come next."""
        state = self.pool.get(number)
        if state is not None and state.killed and not state.chunks:
            return  # it was killed with its tasks of an old session, and had given some of them back
        if state is None or not state.chunks:
            raise frames.FrameError("outcomes came from a processor that has no task")
        chunk, count = state.chunks[0], len(results.sizes)
        if chunk.reported >= chunk.count:
            return  # the tasks are of an old session
        if results.first_position != chunk.first_position + chunk.reported or chunk.reported + count > chunk.count:
            raise frames.FrameError("a processor sent outcomes of tasks that it does not have")
        traits = chunk.batch.traits
        ids = chunk.batch.ids[chunk.reported : chunk.reported + count]
        if results.busy_microseconds:
            self._durations.add(traits.function, results.busy_microseconds / 1e6, count)
        self._cancellations.finished(ids)
        self._outcomes.add(traits, ids, results, state.process_id)
        # SCL-WRK-002
        chunk.reported += count
        self._reporting.append(state)
        self._end_chunks(state)

    def on_given_back(self, number: int, ranges: List[Tuple[int, int]]) -> None:
        """A processor gives these tasks back, because the one it runs takes long."""
        state = self.pool.get(number)
        if state is None:
            return
        state.has_given_back = True
        for first_position, count in reversed(ranges):
            chunk = next(
                (c for c in state.chunks if c.first_position <= first_position < c.first_position + c.count),
                None,
            )
            if chunk is None or chunk.reported >= chunk.count:
                continue
            kept = first_position - chunk.first_position
            self._requeue(chunk.part(kept, kept + count))
            chunk.count = kept
        self._end_chunks(state)
        self.effects.append(Deliver(number, frames.signal_frame(frames.FrameKind.SETTLED)))

    def on_blocked(self, number: int) -> None:
        state = self.pool.get(number)
        if state is not None:
            self.pool.suspend(state)

    def on_resumed(self, number: int) -> None:
        state = self.pool.get(number)
        if state is not None:
            self.pool.resume(state)

    def on_log(self, number: int, position: int, stream: int, text: str) -> None:
        state = self.pool.get(number)
        for chunk in state.chunks if state is not None else ():
            index = position - chunk.first_position
            if 0 <= index < chunk.count and chunk.reported < chunk.count:
                self._output.add(chunk.batch.ids[index], stream, text)

    def on_processor_started(self, number: int, process_id: int) -> None:
        state = self.pool.get(number)
        if state is not None:
            state.process_id = process_id

    def on_processor_broken(self, number: int, description: str) -> None:
        """A processor sent invalid data: replace it. The task that it runs is the most likely cause."""
        state = self.pool.get(number)
        if state is not None:
            text = f"processor {state.process_id} was replaced while it ran the task: {description}"
            self.pool.kill(state, KillReason(state.started, m.FailureKind.PROCESSOR_DIED, text))

    def on_processor_died(self, number: int, description: str, now: float, stack: str = "") -> None:
        """A processor ended as described ("was ended by signal 9 (SIGKILL)"), after all its frames were processed.

        Parameters:
            now: seconds of a monotonic clock.
            stack: where its task was, if that was requested and is known.
        """
        state = self.pool.get(number)
        if state is None:
            return
        self.pool.remove(state)
        busy_since = now if state in self._reporting else state.busy_since
        death = Death(description, stack, max(0, int((now - busy_since) * 1e6)))
        if death.is_for_lack_of_memory and not state.killed:
            self._shortage.on_killed(state, now)
        if state.code_folders:
            self._sweep_code()
        if state.actor:
            self.calls.on_processor_died(state, death)
        else:
            self._dead.settle(state, death)
        self.pool.fill()

    def _requeue(self, batch: HeldTasks) -> None:
        """Put tasks back to the front of the queue, without those that are to be cancelled."""
        self._cancellations.take_out(batch)
        if batch.traits.is_call:
            self.calls.put_back(batch)
        else:
            self.queue.put_back(batch)

    def _lose(
        self,
        tasks: HeldTasks,
        kind: m.FailureKind,
        text: str,
        stack: str = "",
        ran: Ran = NOT_RUN,
        missing_reason: m.MissingReason = m.MissingReason.UNKNOWN,
    ) -> None:
        self._cancellations.finished(tasks.ids[tasks.start :])
        self._outcomes.lose(tasks, kind, text, stack, ran, missing_reason)

    def _end_chunks(self, state: ProcessorState) -> None:
        """Forget chunks that have all their outcomes."""
        if not state.chunks:
            return
        remaining = [chunk for chunk in state.chunks if chunk.reported < chunk.count]
        if len(remaining) < len(state.chunks):
            state.chunks.clear()
            state.chunks.extend(remaining)
            if not remaining:
                self.pool.take_back(state)
            if state.actor:
                self.calls.on_chunk_ended(state)

    # Once a turn --------------------------------------------------------------------------------------------

    def finish_turn(self, now: float) -> None:
        """Distribute tasks, and send the scheduler all news. `now`: seconds of a monotonic clock."""
        for state in self._reporting:
            state.busy_since = now
        self._reporting.clear()
        if self._shortage.is_active:
            self._shortage.begin_turn(now)
        self.pool.begin_turn(now)
        if self._is_draining:
            self._give_all_back()
        if self.calls.actors.has_ready:
            self._deal_by_turns(now)
        while self.queue.count and self._deal(now):
            pass
        # SCL-WRK-017
        for log in self._output.drain():
            self.effects.append(Send(log))  # before the outcomes of the tasks that printed it
        confirmation = self._cancellations.drain()
        if confirmation is not None:
            self.effects.append(Send(confirmation))  # before the outcomes it announces
        for message, payload in self._outcomes.drain():
            self.effects.append(Send(message, payload))
        # SCL-WRK-024
        unknown = self._cancellations.drain_unknown()
        if unknown is not None:
            self.effects.append(Send(unknown))

    def _give_all_back(self) -> None:
        """Give back all tasks that have not begun."""
        ids = self.queue.take_newest(self.queued)
        ids.extend(self.waiting.take_all())
        if ids:
            # SCL-SES-020
            self.effects.append(Send(m.BalanceResponse(ids=ids)))

    def _deal(self, now: float) -> bool:
        """Give one processor its next chunk; False when no processor can take one."""
        head = self.queue.head()
        if self._shortage.is_active and not self._shortage.may_run(head.traits.function):
            self.queue.set_aside()
            return True
        mean = self._durations.mean_seconds(head.traits.function)
        code_key = self._code.key(head.traits.function) if self._code is not None else ""
        # SCL-WRK-003
        state = self.pool.take_idle(head.traits.priority, code_key)
        if state is None and mean is not None and mean < PIPELINE_TASK_SECONDS:
            state = self.pool.pipelinable(code_key)
        if state is None:
            return False
        chunk = ProcessorChunk(
            self.queue.take(chunk_size(head, mean, self.queue.count, self.pool.slots)), state.next_position
        )
        self._give(state, chunk, code_key, now)
        return True

    def _deal_by_turns(self, now: float) -> None:
        """Distribute tasks, of which some are calls of actors."""
        has_dealt = True
        while has_dealt:
            of_calls = self.calls.next_priority()
            if not self.queue.count or of_calls is None:
                has_dealt = self.calls.deal(now) or (self.queue.count > 0 and self._deal(now))
                continue
            priority = self.queue.head().traits.priority
            is_first = priority < of_calls or (priority == of_calls and self._is_turn_of_calls)
            deal_first, deal_then = (self.calls.deal, self._deal) if is_first else (self._deal, self.calls.deal)
            has_dealt = deal_first(now)
            if has_dealt:
                self._is_turn_of_calls = not is_first
            else:
                has_dealt = deal_then(now)

    def _give(self, state: ProcessorState, chunk: ProcessorChunk, code_key: str, now: float) -> None:
        """Give a chunk to a processor, with what it needs."""
        state.next_position += chunk.count
        if not state.chunks:
            state.busy_since = now
        state.chunks.append(chunk)
        self._limits.dealt(chunk)
        batch = chunk.batch
        self._dedicate(state, code_key, batch.traits.function)
        self._define_objects(state, batch, now)
        buffers = frames.tasks_frame(
            function=batch.traits.function,
            first_position=chunk.first_position,
            client=batch.traits.client,
            attempt=batch.traits.attempt,
            priority=batch.traits.priority,
            flags=batch.traits.flags,
            ids=batch.ids,
            sizes=batch.sizes,
            payload=batch.payload,
            dependency_counts=batch.dependency_counts,
            dependencies=batch.dependencies,
        )
        self.effects.append(Deliver(state.number, buffers))

    def _dedicate(self, state: ProcessorState, code_key: str, function: int) -> None:
        """Dedicate a processor to tasks with this code."""
        if state.code_key is None:
            state.code_key = code_key
            if code_key and self._code is not None:
                client_key, state.code_folders = self._code.contents(function)
                self.effects.append(Deliver(state.number, frames.code_frame(client_key, state.code_folders)))

    def _define_objects(self, state: ProcessorState, batch: HeldTasks, now: float) -> None:
        """Give a processor the objects of a batch that it does not have yet."""
        for object_id in batch.needed_objects():
            if object_id not in state.defined:
                definition = self._objects.definition(object_id)
                if definition is None:
                    continue  # deleted in the meantime: the processor reports it for each task
                self.effects.append(Deliver(state.number, frames.define_frame(object_id, *definition)))
            state.defined[object_id] = now

    @property
    def queued(self) -> int:
        """Tasks that wait for a processor, or for memory."""
        return self.queue.count + self.queue.set_aside_count

    @property
    def is_empty(self) -> bool:
        """Whether there is no task here, and no actor."""
        return not (
            self.queued
            or self.waiting.count
            or self.calls.actors.has_living
            or self._outcomes.holds_any
            or any(s.chunks for s in self.pool.states())
        )

    # Periodically -------------------------------------------------------------------------------------------

    @property
    def needs_tick(self) -> bool:
        """Whether `tick` has to be called every TICK_SECONDS."""
        return bool(self._cancellations) or self._limits.active or self.pool.keeps_a_slot

    def on_memory_measured(self, resident_bytes: Mapping[int, int]) -> None:
        """The answer to `MeasureMemory`: resident memory by process id."""
        self._limits.on_memory_measured(resident_bytes)

    def tick(self, now: float) -> None:
        """Enforce limits, and review tasks that are to be cancelled."""
        if self._cancellations:
            self._cancellations.review()
        if self._limits.active:
            self._limits.tick(now)

    def collect_garbage(self, now: float, retention_seconds: float, trim_threshold_bytes: int) -> None:
        """Forget objects that were not used for this long, and free memory."""
        self.pool.retire_spares()
        for state in self.pool.states():
            unused = {i for i, last_use in state.defined.items() if now - last_use > retention_seconds}
            unused.discard(state.actor)
            for chunk in state.chunks if unused else ():
                unused.difference_update(chunk.batch.needed_objects())
            if unused:
                for object_id in unused:
                    del state.defined[object_id]
                self.effects.append(Deliver(state.number, frames.drop_frame(sorted(unused))))
            if not state.killed:
                self.effects.append(Deliver(state.number, frames.collect_garbage_frame(trim_threshold_bytes)))
        self._objects.forget_unused(now, retention_seconds, self._used_objects)

    def needed_objects(self) -> Set[int]:
        """The objects that tasks here wait for or will need."""
        needed = self.queue.needed_objects() | self.waiting.needed_objects() | self.calls.actors.needed_objects()
        for state in self.pool.states():
            for chunk in state.chunks:
                needed |= chunk.batch.needed_objects()
        return needed

    def _used_objects(self) -> Set[int]:
        """The same, and those that processors have."""
        return self.needed_objects().union(*(state.defined for state in self.pool.states()))
