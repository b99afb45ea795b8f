"""Events that come too late, and other rare events of an agent's core."""

from __future__ import annotations

from array import array
from typing import Any, Dict, List

import pytest
from agent_core_bench import CHUNK, FUNCTION, Agent
from task_flow_bench import Bench
from worker_objects_bench import REMOTE
from worker_objects_bench import Bench as ObjectsBench

from scaler.values.code_notes import NO_CODE, CodeNote, add_note
from scaler.values.payload import join
from scaler.worker import exit_codes, frames
from scaler.worker.agent.core.effects import NameCopy, ReadNote, RemoveFiles, RemoveLeftovers, Send, UnpackCode
from scaler.worker.agent.core.heartbeats import LARGE_BYTES
from scaler.worker.agent.core.task_durations import MAXIMUM_FUNCTIONS, TaskDurations
from scaler.worker.frames import Frame, FrameKind
from scaler.worker.progress import MAXIMUM_PROCESSORS
from scaler_protocol import decode_struct
from scaler_protocol import messages as m
from scaler_protocol.host.segments import object_name

SUCCESS, LOST = m.TaskStatus.SUCCESS, m.TaskStatus.LOST
OBJECT = 1 << 40 | 2
ARCHIVE_NUMBER, DIGEST = 3, "0123456789abcdef" * 2
ARCHIVE = 1 << 40 | ARCHIVE_NUMBER


def agent_with_task(**settings: Any) -> Agent:
    agent = Agent(**settings)
    agent.create_function()
    agent.send_tasks(10)
    agent.sent.clear()
    return agent


def failure_of(agent: Agent, instance: int) -> m.Failure:
    [(message, payload)] = [each for each in agent.sent if isinstance(each[0], m.TaskResult)]
    assert list(message.ids) == [instance]
    return decode_struct(m.Failure, payload)


# Leaving --------------------------------------------------------------------------------------------------------------


def test_a_worker_that_leaves_does_not_care_for_its_processors_any_more() -> None:
    agent = agent_with_task()
    [(number, chunk)] = agent.dealt()
    agent.core.on_stop_requested("stopped by SIGTERM", agent.now)
    agent.core.take_effects()

    agent.core.on_frames(number, [agent.result(chunk)])
    agent.core.on_processor_broken(number, "half a frame")
    agent.core.on_processor_started(number, 1234)
    agent.core.on_processor_died(number, "exited with code 1", agent.now)
    agent.core.on_memory_measured({1000: 1 << 40})
    agent.core.on_fork_server_ended(agent.now)
    agent.core.on_objects_opened(False, "", agent.now)
    agent.core.finish_turn(agent.now)

    assert agent.core.take_effects() == []


def test_what_answers_and_is_no_scheduler_ends_the_worker() -> None:
    agent = Agent(session=0)
    agent.connect()
    agent.receive(m.Welcome(major=1, session=0))

    assert agent.exit_code == exit_codes.EXIT_REFUSED
    assert "the program at tcp://scheduler:1 is not a Scaler scheduler" in agent.logs[-1]


# Sessions that end ----------------------------------------------------------------------------------------------------


def test_messages_behind_one_that_ended_the_session_are_dropped() -> None:
    agent = Agent(session=0)
    agent.connect()
    agent.answers_files = False
    agent.welcome(5)
    agent.receive(m.Task(ids=[11], payload_sizes=[5], function=FUNCTION), b"four")  # contradicts itself
    agent.send_tasks(12)
    agent.answer_files()

    assert agent.is_disconnected
    assert agent.core.tasks.is_empty


def test_the_file_of_a_large_result_that_was_never_announced_is_removed() -> None:
    agent = agent_with_task()
    [(number, chunk)] = agent.dealt()
    agent.answers_files = False
    agent.finish_large(number, chunk, CHUNK)
    [keep] = agent.unanswered
    agent.core.on_result_kept(keep.object_id, keep.target)  # so the scheduler is about to be told
    agent.core.on_disconnected("connection reset by peer", agent.now)  # in the same turn
    agent.turn()

    assert agent.take(m.ObjectInstruction) == []
    assert [each.paths for each in agent.unanswered if isinstance(each, RemoveFiles)] == [(keep.target,)] * 1


def test_of_a_copy_that_was_not_announced_only_our_own_name_is_removed() -> None:
    agent = agent_with_task()
    agent.core.objects.is_shared = True
    hold = m.ObjectInstruction(action=m.ObjectAction.HOLD, ids=array("Q", [OBJECT]))
    agent.core.objects.served.add(OBJECT, "/own/copy", 5)
    agent.core.effects.append(Send(hold))
    agent.core.on_disconnected("connection reset by peer", agent.now)  # in the same turn
    agent.turn()
    removed = [path for each in agent.performed if isinstance(each, RemoveFiles) for path in each.paths]
    assert removed == ["/own/copy"], "and not the scheduler's file, of which there may be one by now"


# Functions and code ---------------------------------------------------------------------------------------------------


def test_a_function_that_is_served_by_name_needs_no_object() -> None:
    agent = Agent(functions=(("add", "operator:add"),))
    agent.receive(m.Task(ids=[10], payload_sizes=[0], function_name="add", codec="json"))
    [(number, chunk)] = agent.dealt()
    agent.finish(number, chunk)

    assert agent.outcomes() == {10: SUCCESS}


@pytest.mark.parametrize(("name", "codec"), [("", "json"), ("add", "xml")])
def test_tasks_in_an_unknown_codec_are_lost(name: str, codec: str) -> None:
    agent = Agent(functions=(("add", "operator:add"),))
    agent.create_function()
    message = m.Task(ids=[10], payload_sizes=[0], function=0 if name else FUNCTION, function_name=name, codec=codec)
    agent.receive(message)

    failure = failure_of(agent, 10)
    assert failure.kind == m.FailureKind.CODEC_UNKNOWN
    assert f"not {codec!r}" in failure.message


def agent_with_code() -> Agent:
    """An agent with a task whose function needs an archive, which the agent has."""
    agent = Agent()
    parts: List[Any] = [b"f"]
    add_note(parts, CodeNote("key", ((ARCHIVE_NUMBER, DIGEST),), {}))
    content = join(parts)
    for object_id, data in ((FUNCTION, bytes(content)), (ARCHIVE, b"zip")):
        columns: Dict[str, Any] = {
            "ids": [object_id],
            "sizes": [len(data)],
            "storages": bytes([m.ObjectStorage.INLINE]),
        }
        agent.receive(m.ObjectInstruction(action=m.ObjectAction.CREATE, **columns), data)
    agent.send_tasks(10)
    return agent


def test_a_task_runs_when_its_code_is_unpacked() -> None:
    agent = agent_with_code()
    assert agent.dealt() == []
    assert [type(each) for each in agent.performed] == [UnpackCode]
    agent.core.on_code_unpacked(DIGEST, "/code/1")
    agent.turn()
    [(number, chunk)] = agent.dealt()
    agent.finish(number, chunk)

    assert agent.outcomes() == {10: SUCCESS}


def test_a_task_whose_code_cannot_be_unpacked_is_lost() -> None:
    agent = agent_with_code()
    agent.core.on_code_failed(DIGEST, "not a zip file")
    agent.turn()

    failure = failure_of(agent, 10)
    assert (failure.kind, failure.message) == (m.FailureKind.FUNCTION_NOT_LOADED, "not a zip file")


def test_a_large_function_waits_until_its_note_is_read() -> None:
    agent = Agent(is_shared=True)
    columns: Dict[str, Any] = {"ids": [FUNCTION], "sizes": [1 << 20], "storages": bytes([m.ObjectStorage.SHARED])}
    agent.receive(m.ObjectInstruction(action=m.ObjectAction.CREATE, kinds=bytes([m.ObjectKind.FUNCTION]), **columns))
    agent.send_tasks(10)
    assert [each.function for each in agent.performed if isinstance(each, ReadNote)] == [FUNCTION]
    assert agent.dealt() == []
    agent.core.on_note_read(FUNCTION, NO_CODE)
    agent.turn()

    assert len(agent.dealt()) == 1


# Processors -----------------------------------------------------------------------------------------------------------


def test_what_a_task_prints_reaches_the_scheduler() -> None:
    agent = agent_with_task()
    [(number, chunk)] = agent.dealt()
    agent.start(number, chunk)
    data = frames.join(frames.log_frame(chunk.first_position, 1, "hello"))
    _, kind, flags = frames.HEADER.unpack_from(data)
    agent.core.on_frames(number, [Frame(kind, flags, data[frames.HEADER.size :])])
    agent.turn()

    [log] = agent.take(m.TaskLog)
    assert (log.id, log.text) == (10, "hello")


def test_a_processor_that_dies_unasked_is_reported_and_replaced() -> None:
    agent = agent_with_task()
    agent.receive(m.HeartbeatEcho(is_watched=True))
    [(number, chunk)] = agent.dealt()
    agent.start(number, chunk)
    agent.die(number, "exited with code 3")
    agent.turn()

    assert "Processor[0]: process 1000 exited with code 3" in agent.logs
    assert RemoveLeftovers(1000) in agent.performed
    assert agent.outcomes() == {10: LOST}
    agent.wait(0.1)
    assert len(agent.take(m.Heartbeat)) == 1  # monitors hear of its successor at once


@pytest.mark.parametrize("resident_bytes", [LARGE_BYTES - 1, LARGE_BYTES])
def test_the_task_of_a_large_process_is_named_though_no_monitor_is_there(resident_bytes: int) -> None:
    agent = agent_with_task(heartbeat_interval_seconds=1.0)
    [(number, chunk)] = agent.dealt()
    agent.start(number, chunk)
    agent.resident_bytes = resident_bytes
    for _ in range(3):
        agent.wait(1.0)

    [processor] = agent.take(m.Heartbeat)[-1].processors
    assert processor.resident_bytes == resident_bytes
    assert processor.instance == (10 if resident_bytes >= LARGE_BYTES else 0)


def test_a_processor_that_dies_before_it_said_that_it_started_leaves_nothing_behind() -> None:
    agent = Agent()
    state = agent.core.tasks.pool.get(0)
    assert state is not None
    state.process_id = 0
    agent.die(0, "exited with code 1")
    agent.turn()

    assert not any(isinstance(each, RemoveLeftovers) for each in agent.performed)
    assert list(agent.processors) == [0]


def test_a_task_over_its_memory_limit_is_stopped() -> None:
    agent = Agent()
    agent.create_function()
    agent.send_tasks(10, memory_limit_bytes=1 << 20)
    [(number, chunk)] = agent.dealt()
    agent.start(number, chunk)
    agent.wait(1.0)
    agent.core.on_memory_measured({1000: 1 << 21, 4321: 1 << 30})
    agent.turn()

    assert failure_of(agent, 10).kind == m.FailureKind.MEMORY_LIMIT


def test_no_more_processors_than_can_be_numbered() -> None:
    bench = Bench(slots=MAXIMUM_PROCESSORS + 1)
    assert len(bench.spawned) == MAXIMUM_PROCESSORS


def test_what_a_processor_that_is_gone_has_sent_changes_nothing() -> None:
    bench = Bench()
    gone = 99
    bench.flow.on_given_back(gone, [(0, 1)])
    bench.flow.on_blocked(gone)
    bench.flow.on_resumed(gone)
    bench.flow.on_log(gone, 0, 1, "hello")
    bench.flow.on_processor_started(gone, 1234)
    bench.flow.on_processor_broken(gone, "half a frame")
    bench.flow.on_processor_died(gone, "exited with code 1", bench.now)
    bench.turn()

    assert (bench.sent, bench.killed, len(bench.spawned)) == ([], [], 1)
    assert len(bench.flow.pool) == 1


def test_a_processor_without_a_task_cannot_be_blocked_or_give_anything_back() -> None:
    bench = Bench()
    bench.flow.on_blocked(0)
    bench.flow.on_given_back(0, [(5, 1)])
    bench.turn()

    assert bench.flow.pool.suspended == 0
    assert bench.kinds(0) == [FrameKind.SETTLED]
    assert bench.flow.queue.count == 0


def test_time_limits_begin_with_the_task() -> None:
    bench = Bench()
    bench.send_tasks([1], options={"time_limit_milliseconds": 1000})
    [(number, chunk)] = bench.dealt()
    bench.tick(5.0)  # the processor is still being forked
    bench.tick(5.0)
    assert bench.killed == []
    bench.start(number, chunk.first_position)
    bench.tick(0.1)
    bench.send_tasks([2])  # it has no limit, and waits behind
    bench.finish(number, chunk)
    [(number, chunk)] = bench.dealt()
    bench.start(number, chunk.first_position)
    bench.tick(5.0)
    bench.tick(5.0)

    assert bench.killed == []


# Results and durations ------------------------------------------------------------------------------------------------


def test_files_and_small_results_of_one_chunk_keep_their_profiles() -> None:
    bench = Bench()
    bench.learn(2)
    bench.send_tasks([1, 2, 3], options={"profiling": True})
    [(number, chunk)] = bench.dealt()
    bench.finish(
        number,
        chunk,
        payloads=[b"small", frames.large_result(1000, "/results/new-1"), b"small"],
        large=bytes([0, 1, 0]),
        profiles=(array("Q", [1, 2, 3]), array("Q", [4, 5, 6]), array("Q", [7, 8, 9])),
    )
    bench.flow.on_object_served(5001)
    bench.turn()

    found = {
        instance: (
            message.durations_microseconds[index],
            message.cpu_microseconds[index],
            message.peak_memory_bytes[index],
        )
        for message, _ in bench.take(m.TaskResult)
        for index, instance in enumerate(message.ids)
    }
    assert found == {1: (1, 4, 7), 2: (2, 5, 8), 3: (3, 6, 9)}


def test_runs_are_reported_while_there_are_monitors() -> None:
    bench = Bench()
    bench.flow.watch(True)
    bench.send_tasks([1])
    [(number, chunk)] = bench.dealt()
    bench.finish(number, chunk, busy_microseconds=50)

    [(message, _)] = bench.take(m.TaskResult)
    assert list(message.runs) == [1, 1000, 50]


def test_durations_of_functions_that_were_not_used_for_long_are_forgotten() -> None:
    durations = TaskDurations()
    for function in range(MAXIMUM_FUNCTIONS + 1):
        durations.add(function, 1.0, 1)

    assert durations.mean_seconds(0) is None
    assert durations.mean_seconds(1) == durations.mean_seconds(MAXIMUM_FUNCTIONS) == 1.0


# Objects --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def objects_bench() -> Any:
    made = ObjectsBench()
    yield made
    made.close()


def test_a_chunk_that_is_written_after_its_object_was_forgotten_is_removed(objects_bench: ObjectsBench) -> None:
    objects_bench.create(9, REMOTE, size=5)
    objects_bench.objects.fetch(9)
    objects_bench.objects.forget(9)
    objects_bench.effects.clear()
    objects_bench.objects.on_chunk_written(9, 999, 5, "/own/9")

    assert objects_bench.effects == [RemoveFiles(("/own/9",))]


def test_what_an_earlier_fetch_has_written_is_removed_and_what_the_present_one_has_stays(
    objects_bench: ObjectsBench,
) -> None:
    objects = objects_bench.objects
    objects_bench.create(9, REMOTE, size=5)
    objects.fetch(9)
    objects.forget(9)
    objects_bench.create(9, REMOTE, size=5)
    objects.fetch(9)
    assert len(objects_bench.sent()) == 2
    objects.on_response(m.ObjectResponse(id=9, offset=0, size=5), b"12345")  # to the first one
    objects.on_response(m.ObjectResponse(id=9, offset=0, size=5), b"12345")
    [write] = objects_bench.effects
    objects_bench.effects.clear()
    objects.on_chunk_written(9, write.fetch - 1, 5, "/own/earlier")
    assert objects_bench.effects == [RemoveFiles(("/own/earlier",))]
    objects_bench.effects.clear()
    objects.on_chunk_written(9, write.fetch, 5, "/own/present")
    assert objects_bench.effects == [NameCopy(9, write.fetch, "/own/present", object_name(9))]
    objects_bench.effects.clear()
    objects.on_copy_named(9, write.fetch - 1, "/own/9")
    assert objects_bench.effects == [RemoveFiles(("/own/9",))], "the next one to be named is named after that"
    objects.on_copy_named(9, write.fetch, "/own/9")
    objects_bench.effects.clear()
    objects.on_copy_named(9, write.fetch - 1, "/own/9")
    assert objects_bench.effects == [] and objects.is_available(9)


def test_an_object_that_is_forgotten_while_it_is_fetched_is_not_kept(objects_bench: ObjectsBench) -> None:
    objects_bench.create(9, REMOTE, size=5)
    objects_bench.objects.fetch(9)
    [request] = objects_bench.sent()
    objects_bench.objects.forget(9)
    objects_bench.respond(request, b"bytes")

    assert objects_bench.events == [] and not objects_bench.objects.is_available(9)


def test_an_object_that_is_forgotten_is_fetched_again_when_it_is_needed(objects_bench: ObjectsBench) -> None:
    objects_bench.create(9, m.ObjectStorage.INLINE, b"content")
    objects_bench.objects.forget(9)

    assert not objects_bench.objects.is_available(9)
    assert objects_bench.objects.definition(9) is None


def test_a_result_of_a_session_that_has_ended_is_neither_announced_nor_lost(objects_bench: ObjectsBench) -> None:
    objects_bench.effects.clear()
    objects_bench.objects.on_kept(77, "/results/77", "No such file or directory")
    assert objects_bench.effects == []
    objects_bench.objects.on_kept(77, "/results/77")
    assert objects_bench.effects == [RemoveFiles(("/results/77",))]
