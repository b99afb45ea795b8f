"""After the system has killed processors for lack of memory, no more tasks run at once than fitted."""

from __future__ import annotations

import pytest
from task_flow_bench import FUNCTION, Bench

from scaler.worker.agent.core.dead_processors import FOR_LACK_OF_MEMORY
from scaler.worker.agent.core.effects import Log
from scaler.worker.agent.core.processor_pool import RECOVERY_SECONDS
from scaler_protocol import messages as m

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


def test_calls_of_actors_count() -> None:
    bench = all_run(slots=2, tasks=2)
    die(bench)
    bench.send_tasks([21], options={"actor": True}, function=FUNCTION)
    assert running(bench) == 1


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
    assert logged == ["Worker: memory is short, 1 of 2 slots are used"]
    bench.turn()
    ((_, (status, payload)),) = bench.outcomes().items()
    assert status == m.TaskStatus.LOST
    assert f"{KILLED} while it ran the task (attempt 1)".encode() in payload
