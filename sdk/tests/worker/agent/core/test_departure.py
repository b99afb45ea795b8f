"""How a worker leaves by itself: signals, notices, idle time, its end of life; and the time that its tasks have."""

from __future__ import annotations

from typing import Any, List

import pytest
from agent_core_bench import CHUNK, Agent

from scaler.worker import exit_codes
from scaler.worker.agent.core.departure import FAREWELL_SECONDS, HAND_OVER_SECONDS
from scaler_protocol import messages as m
from scaler_protocol.session.features import DRAIN_REQUESTS

Cause, Reason = m.DrainCause, m.DisconnectReason
TOLD = m.DisconnectRequest(reason=Reason.DRAINING, message="as you like", drain_cause=Cause.SIGNAL)
BY_OPERATOR = m.DisconnectRequest(reason=Reason.DRAINING, message="Client a asked for it", drain_cause=Cause.OPERATOR)


def agent_with_tasks(*ids: int, features: List[str] = [DRAIN_REQUESTS], **settings: Any) -> Agent:  # noqa: B006
    """An agent with one slot, whose first task runs."""
    agent = Agent(session=0, **settings)
    agent.connect()
    agent.welcome(5, features=features)
    agent.create_function()
    if ids:
        agent.send_tasks(*ids)
    agent.sent.clear()
    return agent


def signal(agent: Agent, name: str = "SIGTERM", is_forwarded: bool = False) -> None:
    agent.core.on_signal(name, is_forwarded, agent.now)
    agent.turn()


def asked(agent: Agent) -> m.DisconnectRequest:
    """What the agent tells the scheduler first."""
    message = agent.sent.pop(0)[0]
    assert isinstance(message, m.DisconnectRequest) and message.reason == Reason.DRAINING
    return message


def has_ended_well(agent: Agent) -> bool:
    return agent.exit_code == exit_codes.EXIT_OK


def has_left_at_once(agent: Agent) -> bool:
    goodbyes = [each.reason for each in agent.take(m.DisconnectRequest)]
    agent.receive(m.DisconnectResponse())
    return goodbyes == [Reason.LEAVING] and agent.exit_code == exit_codes.EXIT_OK


# Signals --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_lets_what_runs_end_and_gives_the_rest_back_at_once(name: str) -> None:
    agent = agent_with_tasks(10, 11, 12)
    [(number, chunk)] = agent.dealt()
    signal(agent, name)

    request = asked(agent)
    assert (request.drain_cause, request.message) == (Cause.SIGNAL, f"asked to stop by {name}")
    assert [list(message.ids) for message in agent.take(m.BalanceResponse)] == [[11, 12]]
    assert "within 25 s, then leaving; a second SIGTERM or Ctrl-C stops it at once" in agent.logs[-1]

    agent.receive(TOLD)
    agent.finish(number, chunk)
    assert [type(message) for message, _ in agent.sent] == [m.TaskResult, m.DisconnectResponse]
    assert agent.exit_code == exit_codes.EXIT_OK


def test_tasks_that_cross_the_request_are_given_back_before_the_worker_leaves() -> None:
    agent = agent_with_tasks()
    signal(agent)
    asked(agent)
    agent.send_tasks(10, 11)
    assert [list(message.ids) for message in agent.take(m.BalanceResponse)] == [[10, 11]]
    assert agent.exit_code is None and agent.sent == [], "more may be under way until the scheduler has answered"
    agent.receive(TOLD)
    assert [type(message) for message, _ in agent.sent] == [m.DisconnectResponse]
    assert agent.exit_code == exit_codes.EXIT_OK


@pytest.mark.parametrize("second", ["SIGTERM", "SIGINT"])
def test_a_second_signal_stops_at_once(second: str) -> None:
    agent = agent_with_tasks(10)
    signal(agent)
    asked(agent)
    signal(agent, second)
    assert has_left_at_once(agent)


def test_a_third_signal_does_not_wait_for_an_answer() -> None:
    agent = agent_with_tasks(10)
    for _ in range(3):
        signal(agent)
    assert agent.exit_code == exit_codes.EXIT_OK


def test_a_signal_to_all_processes_of_the_program_counts_once() -> None:
    agent = agent_with_tasks(10)
    for is_forwarded in (False, True):
        signal(agent, "SIGTERM", is_forwarded)
    asked(agent)
    assert agent.sent == []
    signal(agent, "SIGTERM", is_forwarded=True)
    assert has_left_at_once(agent)


@pytest.mark.parametrize("names", [("SIGHUP", "SIGTERM"), ("SIGTERM", "SIGHUP"), ("SIGHUP", "SIGHUP")])
def test_a_hang_up_never_counts_as_a_second_signal(names: Any) -> None:
    agent = agent_with_tasks(10)
    for name in names:
        signal(agent, name)
    asked(agent)
    assert agent.sent == [] and agent.exit_code is None


@pytest.mark.parametrize(
    "settings", [{"drain_timeout_seconds": 0.0}, {"features": []}], ids=["no time", "an old scheduler"]
)
def test_a_worker_without_time_or_whose_scheduler_is_older_leaves_at_once(settings: Any) -> None:
    agent = agent_with_tasks(10, **settings)
    signal(agent)
    assert has_left_at_once(agent)


def test_a_worker_that_is_not_connected_leaves_at_once() -> None:
    agent = Agent(session=0)
    signal(agent)
    assert agent.exit_code == exit_codes.EXIT_OK and agent.sent == []


def test_a_worker_asked_right_after_its_welcome_gives_back_the_tasks_that_came_with_it() -> None:
    agent = Agent(session=0)
    agent.connect()
    agent.answers_files = False
    agent.welcome(5, features=[DRAIN_REQUESTS])
    agent.create_function()
    agent.send_tasks(10, 11)
    agent.sent.clear()
    signal(agent)
    asked(agent)
    agent.receive(TOLD)
    assert agent.exit_code is None and agent.sent == []
    agent.answer_files()
    assert [list(message.ids) for message in agent.take(m.BalanceResponse)] == [[10, 11]]
    assert agent.exit_code == exit_codes.EXIT_OK


def test_a_worker_that_loses_its_scheduler_while_it_drains_ends() -> None:
    agent = agent_with_tasks(10)
    signal(agent)
    agent.lose_connection()
    assert agent.exit_code == exit_codes.EXIT_OK


# The time that there is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_answered", [True, False])
def test_what_still_runs_after_its_time_is_given_back_with_the_reason(is_answered: bool) -> None:
    agent = agent_with_tasks(10, drain_timeout_seconds=7.0)
    signal(agent)
    asked(agent)
    if is_answered:
        agent.receive(TOLD)
    agent.wait(6.9)
    assert agent.take(m.DisconnectRequest) == [] and agent.exit_code is None
    agent.wait(0.2)
    [goodbye] = agent.take(m.DisconnectRequest)
    text = "asked to stop by SIGTERM, and what it ran had not ended 7 s later (drain_timeout_seconds)"
    assert (goodbye.reason, goodbye.message) == (Reason.LEAVING, text)
    assert agent.outcomes() == {}
    agent.receive(m.DisconnectResponse())
    assert has_ended_well(agent)


def draining_with_a_result(**settings: Any) -> Agent:
    """It has a large result that was not fetched, and its second task runs."""
    agent = agent_with_tasks(10, slots=2, **settings)
    agent.send_tasks(11)
    number, chunk = agent.dealt()[0]
    signal(agent)
    agent.receive(TOLD)
    agent.finish_large(number, chunk, CHUNK)
    return agent


def test_results_are_handed_over_for_some_seconds_more() -> None:
    agent = draining_with_a_result()
    [instruction] = agent.take(m.ObjectInstruction)
    agent.wait(25.5)
    agent.sent.clear()
    agent.receive(m.ObjectRequest(id=instruction.ids[0], offset=0, length=CHUNK))
    assert [type(message) for message, _ in agent.sent] == [m.ObjectResponse, m.TaskResult, m.DisconnectRequest]


def test_results_that_are_not_fetched_do_not_keep_a_worker() -> None:
    agent = draining_with_a_result()
    agent.wait(25.0 + HAND_OVER_SECONDS - 0.1)
    agent.sent.clear()
    agent.wait(0.2)
    assert has_left_at_once(agent)


def test_an_operator_gives_a_worker_all_the_time_that_it_needs() -> None:
    agent = agent_with_tasks(10)
    [(number, chunk)] = agent.dealt()
    agent.receive(BY_OPERATOR)
    agent.wait(40.0)
    assert agent.exit_code is None
    agent.finish(number, chunk)
    assert agent.exit_code == exit_codes.EXIT_OK


def test_a_signal_limits_the_time_of_a_worker_that_drains_for_an_operator() -> None:
    agent = agent_with_tasks(10, drain_timeout_seconds=7.0)
    agent.receive(BY_OPERATOR)
    agent.wait(20.0)
    agent.sent.clear()
    signal(agent)
    assert agent.take(m.DisconnectRequest) == [] and agent.exit_code is None
    agent.wait(7.1)
    [goodbye] = agent.take(m.DisconnectRequest)
    assert goodbye.message.startswith("Client a asked for it, and what it ran had not ended 27 s later")


# Idle time ------------------------------------------------------------------------------------------------------------


def test_a_worker_without_tasks_for_long_leaves() -> None:
    agent = agent_with_tasks(10, idle_timeout_seconds=5.0)
    [(number, chunk)] = agent.dealt()
    agent.wait(20.0)
    agent.finish(number, chunk)
    agent.wait(4.9)
    assert agent.take(m.DisconnectRequest) == []
    agent.wait(0.2)
    [request] = agent.take(m.DisconnectRequest)
    assert (request.drain_cause, request.message) == (Cause.IDLE, "no tasks for 5 s (idle_timeout_seconds)")
    agent.receive(TOLD)
    assert agent.exit_code == exit_codes.EXIT_OK


def test_tasks_that_come_in_between_keep_it() -> None:
    agent = agent_with_tasks(idle_timeout_seconds=5.0)
    agent.wait(4.0)
    agent.send_tasks(10)
    [(number, chunk)] = agent.dealt()
    agent.finish(number, chunk)
    agent.wait(4.0)
    assert agent.take(m.DisconnectRequest) == []
    agent.wait(1.1)
    assert asked_cause(agent) == Cause.IDLE


def asked_cause(agent: Agent) -> int:
    [request] = agent.take(m.DisconnectRequest)
    return int(request.drain_cause)


def test_a_task_that_has_just_come_keeps_it() -> None:
    agent = agent_with_tasks(idle_timeout_seconds=5.0)
    agent.wait(4.9)
    agent.now += 0.2
    agent.core.on_message(
        m.Task(ids=[10], payload_sizes=[0], function=1 << 40 | 1, codec="cloudpickle"), b"", agent.now
    )
    agent.core.on_time(agent.now)
    agent.turn()
    assert agent.take(m.DisconnectRequest) == []
    assert len(agent.dealt()) == 1


def test_without_a_session_no_time_counts_as_idle() -> None:
    agent = Agent(session=0, idle_timeout_seconds=1.0)
    agent.wait(10.0)
    assert agent.exit_code is None


def test_it_stays_by_default() -> None:
    agent = agent_with_tasks()
    agent.wait(50.0)
    assert agent.take(m.DisconnectRequest) == []


# The end of life, and notice ------------------------------------------------------------------------------------------

KEPT = HAND_OVER_SECONDS + FAREWELL_SECONDS  # beside the time for tasks


def test_a_worker_says_how_long_tasks_may_run_and_drains_so_that_it_has_left_in_time() -> None:
    agent = Agent(session=0, end_of_life=150.0, drain_timeout_seconds=20.0)  # its clock is at 100
    agent.wait(1.0)
    agent.connect()
    [hello] = agent.take(m.Hello)
    assert hello.remaining_milliseconds == int((150.0 - KEPT - 101.0) * 1000)
    agent.welcome(5, features=[DRAIN_REQUESTS])
    agent.create_function()
    agent.send_tasks(10)
    agent.sent.clear()
    agent.wait(150.0 - KEPT - 20.0 - agent.now - 0.1)
    assert agent.take(m.DisconnectRequest) == []
    agent.wait(0.2)
    assert asked_cause(agent) == Cause.LIFETIME
    agent.receive(TOLD)
    agent.wait(20.1)
    [goodbye] = agent.take(m.DisconnectRequest)
    assert goodbye.reason == Reason.LEAVING and "its end of life is near" in goodbye.message
    agent.receive(m.DisconnectResponse())
    assert agent.exit_code == exit_codes.EXIT_OK and agent.now < 150.0 - HAND_OVER_SECONDS


def test_of_a_short_life_half_is_left_for_tasks_to_begin_in() -> None:
    agent = agent_with_tasks(end_of_life=120.0)
    agent.wait(109.9 - agent.now)
    assert agent.take(m.DisconnectRequest) == []
    agent.wait(0.2)
    assert asked_cause(agent) == Cause.LIFETIME


def test_a_worker_without_an_end_says_so() -> None:
    agent = Agent(session=0)
    agent.connect()
    [hello] = agent.take(m.Hello)
    assert hello.remaining_milliseconds == 0


def test_its_end_of_life_limits_a_worker_that_drains_for_an_operator() -> None:
    agent = agent_with_tasks(10, end_of_life=150.0, drain_timeout_seconds=20.0)
    agent.receive(BY_OPERATOR)
    agent.sent.clear()
    agent.wait(150.0 - KEPT - agent.now + 0.1)
    [goodbye] = agent.take(m.DisconnectRequest)
    assert goodbye.reason == Reason.LEAVING


def test_an_end_in_ages_is_as_far_away_as_can_be_said() -> None:
    agent = Agent(session=0, end_of_life=1e30)
    agent.connect()
    [hello] = agent.take(m.Hello)
    assert hello.remaining_milliseconds == (1 << 64) - 1


def test_notice_drains_it() -> None:
    agent = agent_with_tasks(10)
    agent.core.on_notice("the file /run/notice is there (drain_file)", agent.now)
    agent.turn()
    request = asked(agent)
    assert (request.drain_cause, request.message) == (Cause.NOTICE, "the file /run/notice is there (drain_file)")
    said = list(agent.logs)
    agent.core.on_notice("notice by SIGUSR1 (drain_signal)", agent.now)  # Slurm may repeat a signal for a minute
    agent.turn()
    assert not agent.sent and agent.logs == said
