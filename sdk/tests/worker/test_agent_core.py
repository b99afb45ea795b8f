"""The agent's core by itself: events in, effects out, no process and no clock."""

from __future__ import annotations

from array import array
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from scaler.worker import frames
from scaler.worker.agent_core import AgentCore, CoreSettings
from scaler.worker.effects import Deliver, Kill, Send, Spawn, Stop
from scaler.worker.frames import Frame, FrameError, Kind, Place
from scaler.worker.processor_pool import MAXIMUM_SPARES
from scaler.worker.shared_progress import FINISHED
from scaler_protocol import decode_struct
from scaler_protocol import messages as m

FUNCTION = 7
SHORT_MICROSECONDS, LONG_MICROSECONDS = 2, 50_000
CANCELLED, RUNNING, NOT_FOUND = m.CancelOutcome.CANCELLED, m.CancelOutcome.RUNNING, m.CancelOutcome.NOT_FOUND


class Objects:
    """An object store that holds what a test puts there."""

    def __init__(self) -> None:
        self.available = {0, FUNCTION}
        self.fetched: List[int] = []
        self.adopted: List[Tuple[str, int]] = []
        self.shared = True

    def is_available(self, object_id: int) -> bool:
        return object_id in self.available

    def fetch(self, object_id: int) -> None:
        self.fetched.append(object_id)

    def definition(self, object_id: int) -> Optional[Tuple[int, Place, bytes]]:
        return (m.ObjectKind.VALUE, Place.INLINE, b"content") if object_id in self.available else None

    def adopt(self, path: str, size: int) -> Tuple[int, bool]:
        self.adopted.append((path, size))
        return 5000 + len(self.adopted), self.shared


class Bench:
    """A core, and what a test needs to play the agent, the scheduler and the processors."""

    def __init__(self, slots: int = 1, timeout: float = 0.0) -> None:
        self.objects = Objects()
        self.effects: List[Any] = []
        self.pages: Dict[int, memoryview] = {}
        self.resident: Dict[int, int] = {}
        settings = CoreSettings(slots, "worker under test", timeout)
        self.core = AgentCore(settings, self.page, self.objects, self.effects, lambda pid: self.resident.get(pid, 0))
        self.core.pool.fill()
        self.spawned: List[Spawn] = []
        self.killed: List[int] = []
        self.stopped: List[int] = []
        self.sent: List[Tuple[Any, bytes]] = []
        self.frames: Dict[int, List[Frame]] = {}
        self.now = 100.0
        self.turn()
        for spawn in self.spawned:
            self.core.on_processor_started(spawn.number, 1000 + spawn.number)

    def page(self, number: int) -> memoryview:
        if number not in self.pages:
            self.pages[number] = memoryview(bytearray(8)).cast("Q")
        return self.pages[number]

    def turn(self) -> None:
        """What the agent does once a turn of its loop."""
        self.core.finish_turn(self.now)
        effects, self.effects[:] = list(self.effects), []
        for effect in effects:
            if isinstance(effect, Deliver):
                data = frames.join(effect.buffers)
                size, kind, flags = frames._HEADER.unpack_from(data)
                assert len(data) == frames._HEADER.size + size
                self.frames.setdefault(effect.number, []).append(Frame(kind, flags, data[frames._HEADER.size :]))
            elif isinstance(effect, Send):
                self.sent.append((effect.message, bytes(effect.payload)))
            elif isinstance(effect, Spawn):
                self.spawned.append(effect)
            elif isinstance(effect, Kill):
                self.killed.append(effect.number)
            elif isinstance(effect, Stop):
                self.stopped.append(effect.number)

    def send_tasks(
        self, ids: Sequence[int], dependencies: Optional[Sequence[Sequence[int]]] = None, **fields: Any
    ) -> None:
        options = m.TaskOptions(**fields.pop("options", {}))
        payloads = [b"payload of %d" % instance for instance in ids]
        message = m.Task(ids=ids, payload_sizes=list(map(len, payloads)), function=FUNCTION, codec="c", options=options)
        for name, value in fields.items():
            setattr(message, name, value)
        if dependencies is not None:
            message.dependency_counts = array("H", map(len, dependencies))
            message.dependencies = array("Q", [i for needed in dependencies for i in needed])
        self.core.on_tasks(message, b"".join(payloads))
        self.turn()

    def learn(self, microseconds: int) -> None:
        """Let the core learn how long the function takes."""
        self.send_tasks([1])
        number, chunk = self.dealt()[0]
        self.finish(number, chunk, busy_microseconds=microseconds)
        self.outcomes()

    def dealt(self) -> List[Tuple[int, frames.TaskChunk]]:
        """The chunks dealt since last asked, with the number of their processor; payloads are checked on the way."""
        chunks = []
        for number, received in self.frames.items():
            for frame in received:
                if frame.kind == Kind.TASKS:
                    chunk = frames.parse_tasks(frame.flags, frame.body)
                    expected = b"".join(b"payload of %d" % instance for instance in chunk.ids)
                    assert frame.body[chunk.payload_offset :] == expected
                    chunks.append((number, chunk))
            received[:] = [frame for frame in received if frame.kind != Kind.TASKS]
        return chunks

    def dealt_ids(self) -> List[List[int]]:
        return sorted(list(chunk.ids) for _, chunk in self.dealt())

    def kinds(self, number: int) -> List[Kind]:
        kinds = [Kind(frame.kind) for frame in self.frames.get(number, [])]
        self.frames.pop(number, None)
        return kinds

    def start(self, number: int, position: int) -> None:
        self.page(number)[0] = position

    def finish(
        self,
        number: int,
        chunk: frames.TaskChunk,
        start: int = 0,
        stop: Optional[int] = None,
        busy_microseconds: int = 0,
        **columns: Any,
    ) -> None:
        """Outcomes of a part of a chunk arrive (by default: of all of it)."""
        stop = chunk.task_count if stop is None else stop
        payloads = columns.pop("payloads", None) or [b"r%d" % instance for instance in chunk.ids[start:stop]]
        self.page(number)[0] = chunk.first_position + stop - 1 | FINISHED
        buffers = frames.results_frame(
            first_position=chunk.first_position + start,
            busy_microseconds=busy_microseconds * (stop - start),
            payloads=payloads,
            **columns,
        )
        data = frames.join(buffers)
        _, _, flags = frames._HEADER.unpack_from(data)
        self.core.on_results(number, frames.parse_results(flags, data[frames._HEADER.size :]))
        self.turn()

    def die(self, number: int, description: str = "was ended by signal 9 (SIGKILL)") -> None:
        self.core.on_processor_died(number, description)
        self.turn()

    def outcomes(self) -> Dict[int, Tuple[int, bytes]]:
        """Status and payload of the outcomes sent since last asked."""
        found: Dict[int, Tuple[int, bytes]] = {}
        for message, payload in self.take(m.TaskResult):
            start = 0
            for index, instance in enumerate(message.ids):
                stop = start + message.payload_sizes[index]
                status = message.statuses[index] if message.statuses else 0
                assert instance not in found
                found[instance] = (status, payload[start:stop])
                start = stop
            assert start == len(payload)
        return found

    def lost(self, instance: int) -> m.Failure:
        status, payload = self.outcomes()[instance]
        assert status == m.TaskStatus.LOST
        return decode_struct(m.Failure, payload)

    def confirmed(self) -> Dict[int, int]:
        answers: Dict[int, int] = {}
        for message, _ in self.take(m.TaskCancelConfirm):
            for instance, outcome in zip(message.ids, message.outcomes):
                assert instance not in answers
                answers[instance] = outcome
        return answers

    def take(self, kind: type) -> List[Tuple[Any, bytes]]:
        taken = [item for item in self.sent if isinstance(item[0], kind)]
        self.sent = [item for item in self.sent if not isinstance(item[0], kind)]
        return taken

    def cancel(self, *ids: int, force: bool = False) -> None:
        self.core.on_cancel(m.TaskCancel(ids=ids, force=force))
        self.turn()

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.core.tick(self.now)
        self.turn()


# Dealing --------------------------------------------------------------------------------------------------------------


def test_all_slots_are_forked_at_the_start():
    assert [spawn.number for spawn in Bench(slots=3).spawned] == [0, 1, 2]


def test_tasks_of_unknown_duration_go_one_by_one():
    bench = Bench(slots=3)
    bench.send_tasks(range(10))

    assert bench.dealt_ids() == [[0], [1], [2]]
    assert bench.core.queue.count == 7


def test_long_tasks_go_one_by_one():
    bench = Bench(slots=2)
    bench.learn(LONG_MICROSECONDS)
    bench.send_tasks(range(10, 20))

    assert bench.dealt_ids() == [[10], [11]]


def test_short_tasks_travel_together_and_spread():
    bench = Bench(slots=4)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks(range(4000))

    sizes = [chunk.task_count for _, chunk in bench.dealt()]
    assert len(sizes) == 8  # one to run and one behind it for each
    assert max(sizes) <= 1000
    assert sum(sizes) <= 4000


def test_a_chunk_is_about_three_milliseconds_of_work():
    bench = Bench(slots=1)
    bench.learn(100)
    bench.send_tasks(range(1000))

    assert [chunk.task_count for _, chunk in bench.dealt()] == [30, 30]


def test_little_work_is_not_spread():
    bench = Bench(slots=4)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks(range(10, 20))

    assert bench.dealt_ids() == [list(range(10, 20))]


def test_a_lone_task_goes_to_the_processor_that_worked_last():
    bench = Bench(slots=3)
    bench.send_tasks([1, 2, 3])
    dealt = {chunk.ids[0]: (number, chunk) for number, chunk in bench.dealt()}
    for instance in (1, 3, 2):
        bench.finish(*dealt[instance])
    bench.send_tasks([4])

    assert [number for number, _ in bench.dealt()] == [dealt[2][0]]


def test_nothing_waits_behind_a_chunk_of_one_task():
    bench = Bench(slots=1)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks([2])
    bench.send_tasks([3, 4])

    assert bench.dealt_ids() == [[2]]


def test_one_chunk_waits_behind_a_chunk_of_several_tasks_and_no_more():
    bench = Bench(slots=1)
    bench.learn(SHORT_MICROSECONDS)
    for first in (10, 20, 30):
        bench.send_tasks(range(first, first + 5))

    assert bench.dealt_ids() == [list(range(10, 15)), list(range(20, 25))]


def test_tasks_with_large_arguments_make_small_chunks():
    bench = Bench(slots=1)
    bench.learn(SHORT_MICROSECONDS)
    payload = bytes(60_000)
    message = m.Task(ids=range(100), payload_sizes=[60_000] * 100, function=FUNCTION, codec="c")
    bench.core.on_tasks(message, payload * 100)
    bench.core.finish_turn(0)

    deliveries = [effect for effect in bench.effects if isinstance(effect, Deliver)]
    assert max(len(frames.join(effect.buffers)) for effect in deliveries) < 1_200_000


def test_functions_and_values_are_given_once_to_each_processor():
    bench = Bench(slots=1)
    bench.objects.available |= {21, 22}
    bench.send_tasks([1], dependencies=[[21, 22]])
    number, chunk = bench.dealt()[0]
    assert bench.kinds(number) == [Kind.DEFINE] * 3
    bench.finish(number, chunk)
    bench.send_tasks([2], dependencies=[[22, 21]])

    number, chunk = bench.dealt()[0]
    assert list(chunk.dependencies) == [22, 21]
    assert bench.kinds(number) == []


def test_objects_unused_for_long_are_dropped_and_defined_anew():
    bench = Bench(slots=1)
    bench.send_tasks([1])
    bench.finish(*bench.dealt()[0])
    bench.kinds(0)
    bench.core.collect_garbage(bench.now + 10, 3600, 1 << 30)
    bench.turn()
    assert bench.kinds(0) == [Kind.COLLECT_GARBAGE]
    bench.core.collect_garbage(bench.now + 3601, 3600, 1 << 30)
    bench.turn()
    assert bench.kinds(0) == [Kind.DROP, Kind.COLLECT_GARBAGE]
    bench.send_tasks([2])

    bench.dealt()
    assert bench.kinds(0) == [Kind.DEFINE]


def test_deleted_objects_are_dropped_by_those_who_have_them():
    bench = Bench(slots=2)
    bench.send_tasks([1])
    (number, _) = bench.dealt()[0]
    bench.kinds(number)
    bench.core.on_object_deleted({FUNCTION, 99})
    bench.turn()

    assert bench.kinds(number) == [Kind.DROP]
    assert bench.kinds(1 - number) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"payload_sizes": [4, 4]},
        {"payload_sizes": [5]},
        {"dependency_counts": [1]},
        {"dependency_counts": [1, 1], "dependencies": [3, 4]},
    ],
)
def test_a_message_that_contradicts_itself_is_named(fields):
    message = m.Task(**{"ids": [1], "payload_sizes": [4], "function": FUNCTION, "codec": "c", **fields})
    with pytest.raises(ValueError, match="agree"):
        Bench().core.on_tasks(message, b"1234")


# Outcomes -------------------------------------------------------------------------------------------------------------


def test_one_message_carries_what_several_processors_delivered():
    bench = Bench(slots=2)
    bench.send_tasks([1, 2])
    for number, chunk in bench.dealt():
        data = frames.join(
            frames.results_frame(first_position=chunk.first_position, busy_microseconds=5, payloads=[b"x"])
        )
        bench.core.on_results(number, frames.parse_results(0, data[frames._HEADER.size :]))
    bench.turn()

    [(message, payload)] = bench.take(m.TaskResult)
    assert sorted(message.ids) == [1, 2]
    assert (message.codec, message.busy_microseconds, payload) == ("c", 10, b"xx")
    assert not message.statuses
    assert not message.objects


def test_long_and_short_tasks_do_not_share_a_message():
    bench = Bench(slots=2)
    bench.send_tasks([1, 2])
    for (number, chunk), busy in zip(bench.dealt(), (3, 80_000)):
        data = frames.join(
            frames.results_frame(first_position=chunk.first_position, busy_microseconds=busy, payloads=[b"x"])
        )
        bench.core.on_results(number, frames.parse_results(0, data[frames._HEADER.size :]))
    bench.turn()

    assert sorted(message.busy_microseconds for message, _ in bench.take(m.TaskResult)) == [3, 80_000]


def test_statuses_appear_when_somebody_failed():
    bench = Bench(slots=1)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks([10, 11, 12])
    number, chunk = bench.dealt()[0]
    bench.finish(number, chunk, 0, 1)
    bench.finish(number, chunk, 1, 3, statuses=bytes([m.TaskStatus.FAILED, 0]), payloads=[b"why", b"r12"])

    assert bench.outcomes() == {10: (0, b"r10"), 11: (m.TaskStatus.FAILED, b"why"), 12: (0, b"r12")}


def test_outcomes_that_nobody_asked_for_are_an_error_of_the_processor():
    bench = Bench(slots=1)
    bench.learn(SHORT_MICROSECONDS)
    with pytest.raises(FrameError):
        bench.core.on_results(0, frames.Results(2, 0, array("I", [0]), b"", b"", None, memoryview(b"")))
    bench.send_tasks([10, 11])
    [(number, chunk)] = bench.dealt()
    for first, count in [(chunk.first_position + 1, 1), (chunk.first_position, 3)]:
        with pytest.raises(FrameError):
            sizes = array("I", [0] * count)
            bench.core.on_results(number, frames.Results(first, 0, sizes, b"", b"", None, memoryview(b"")))


def test_a_large_result_in_shared_memory_is_reported_at_once():
    bench = Bench(slots=1)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks([10, 11, 12])
    number, chunk = bench.dealt()[0]
    payloads = [b"small", frames.large_result(1 << 20, "/dev/shm/new-1"), b"also small"]
    bench.finish(number, chunk, payloads=payloads, large=bytes([0, 1, 0]))

    assert bench.objects.adopted == [("/dev/shm/new-1", 1 << 20)]
    [(message, payload)] = bench.take(m.TaskResult)
    assert list(message.ids) == [10, 11, 12]
    assert list(message.objects) == [0, 5001, 0]
    assert list(message.payload_sizes) == [5, 0, 10]
    assert payload == b"smallalso small"


def test_a_large_result_elsewhere_is_reported_when_it_was_fetched():
    bench = Bench(slots=1)
    bench.objects.shared = False
    bench.send_tasks([1])
    number, chunk = bench.dealt()[0]
    bench.finish(number, chunk, payloads=[frames.large_result(1 << 20, "/dev/shm/new-1")], large=b"\x01")
    assert bench.outcomes() == {}
    assert not bench.core.is_empty
    bench.cancel(1)
    assert bench.confirmed() == {1: RUNNING}

    bench.core.on_object_served(5001)
    bench.turn()

    [(message, _)] = bench.take(m.TaskResult)
    assert (list(message.ids), list(message.objects)) == ([1], [5001])
    assert bench.core.is_empty


def test_profiles_stay_with_their_tasks():
    bench = Bench(slots=1)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks([10, 11], options={"profiling": True})
    number, chunk = bench.dealt()[0]
    profiles = tuple(array("Q", column) for column in ([1, 2], [3, 4], [5, 6]))
    bench.finish(number, chunk, profiles=profiles)

    [(message, _)] = bench.take(m.TaskResult)
    assert list(message.durations_microseconds) == [1, 2]
    assert list(message.cpu_microseconds) == [3, 4]
    assert list(message.peak_memory_bytes) == [5, 6]


# Given back -----------------------------------------------------------------------------------------------------------


def short_tasks_on_one_processor(ids: Sequence[int], slots: int = 1, **fields: Any) -> Tuple[Bench, int, Any]:
    bench = Bench(slots)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks(ids, **fields)
    [(number, chunk)] = bench.dealt()
    return bench, number, chunk


def test_tasks_given_back_run_elsewhere_before_all_others():
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12, 13], slots=2)
    bench.start(number, chunk.first_position + 1)
    bench.finish(number, chunk, 0, 1)
    bench.start(number, chunk.first_position + 1)
    bench.core.on_given_back(number, [(chunk.first_position + 2, 2)])
    bench.turn()

    [(other, rest)] = bench.dealt()
    assert other != number
    assert list(rest.ids) == [12, 13]
    assert Kind.SETTLED in bench.kinds(number)
    bench.finish(number, chunk, 1, 2)
    assert bench.outcomes() == {10: (0, b"r10"), 11: (0, b"r11")}


def test_nothing_is_dealt_to_a_processor_that_has_handed_over():
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12])
    bench.core.on_given_back(number, [(chunk.first_position + 1, 2)])
    bench.send_tasks([20, 21])
    assert bench.dealt() == []

    bench.finish(number, chunk, 0, 1)
    assert bench.dealt_ids() == [[11, 12], [20, 21]]


def test_a_whole_chunk_that_waited_behind_is_given_back():
    bench, number, chunk = short_tasks_on_one_processor([10, 11])
    bench.send_tasks([20, 21])
    [(_, second)] = bench.dealt()
    bench.core.on_given_back(number, [(chunk.first_position + 1, 1)])
    bench.core.on_given_back(number, [(second.first_position, 2)])
    bench.finish(number, chunk, 0, 1)

    assert bench.dealt_ids() == [[11], [20, 21]]
    assert bench.outcomes() == {10: (0, b"r10")}


# Waiting for other tasks ----------------------------------------------------------------------------------------------


def test_a_suspended_processor_makes_room_for_a_spare():
    bench = Bench(slots=1)
    bench.send_tasks([1, 2])
    [(number, _)] = bench.dealt()
    bench.core.on_blocked(number)
    bench.turn()

    assert [spawn.number for spawn in bench.spawned] == [0, 1]
    assert bench.core.pool.suspended == 1
    [(spare, chunk)] = bench.dealt()
    assert (spare, list(chunk.ids)) == (1, [2])


def test_a_resumed_processor_takes_its_slot_back():
    bench = Bench(slots=1)
    bench.send_tasks([1, 2])
    [(number, chunk)] = bench.dealt()
    bench.core.on_blocked(number)
    bench.turn()
    [(spare, second)] = bench.dealt()
    bench.core.on_resumed(number)
    bench.finish(spare, second)
    bench.send_tasks([3])
    assert bench.dealt() == []  # the spare is idle, but its slot is not its own any more

    bench.finish(number, chunk)
    assert len(bench.dealt()) == 1
    assert len(bench.spawned) == 2


def test_a_task_that_ends_while_suspended_frees_its_processor():
    bench = Bench(slots=1)
    bench.send_tasks([1])
    [(number, chunk)] = bench.dealt()
    bench.core.on_blocked(number)
    bench.finish(number, chunk)
    bench.core.on_resumed(number)

    assert bench.core.pool.suspended == 0
    assert bench.core.pool.busy == 0


def test_a_suspended_processor_that_dies_is_not_replaced_twice():
    bench = Bench(slots=1)
    bench.send_tasks([1])
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.core.on_blocked(number)
    bench.turn()
    bench.die(number)

    assert len(bench.spawned) == 2
    assert bench.core.pool.suspended == 0
    assert bench.lost(1).kind == m.FailureKind.PROCESSOR_DIED


def test_spares_beyond_a_few_are_let_go():
    bench = Bench(slots=1)
    count = MAXIMUM_SPARES + 5
    chunks = []
    for instance in range(count):
        bench.send_tasks([instance])
        [(number, chunk)] = bench.dealt()
        bench.core.on_blocked(number)
        bench.turn()
        chunks.append((number, chunk))
    for number, chunk in chunks:
        bench.finish(number, chunk)
    bench.core.collect_garbage(bench.now, 3600, 0)
    bench.turn()

    assert len(bench.stopped) == 5
    for number in bench.stopped:
        bench.die(number, "exited with code 0")
    assert len(bench.core.pool) == 1 + MAXIMUM_SPARES


# Objects on their way -------------------------------------------------------------------------------------------------


def test_tasks_wait_for_their_objects_and_block_nobody():
    bench = Bench(slots=4)
    bench.objects.available.add(30)
    bench.send_tasks([1, 2, 3], dependencies=[[31], [30], [31, 32]])

    assert bench.dealt_ids() == [[2]]
    assert sorted(bench.objects.fetched) == [31, 32]
    bench.objects.available |= {31, 32}
    bench.core.on_object_available(31)
    bench.turn()
    assert bench.dealt_ids() == [[1]]
    bench.core.on_object_available(32)
    bench.turn()
    assert bench.dealt_ids() == [[3]]


def test_a_batch_waits_for_its_function():
    bench = Bench(slots=1)
    bench.objects.available.discard(FUNCTION)
    bench.send_tasks([1, 2])
    assert bench.dealt() == []
    bench.objects.available.add(FUNCTION)
    bench.core.on_object_available(FUNCTION)
    bench.turn()

    assert bench.dealt_ids() == [[1]]


def test_tasks_whose_object_is_missing_are_lost():
    bench = Bench(slots=1)
    bench.send_tasks([1, 2], dependencies=[[31, 32], [31]])
    bench.core.on_object_missing(31)
    bench.turn()
    outcomes = bench.outcomes()

    assert set(outcomes) == {1, 2}
    failure = decode_struct(m.Failure, outcomes[1][1])
    assert (outcomes[1][0], failure.kind) == (m.TaskStatus.LOST, m.FailureKind.OBJECT_MISSING)
    bench.core.on_object_available(32)
    bench.turn()
    assert bench.core.is_empty


# Cancelling -----------------------------------------------------------------------------------------------------------


def test_queued_and_waiting_tasks_are_cancelled():
    bench = Bench(slots=1)
    bench.send_tasks(range(1, 11))
    bench.send_tasks([20, 21], dependencies=[[31], [31]])
    bench.cancel(3, 7, 10, 21)

    assert bench.confirmed() == {3: CANCELLED, 7: CANCELLED, 10: CANCELLED, 21: CANCELLED}
    assert (bench.core.queue.count, bench.core.waiting.count) == (6, 1)
    ran = []
    while True:
        dealt = bench.dealt()
        if not dealt:
            break
        ran.append(list(dealt[0][1].ids))
        bench.finish(*dealt[0])
    assert ran == [[1], [2], [4], [5], [6], [8], [9]]


def test_an_unknown_task_is_not_found():
    bench = Bench()
    bench.cancel(99)

    assert bench.confirmed() == {99: NOT_FOUND}


def test_a_running_task_is_left_alone_unless_forced():
    bench = Bench()
    bench.send_tasks([1])
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.cancel(1)
    assert bench.confirmed() == {1: RUNNING}
    assert bench.killed == []

    bench.cancel(1, force=True)
    assert bench.killed == [number]
    assert bench.confirmed() == {}
    bench.die(number)
    assert bench.confirmed() == {1: CANCELLED}
    assert bench.outcomes() == {}
    assert len(bench.spawned) == 2


def test_an_outcome_that_crosses_a_forced_cancel_wins():
    bench = Bench()
    bench.send_tasks([1])
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.cancel(1, force=True)
    bench.finish(number, chunk)

    assert [type(message) for message, _ in bench.sent] == [m.TaskCancelConfirm, m.TaskResult]
    assert bench.confirmed() == {1: RUNNING}
    bench.die(number)
    assert bench.confirmed() == {}


def test_the_neighbours_of_a_task_cancelled_by_force_run_again():
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12])
    bench.start(number, chunk.first_position + 1)
    bench.cancel(11, force=True)
    bench.die(number)

    assert bench.confirmed() == {11: CANCELLED}
    [(_, again)] = bench.dealt()
    assert list(again.ids) == [10]
    assert bench.core.queue.count == 1
    assert bench.outcomes() == {}


def test_a_task_that_has_not_started_is_cancelled_when_it_comes_back():
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12])
    bench.start(number, chunk.first_position)
    bench.cancel(11)
    assert bench.confirmed() == {}
    assert bench.core.needs_tick
    bench.core.on_given_back(number, [(chunk.first_position + 1, 2)])
    bench.turn()

    assert bench.confirmed() == {11: CANCELLED}
    assert bench.core.queue.count == 1


def test_a_task_that_starts_after_all_is_running():
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12])
    bench.start(number, chunk.first_position)
    bench.cancel(11)
    bench.start(number, chunk.first_position + 1)
    bench.tick(0.02)

    assert bench.confirmed() == {11: RUNNING}
    assert not bench.core.needs_tick


# Deaths ---------------------------------------------------------------------------------------------------------------


def test_only_the_running_task_is_lost_with_its_processor():
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12, 13, 14])
    bench.finish(number, chunk, 0, 1)
    bench.start(number, chunk.first_position + 2)  # 11 is finished, but its outcome is gone with the processor
    bench.die(number)

    outcomes = bench.outcomes()
    assert outcomes.pop(10) == (0, b"r10")
    assert list(outcomes) == [12]
    failure = decode_struct(m.Failure, outcomes[12][1])
    assert failure.kind == m.FailureKind.PROCESSOR_DIED
    assert failure.worker == "worker under test"
    assert f"processor {1000 + number} was ended by signal 9 (SIGKILL)" in failure.message
    again = [list(part.ids) for _, part in bench.dealt()]
    assert again[0] == [11]
    assert bench.core.queue.count + sum(map(len, again)) == 3


def test_a_processor_that_dies_between_two_tasks_loses_none():
    bench, number, chunk = short_tasks_on_one_processor([10, 11])
    bench.start(number, chunk.first_position | FINISHED)
    bench.die(number)

    assert bench.outcomes() == {}
    assert bench.core.queue.count + sum(len(part.ids) for _, part in bench.dealt()) == 2


def test_tasks_that_must_not_run_twice_are_lost_when_they_may_have_run():
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12], options={"at_most_once": True, "retries": 5})
    bench.start(number, chunk.first_position + 1)
    bench.die(number)

    assert sorted(bench.outcomes()) == [10, 11]
    assert bench.dealt_ids() == [[12]]


def test_a_task_is_retried_as_often_as_it_allows():
    bench = Bench()
    bench.send_tasks([1], options={"retries": 2})
    for attempt in (1, 2, 3):
        [(number, chunk)] = bench.dealt()
        assert chunk.attempt == attempt
        bench.start(number, chunk.first_position)
        assert bench.outcomes() == {}
        bench.die(number)

    assert bench.lost(1).attempts == 3


def test_attempts_on_other_workers_count():
    bench = Bench()
    bench.send_tasks([1], options={"retries": 2}, attempt=3)
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.die(number)

    assert bench.lost(1).attempts == 3


def test_chunks_that_waited_behind_are_run_elsewhere_in_order():
    bench, number, chunk = short_tasks_on_one_processor([10, 11])
    bench.send_tasks([20, 21])
    bench.dealt()
    bench.start(number, chunk.first_position)
    bench.die(number)

    assert sorted(bench.outcomes()) == [10]
    assert [list(part.ids) for _, part in bench.dealt()][0] == [11]


def test_what_kills_processors_at_their_start_is_not_fed_with_ever_more():
    bench = Bench(slots=1)
    for _ in range(4):
        bench.die(0)

    delays = [spawn.delay_seconds for spawn in bench.spawned]
    assert delays == [0.0, 0.5, 1.0, 2.0, 4.0]


# Limits ---------------------------------------------------------------------------------------------------------------


def test_a_task_over_its_time_limit_is_lost_and_not_retried():
    bench = Bench()
    bench.send_tasks([1], options={"time_limit_milliseconds": 1000, "retries": 9})
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.tick(0.9)
    assert bench.killed == []
    bench.tick(0.2)
    assert bench.killed == [number]
    bench.die(number)

    assert bench.lost(1).kind == m.FailureKind.TIME_LIMIT
    bench.tick(0.02)
    assert not bench.core.needs_tick


def test_the_clock_starts_anew_with_each_task():
    bench, number, chunk = short_tasks_on_one_processor([10, 11, 12], options={"time_limit_milliseconds": 1000})
    for index in range(3):
        bench.start(number, chunk.first_position + index)
        bench.tick(0.6)
    assert bench.killed == []
    bench.start(number, chunk.first_position + 2 | FINISHED)
    bench.tick(5)
    assert bench.killed == []


def test_who_finished_before_the_kill_is_not_blamed_and_neither_is_the_next():
    bench, number, chunk = short_tasks_on_one_processor([10, 11], options={"time_limit_milliseconds": 1000})
    bench.start(number, chunk.first_position)
    bench.tick(0.5)
    bench.tick(1.1)
    assert bench.killed == [number]
    bench.finish(number, chunk, 0, 1)
    bench.start(number, chunk.first_position + 1)
    bench.die(number)

    assert bench.outcomes() == {10: (0, b"r10")}
    assert bench.dealt_ids() == [[11]]


def test_the_shorter_of_two_time_limits_counts():
    bench = Bench(timeout=1.0)
    bench.send_tasks([1], options={"time_limit_milliseconds": 5000})
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.tick(1.1)

    assert bench.killed == [number]


def test_a_task_over_its_memory_limit_is_lost():
    bench = Bench()
    bench.send_tasks([1], options={"memory_limit_bytes": 1 << 20})
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.resident[1000 + number] = 1 << 19
    bench.tick(0.1)
    bench.tick(0.1)
    assert bench.killed == []
    bench.resident[1000 + number] = 1 << 21
    bench.tick(0.1)
    bench.die(number)

    assert bench.lost(1).kind == m.FailureKind.MEMORY_LIMIT


# Balancing, sessions --------------------------------------------------------------------------------------------------


def test_the_newest_tasks_of_the_lowest_priority_are_given_back_first():
    bench = Bench()
    bench.send_tasks([1, 2, 3, 4])
    bench.send_tasks([5, 6], options={"priority": 1})
    bench.send_tasks([7])
    bench.core.on_balance(m.BalanceRequest(request_id=8, count=3))
    bench.turn()

    [(message, _)] = bench.take(m.BalanceResponse)
    assert message.request_id == 8
    assert sorted(message.ids) == [3, 4, 7]
    assert bench.core.queue.count == 3


def test_a_new_session_forgets_everything():
    bench = Bench(slots=2)
    bench.learn(SHORT_MICROSECONDS)
    bench.send_tasks([10, 11, 12])
    bench.send_tasks([20], dependencies=[[31]])
    [(number, chunk)] = bench.dealt()
    bench.core.reset()
    bench.finish(number, chunk, 0, 1)  # was on its way
    bench.turn()

    assert bench.killed == [number]
    bench.die(number)
    assert bench.outcomes() == {}
    assert bench.dealt() == []
    assert bench.core.is_empty
    bench.send_tasks([10])
    assert bench.dealt_ids() == [[10]]


def test_printed_text_is_sent_with_the_id_of_its_task():
    bench, number, chunk = short_tasks_on_one_processor([10, 11], options={"stream_output": True})
    bench.core.on_log(number, chunk.first_position + 1, 2, "oops\n")
    bench.turn()

    assert bench.take(m.TaskLog) == [(m.TaskLog(id=11, stream=2, text="oops\n"), b"")]
