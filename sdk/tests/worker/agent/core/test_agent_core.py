"""A whole agent's core, without its shell: sessions that end in the middle, draining, leaving, full disks, deaths."""

from __future__ import annotations

from typing import Any

import pytest
from agent_core_bench import CHUNK, FUNCTION, Agent

from scaler.worker import exit_codes
from scaler.worker.agent.core.agent_core import LEAVE_TIMEOUT_SECONDS
from scaler.worker.agent.core.effects import EndProcessors, ImportModule, RemoveFiles, RemoveLeftovers
from scaler.worker.agent.core.function_ids import named_function_ids
from scaler.worker.frames import Frame, FrameKind
from scaler_protocol import messages as m

SUCCESS, FAILED, LOST = m.TaskStatus.SUCCESS, m.TaskStatus.FAILED, m.TaskStatus.LOST
DRAINING = m.DisconnectRequest(reason=m.DisconnectReason.DRAINING)
OBJECT = 1 << 40 | 2


def agent_with_tasks(*ids: int, **settings: Any) -> Agent:
    """An agent in a session, whose first task runs."""
    agent = Agent(**settings)
    agent.create_function()
    agent.send_tasks(*ids)
    agent.sent.clear()
    return agent


# Beginning ------------------------------------------------------------------------------------------------------------


def test_it_says_hello_when_it_is_connected_and_a_heartbeat_when_it_is_welcome() -> None:
    agent = Agent(session=0, slots=3, names=("compute",))
    assert agent.sent == []
    agent.connect()
    [hello] = agent.take(m.Hello)
    assert (hello.role, hello.slots, hello.name, hello.process_id) == (m.Role.WORKER, 3, "the worker", 77)

    agent.welcome(5)

    [heartbeat] = agent.take(m.Heartbeat)
    assert [status.process_id for status in heartbeat.processors] == [1000, 1001, 1002]
    assert (heartbeat.resident_bytes, heartbeat.free_bytes, heartbeat.shares_object_directory) == (2, 3, False)
    assert agent.sent == []


def test_a_task_runs_and_its_outcome_is_sent() -> None:
    agent = agent_with_tasks(10)
    [(number, chunk)] = agent.dealt()
    agent.finish(number, chunk)

    assert agent.outcomes() == {10: SUCCESS}
    assert agent.sent == []


def test_messages_right_behind_the_welcome_wait_until_it_is_known_where_objects_are() -> None:
    agent = Agent(session=0)
    agent.connect()
    agent.answers_files = False
    agent.welcome(5)
    agent.create_function()
    agent.send_tasks(10)
    assert agent.dealt() == []
    assert agent.take(m.Heartbeat) == []  # which says whether objects are shared

    agent.answer_files()
    agent.wait(0)

    assert [list(chunk.ids) for _, chunk in agent.dealt()] == [[10]]
    assert len(agent.take(m.Heartbeat)) == 1


def test_it_comes_back_ever_more_slowly_and_gives_up_in_the_end() -> None:
    agent = Agent(session=0, death_timeout_seconds=60)
    attempts = 0
    while agent.exit_code is None:
        if agent.performed:
            agent.performed.clear()
            attempts += 1
            agent.core.on_connect_failed("nothing listens at tcp://scheduler:1", agent.now)
            agent.turn()
        agent.wait(0.25)
        assert agent.now < 200

    assert agent.exit_code == exit_codes.EXIT_NO_SCHEDULER
    assert 60 / 2.5 < attempts < 60
    assert "for 60 seconds (death_timeout_seconds), giving up: nothing listens" in agent.logs[-1]


# Sessions that end ----------------------------------------------------------------------------------------------------


def test_a_session_lost_while_objects_are_opened_is_followed_by_another() -> None:
    agent = Agent(session=0)
    agent.answers_files = False
    agent.connect()
    agent.welcome(5)
    agent.receive(m.Refusal(reason=m.RefusalReason.NOT_GREETED))
    assert agent.is_disconnected
    agent.performed.clear()
    agent.wait(1.0)
    agent.connect()
    assert [type(message) for message, _ in agent.sent][-1] is m.Hello


def test_a_session_lost_in_the_middle_of_tasks_takes_them_along() -> None:
    agent = agent_with_tasks(10, 11, 12)
    [(number, chunk)] = agent.dealt()
    agent.start(number, chunk)
    agent.lose_connection()

    assert agent.is_disconnected
    assert agent.core.tasks.is_empty
    assert list(agent.processors) == [number]  # killed with its task, and replaced
    agent.wait(1)
    agent.connect()
    [hello] = agent.take(m.Hello)
    assert hello.previous_session == 5
    agent.welcome(6)
    agent.take(m.Heartbeat)
    assert agent.sent == []  # of what was before

    agent.create_function()
    agent.send_tasks(20)
    [(number, chunk)] = agent.dealt()
    agent.finish(number, chunk)
    assert agent.outcomes() == {20: SUCCESS}


def test_outcomes_that_were_not_sent_when_the_session_ended_never_are() -> None:
    agent = agent_with_tasks(10)
    [(number, chunk)] = agent.dealt()
    agent.core.on_frames(number, [agent.result(chunk)])
    agent.core.on_disconnected("connection reset by peer", agent.now)  # in the same turn
    agent.turn()
    agent.wait(1)
    agent.connect()
    agent.welcome(6)

    assert agent.outcomes() == {}


def test_answers_that_were_not_sent_when_the_session_ended_never_are() -> None:
    agent = agent_with_tasks(10)
    agent.core.on_message(m.BalanceRequest(request_id=1, count=1), b"", agent.now)
    agent.core.on_disconnected("connection reset by peer", agent.now)  # in the same turn
    agent.turn()

    assert agent.sent == []


def test_a_large_result_of_a_session_that_has_ended_is_removed() -> None:
    agent = agent_with_tasks(10)
    [(number, chunk)] = agent.dealt()
    agent.answers_files = False
    agent.finish_large(number, chunk, 5000)
    agent.lose_connection()
    agent.performed.clear()
    agent.answer_files()

    assert agent.files == {}
    assert agent.take(m.ObjectInstruction) == []


def test_a_scheduler_that_has_forgotten_the_worker_is_greeted_again() -> None:
    agent = agent_with_tasks(10)
    agent.receive(m.Refusal(reason=m.RefusalReason.NOT_GREETED))
    agent.wait(1)
    agent.connect()

    assert agent.take(m.Hello)[0].previous_session == 5


def test_messages_that_contradict_each_other_end_the_session() -> None:
    agent = agent_with_tasks(10)
    agent.receive(m.Task(ids=[11], payload_sizes=[5], function=FUNCTION), b"four")

    assert agent.is_disconnected
    assert any("contradict each other" in text for text in agent.logs)


def test_a_silent_scheduler_is_left() -> None:
    agent = agent_with_tasks(10)
    agent.wait(59)
    before = agent.is_disconnected
    agent.wait(2)
    assert (before, agent.is_disconnected) == (False, True)
    assert agent.core.tasks.is_empty


def test_a_refused_worker_ends_with_the_reason() -> None:
    agent = Agent(session=0)
    agent.connect()
    agent.receive(m.Refusal(reason=m.RefusalReason.VERSION_MISMATCH, message="this is version 9"))

    assert agent.exit_code == exit_codes.EXIT_REFUSED
    assert agent.logs[-1] == "Worker: refused by the scheduler (VERSION_MISMATCH): this is version 9"


# Draining and leaving -------------------------------------------------------------------------------------------------


def test_a_worker_that_drains_finishes_what_runs_and_gives_the_rest_back() -> None:
    agent = agent_with_tasks(10, 11, 12)
    [(number, chunk)] = agent.dealt()
    agent.receive(DRAINING)
    assert [list(message.ids) for message in agent.take(m.BalanceResponse)] == [[11, 12]]
    assert agent.exit_code is None
    agent.finish(number, chunk)

    assert [type(message) for message, _ in agent.sent] == [m.TaskResult, m.DisconnectResponse]
    assert agent.exit_code == exit_codes.EXIT_OK


def test_a_worker_that_drains_waits_until_its_large_result_was_fetched() -> None:
    agent = agent_with_tasks(10)
    [(number, chunk)] = agent.dealt()
    agent.receive(DRAINING)
    agent.finish_large(number, chunk, CHUNK)
    [instruction] = agent.take(m.ObjectInstruction)
    assert agent.exit_code is None
    agent.receive(m.ObjectRequest(id=instruction.ids[0], offset=0, length=CHUNK))

    assert [type(message) for message, _ in agent.sent] == [m.ObjectResponse, m.TaskResult, m.DisconnectResponse]
    assert agent.exit_code == exit_codes.EXIT_OK


def test_a_worker_that_is_asked_to_drain_right_after_its_welcome_gives_back_the_tasks_that_came_before() -> None:
    agent = Agent(session=0)
    agent.connect()
    agent.answers_files = False
    agent.welcome(5)
    agent.create_function()
    agent.send_tasks(10, 11)
    agent.sent.clear()
    agent.receive(DRAINING)
    assert agent.exit_code is None and agent.sent == []

    agent.answer_files()

    assert [type(message) for message, _ in agent.sent] == [m.BalanceResponse, m.DisconnectResponse]
    assert list(agent.sent[0][0].ids) == [10, 11]
    assert agent.exit_code == exit_codes.EXIT_OK


def test_a_worker_that_loses_its_scheduler_while_it_drains_ends() -> None:
    agent = agent_with_tasks(10)
    agent.receive(DRAINING)
    agent.lose_connection()

    assert agent.exit_code == exit_codes.EXIT_OK


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_worker_that_is_told_to_stop_says_goodbye(is_answered: bool) -> None:
    agent = agent_with_tasks(10)
    [(number, chunk)] = agent.dealt()
    agent.core.on_stop_requested("asked to stop by SIGTERM", agent.now)
    agent.turn()
    assert agent.performed == [EndProcessors()]
    [goodbye] = agent.take(m.DisconnectRequest)
    assert (goodbye.reason, goodbye.message) == (m.DisconnectReason.LEAVING, "asked to stop by SIGTERM")
    agent.core.on_frames(number, [agent.result(chunk)])
    agent.send_tasks(11)
    before = agent.exit_code

    if is_answered:
        agent.receive(m.DisconnectResponse())
    else:
        agent.wait(LEAVE_TIMEOUT_SECONDS)

    assert (before, agent.exit_code) == (None, exit_codes.EXIT_OK)
    assert agent.sent == []


def test_a_worker_that_is_told_to_stop_twice_ends_at_once() -> None:
    agent = agent_with_tasks(10)
    for _ in range(2):
        agent.core.on_stop_requested("asked to stop by SIGTERM", agent.now)
        agent.turn()

    assert agent.exit_code == exit_codes.EXIT_OK


def test_a_worker_that_is_told_to_stop_before_it_was_connected_ends_at_once() -> None:
    agent = Agent(session=0)
    agent.core.on_stop_requested("asked to stop by SIGTERM", agent.now)
    agent.turn()

    assert agent.exit_code == exit_codes.EXIT_OK
    assert agent.sent == []


def test_a_worker_without_its_fork_server_leaves_with_an_error() -> None:
    agent = agent_with_tasks(10)
    agent.core.on_fork_server_ended(agent.now)
    agent.turn()
    agent.receive(m.DisconnectResponse())

    assert agent.exit_code == exit_codes.EXIT_ERROR


def test_a_scheduler_that_shuts_its_workers_down_is_answered() -> None:
    agent = agent_with_tasks(10)
    agent.receive(m.DisconnectRequest(reason=m.DisconnectReason.SHUTDOWN, message="the show is over"))

    assert [type(message) for message, _ in agent.sent] == [m.DisconnectResponse]
    assert agent.exit_code == exit_codes.EXIT_OK
    assert agent.logs[-1] == "Worker: the scheduler asks to stop: the show is over"


# Files ----------------------------------------------------------------------------------------------------------------


def fetching_agent(size: int) -> Agent:
    """An agent that has asked for an object which a task needs."""
    agent = Agent()
    agent.create_function()
    agent.send_tasks(10, dependencies=[OBJECT])
    [request] = agent.take(m.ObjectRequest)
    agent.sent.clear()
    agent.receive(m.ObjectResponse(id=OBJECT, offset=request.offset, size=size), bytes(CHUNK))
    return agent


def test_a_task_runs_when_its_object_is_on_disk() -> None:
    agent = fetching_agent(2 * CHUNK)
    assert agent.dealt() == []
    [request] = agent.take(m.ObjectRequest)
    agent.receive(m.ObjectResponse(id=OBJECT, offset=request.offset, size=2 * CHUNK), bytes(CHUNK))

    assert [list(chunk.ids) for _, chunk in agent.dealt()] == [[10]]
    assert len(agent.files[f"/own/{OBJECT:016x}"]) == 2 * CHUNK


def test_a_disk_that_is_full_while_an_object_is_written_loses_the_tasks_that_need_it() -> None:
    agent = fetching_agent(3 * CHUNK)
    agent.disk_is_full = True
    for request in agent.take(m.ObjectRequest):
        agent.receive(m.ObjectResponse(id=OBJECT, offset=request.offset, size=3 * CHUNK), bytes(CHUNK))

    assert agent.outcomes() == {10: LOST}
    assert RemoveFiles(("/own/new-1",)) in agent.performed
    agent.disk_is_full = False
    agent.send_tasks(11)
    [(number, chunk)] = agent.dealt()
    agent.finish(number, chunk)
    assert agent.outcomes() == {11: SUCCESS}


def test_an_object_deleted_while_it_is_written_is_removed_and_its_tasks_are_lost() -> None:
    agent = fetching_agent(2 * CHUNK)
    agent.answers_files = False
    [request] = agent.take(m.ObjectRequest)
    agent.receive(m.ObjectResponse(id=OBJECT, offset=request.offset, size=2 * CHUNK), bytes(CHUNK))
    agent.receive(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=[OBJECT]))
    assert agent.outcomes() == {10: LOST}
    agent.answer_files()

    assert agent.files == {}


def test_a_large_result_whose_file_is_gone_loses_its_task() -> None:
    agent = agent_with_tasks(10)
    [(number, chunk)] = agent.dealt()
    agent.answers_files = False
    agent.finish_large(number, chunk, 5000)
    agent.files.clear()
    assert agent.outcomes() == {}
    agent.answer_files()

    assert agent.outcomes() == {10: LOST}


# Processors -----------------------------------------------------------------------------------------------------------


def test_a_processor_that_dies_with_results_on_their_way_loses_none_of_them() -> None:
    agent = agent_with_tasks(10, 11)
    [(number, chunk)] = agent.dealt()
    agent.answers_files = False
    agent.finish_large(number, chunk, CHUNK)  # the file is not renamed yet
    [(number, chunk)] = agent.dealt()
    agent.start(number, chunk)
    agent.die(number)
    agent.turn()
    assert agent.outcomes() == {11: LOST}
    assert RemoveLeftovers(1000 + number) in agent.performed
    agent.answer_files()
    agent.answers_files = True
    [instruction] = agent.take(m.ObjectInstruction)
    agent.receive(m.ObjectRequest(id=instruction.ids[0], offset=0, length=CHUNK))

    assert agent.outcomes() == {10: SUCCESS}
    assert agent.core.tasks.is_empty


def test_a_processor_that_talks_nonsense_is_replaced_and_its_task_lost() -> None:
    agent = agent_with_tasks(10)
    [(number, chunk)] = agent.dealt()
    agent.start(number, chunk)
    agent.core.on_frames(number, [Frame(99, 0, b"")])
    agent.turn()

    assert agent.outcomes() == {10: LOST}
    assert len(agent.processors) == 1


def test_news_of_slots_leave_with_a_heartbeat_of_their_own() -> None:
    agent = agent_with_tasks(10)
    [(number, _)] = agent.dealt()
    agent.core.on_frames(number, [Frame(FrameKind.BLOCKED, 0, b"")])
    agent.turn()
    agent.wait(0.1)

    [heartbeat] = agent.take(m.Heartbeat)
    assert [status.suspended for status in heartbeat.processors] == [True, False]
    assert ImportModule("scaler.client") in agent.performed


def test_what_is_not_for_workers_is_ignored() -> None:
    agent = agent_with_tasks(10)
    agent.receive(m.TaskCancelConfirm())

    assert agent.sent == []
    assert agent.logs[-1] == "Worker: a TaskCancelConfirm is not for workers, ignored"


def test_few_named_functions_are_remembered_beside_those_that_tasks_here_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_function_ids, "MAXIMUM_NAMED_FUNCTIONS", 3)
    agent = Agent(per_worker_queue_size=100, functions=(("python:*", ""),))
    (state,) = agent.core.tasks.pool.states()

    def send(numbers: range) -> None:
        for number in numbers:
            name = f"python:operator:{number}"
            agent.receive(m.Task(ids=[number], payload_sizes=[0], function_name=name, codec="json"))

    def finish(count: int) -> None:
        while count:
            for number, chunk in agent.dealt():
                agent.finish(number, chunk)
                count -= 1

    send(range(10, 20))
    assert len(agent.core.objects.named_functions._definitions) == 10, "their tasks wait here"
    finish(10)
    for number in range(20, 60):
        send(range(number, number + 1))
        finish(1)
    assert set(agent.outcomes()) == set(range(10, 60))
    assert len(agent.core.objects.named_functions._definitions) <= 3 and len(state.defined) <= 3
