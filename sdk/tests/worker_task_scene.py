"""One task at a worker's core: brought to any state of the specification's table, and then met by an event.

Rules:
- This is all that the test of the table knows of the core: how states are reached, what events are, and where the core
  keeps a task in which state.
- The worker has one slot. Another task keeps it when the task itself is to wait for it.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from task_flow_bench import Bench

from scaler.worker import frames
from scaler_protocol import decode_struct
from scaler_protocol import messages as m

TASK, OTHER = 7, 8
OBJECT = 99
RESULT_PATH = "/results/new-1"
TIME_LIMIT_SECONDS = 5.0


class Scene:
    def __init__(self) -> None:
        self.bench = Bench(slots=1)
        self.core = self.bench.flow
        self.places: Dict[int, Tuple[int, frames.TaskChunk]] = {}  # processor and chunk of tasks that were dealt

    # States ---------------------------------------------------------------------------------------------------------

    def bring_to(self, state: str, **options: Any) -> None:
        """Make the task, with these options, and bring it to a state."""
        if state == "waiting":
            self._send(TASK, [OBJECT], options)
        elif state == "queued":
            self._occupy()
            self._send(TASK, [], options)
        elif state == "running":
            self._send(TASK, [], options)
            self._start(TASK)
        elif state == "again":
            self.bring_to("running", **{**options, "retries": 5})
            self.die_again()
        elif state == "fetching":
            self.bring_to("running", **options)
            self.finish_large()
        elif state == "ended":
            self.bring_to("waiting", **options)
            self.cancel()
        assert self.state == state
        self.sent()

    def _send(self, task: int, dependencies: List[int], options: Dict[str, Any]) -> None:
        self.bench.send_tasks([task], [dependencies] if dependencies else None, options=options)

    def _occupy(self) -> None:
        self._send(OTHER, [], {})
        self._start(OTHER)

    def _take_dealt(self) -> None:
        for number, chunk in self.bench.dealt():
            for task in chunk.ids:
                self.places[task] = (number, chunk)

    def _start(self, task: int) -> None:
        """The processor that was given a task runs it."""
        self._take_dealt()
        number, chunk = self.places[task]
        self.bench.start(number, chunk.first_position)

    @property
    def state(self) -> str:
        """As the core has it."""
        core = self.core
        if core.waiting.count:
            return "waiting"
        for clients in core.queue._queues.values():
            for batch in (each for queue in clients.values() for each in queue):
                if TASK in batch.ids[batch.start :]:
                    return "again" if batch.traits.has_started else "queued"
        for processor in core.pool.states():
            if any(TASK in chunk.batch.ids[chunk.reported : chunk.count] for chunk in processor.chunks):
                return "running"
        return "fetching" if core._outcomes.holds_any else "ended"

    # Events ---------------------------------------------------------------------------------------------------------

    def objects_arrive(self) -> None:
        self._occupy()
        self.bench.objects.available.add(OBJECT)
        self.core.on_object_available(OBJECT)
        self.bench.turn()

    def object_missing(self) -> None:
        self.core.on_object_missing(OBJECT)
        self.bench.turn()

    def start(self) -> None:
        self.bench.finish(*self.places[OTHER])
        self._start(TASK)

    def finish(self) -> None:
        self.bench.finish(*self.places[TASK])

    def fail(self) -> None:
        self.bench.finish(*self.places[TASK], statuses=bytes([m.TaskStatus.FAILED]))

    def finish_large(self) -> None:
        self.bench.finish(*self.places[TASK], payloads=[frames.large_result(1000, RESULT_PATH)], large=b"\x01")

    def fetched(self) -> None:
        self.core.on_object_served(5001)
        self.bench.turn()

    def result_lost(self) -> None:
        self.core.on_object_unserved(5001)
        self.bench.turn()

    def die(self) -> None:
        self.bench.die(self.places[TASK][0])

    def die_again(self) -> None:
        """The slot goes to a task of higher priority."""
        self._send(OTHER, [], {"priority": 1})
        self.die()
        self._start(OTHER)

    def overstep(self) -> None:
        self.bench.tick(0.1)
        self.bench.tick(2 * TIME_LIMIT_SECONDS)
        self.bench.die(self.places[TASK][0])

    def cancel(self) -> None:
        self.bench.cancel(TASK)

    def force_cancel(self) -> None:
        self.bench.cancel(TASK, force=True)
        if self.bench.killed:
            self.bench.die(self.bench.killed.pop())

    def balance(self) -> None:
        self.core.on_balance(m.BalanceRequest(request_id=1, count=10))
        self.bench.turn()

    def drain(self) -> None:
        self.core.drain()
        self.bench.turn()

    def end_session(self) -> None:
        self.core.reset()
        self.bench.turn()

    # What is sent ---------------------------------------------------------------------------------------------------

    def sent(self) -> List[str]:
        """What was said of the task since the last time: "TaskResult lost, timeLimit", for instance."""
        found = []
        for instance, (status, payload) in self.bench.outcomes().items():
            if instance == TASK:
                text = f"TaskResult {m.TaskStatus(status).name.lower()}"
                if status == m.TaskStatus.LOST:
                    text += f", {_camel_case(m.FailureKind(decode_struct(m.Failure, payload).kind).name)}"
                found.append(text)
        for instance, outcome in self.bench.confirmed().items():
            if instance == TASK:
                found.append(f"TaskCancelConfirm {_camel_case(m.CancelOutcome(outcome).name)}")
        for message, _ in self.bench.take(m.BalanceResponse):
            found += ["BalanceResponse"] * list(message.ids).count(TASK)
        created, self.bench.objects.adopted = self.bench.objects.adopted, []
        return found + ["ObjectInstruction create"] * len(created)


def _camel_case(name: str) -> str:
    first, *rest = name.lower().split("_")
    return first + "".join(map(str.capitalize, rest))
