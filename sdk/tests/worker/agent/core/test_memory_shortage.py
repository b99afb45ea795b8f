"""After the system has killed processors for lack of memory, no more of such tasks run at once than fitted."""

from __future__ import annotations

from array import array

import pytest
from task_flow_bench import CANCELLED, Bench

from scaler.worker.agent.core.dead_processors import FOR_LACK_OF_MEMORY, RECOVERY_SECONDS
from scaler.worker.agent.core.effects import Log
from scaler_protocol import messages as m

OTHER = 8  # a function
KILLED = f"was ended by signal 9 (SIGKILL) {FOR_LACK_OF_MEMORY}"


def running(bench: Bench) -> int:
    return bench.flow.pool.busy


def all_run(slots: int = 4, tasks: int = 8, retries: int = 3) -> Bench:
    """As many tasks as there are slots run, one on each processor."""
    bench = Bench(slots=slots)
    bench.learn(1_000_000)
    bench.send_tasks(list(range(1, tasks + 1)), options={"retries": retries})
    assert running(bench) == slots
    return bench


def die(bench: Bench, description: str = KILLED) -> None:
    """One of the processors that run a task dies; the others go on."""
    state = next(state for state in bench.flow.pool.states() if state.chunks)
    bench.start(state.number, state.chunks[0].first_position)
    bench.die(state.number, description)


def test_what_is_left_fits_and_no_more_run_at_once() -> None:
    bench = all_run()
    die(bench)
    assert running(bench) == 3
    die(bench)
    assert running(bench) == 2


def test_one_runs_in_any_case() -> None:
    bench = all_run(slots=2)
    for _ in range(3):
        die(bench)
        assert running(bench) == 1


def test_one_more_runs_after_each_while_without_such_a_death() -> None:
    bench = all_run(slots=3)
    die(bench)
    bench.now += RECOVERY_SECONDS - 1.0
    bench.turn()
    assert running(bench) == 2
    die(bench)
    assert running(bench) == 1
    for seconds, expected in ((RECOVERY_SECONDS - 1.0, 1), (1.0, 2), (RECOVERY_SECONDS - 1.0, 2), (1.0, 3)):
        bench.now += seconds
        bench.turn()
        assert running(bench) == expected


def test_all_slots_are_used_when_there_was_nothing_to_run() -> None:
    bench = all_run(slots=3, tasks=3, retries=0)
    for _ in range(3):
        die(bench)
    assert running(bench) == 0
    bench.outcomes()
    bench.send_tasks([11, 12, 13, 14])
    assert running(bench) == 3


@pytest.mark.parametrize("description", ["was ended by signal 9 (SIGKILL)", "was ended by signal 11 (SIGSEGV)"])
def test_another_death_costs_no_slot(description: str) -> None:
    bench = all_run()
    die(bench, description)
    assert running(bench) == 4


def test_tasks_of_other_functions_use_all_slots() -> None:
    bench = all_run()
    for _ in range(3):
        die(bench)
    assert running(bench) == 1
    bench.objects.available.add(OTHER)
    bench.send_tasks([21, 22, 23, 24], function=OTHER)
    assert running(bench) == 4, "they do not wait behind those"
    assert bench.flow.queued == 8


def test_a_second_function_counts_from_when_one_of_its_tasks_was_killed() -> None:
    bench = all_run(slots=3, tasks=3)
    die(bench)
    assert running(bench) == 2
    bench.objects.available.add(OTHER)
    bench.send_tasks([21, 22], function=OTHER)
    assert running(bench) == 3
    state = [state for state in bench.flow.pool.states() if state.chunks][-1]
    assert state.chunks[0].batch.traits.function == OTHER
    bench.start(state.number, state.chunks[0].first_position)
    bench.die(state.number, KILLED)
    assert running(bench) == 2


def test_those_that_wait_can_be_cancelled_and_given_back() -> None:
    bench = all_run(slots=2, tasks=2)
    die(bench)
    bench.send_tasks([2 + each for each in range(10, 14)])
    bench.flow.on_cancel(m.TaskCancel(ids=array("Q", [12, 13])))
    bench.turn()
    assert bench.confirmed() == {12: CANCELLED, 13: CANCELLED}
    bench.flow.on_balance(m.BalanceRequest(request_id=1, count=2))
    bench.turn()
    ((response, _),) = bench.take(m.BalanceResponse)
    assert sorted(response.ids) == [14, 15], "not the one that has begun before"
    assert bench.flow.queued == 1 and running(bench) == 1


def test_one_that_its_worker_has_killed_says_nothing_of_memory() -> None:
    bench = all_run(slots=2, tasks=4)
    state = next(state for state in bench.flow.pool.states() if state.chunks)
    bench.start(state.number, state.chunks[0].first_position)
    bench.flow.pool.kill(state)
    bench.die(state.number, KILLED)
    assert running(bench) == 2


def test_a_new_session_begins_with_all_slots() -> None:
    bench = all_run(slots=2, tasks=4)
    die(bench)
    bench.flow.reset()
    for number in list(bench.killed):
        bench.die(number, KILLED)
    bench.turn()
    for state in bench.flow.pool.states():
        if state.chunks:
            bench.die(state.number, "was ended by signal 9 (SIGKILL)")
    bench.send_tasks([41, 42])
    assert running(bench) == 2


def test_a_task_that_waits_for_nested_ones_does_not_keep_them_from_the_only_slot() -> None:
    bench = all_run(slots=2, tasks=2, retries=0)
    die(bench)
    state = next(state for state in bench.flow.pool.states() if state.chunks)
    bench.flow.pool.suspend(state)
    bench.send_tasks([31], options={"priority": 1})
    assert running(bench) == 1


def test_the_log_says_how_many_slots_are_used_and_the_error_says_why() -> None:
    bench = all_run(slots=2, tasks=2, retries=0)
    state = next(state for state in bench.flow.pool.states() if state.chunks)
    bench.start(state.number, state.chunks[0].first_position)
    bench.flow.on_processor_died(state.number, KILLED, bench.now)
    logged = [each.text for each in bench.effects if isinstance(each, Log)]
    assert logged == ["Worker: memory is short, at most 1 of the tasks that were killed for it run at once"]
    bench.turn()
    ((_, (status, payload)),) = bench.outcomes().items()
    assert status == m.TaskStatus.LOST
    assert f"{KILLED} while it ran the task (attempt 1)".encode() in payload
