"""The simulation of several schedulers."""

from __future__ import annotations

import pytest
from several_schedulers import CHOICES, SLOTS_PER_WORKER, Job, Outcome, Simulation, make_jobs

AT_RANDOM, LEAST_WAITING, MOVING = CHOICES


def run(jobs: list[Job], schedulers: int = 1, workers: int = 2, cost_seconds: float = 0.0, choice: str = "") -> Outcome:
    return Simulation(jobs, schedulers, workers, cost_seconds, choice or AT_RANDOM).run()


def tasks(count: int, seconds: float = 1.0, at: float = 0.0) -> Job:
    return Job(at, (seconds,) * count)


def test_a_job_alone_at_a_scheduler_without_cost_is_as_fast_as_it_can_be() -> None:
    assert run([tasks(2 * SLOTS_PER_WORKER)]).slowdowns == [1.0]
    assert run([tasks(6 * SLOTS_PER_WORKER)]).slowdowns == [1.0]


def test_jobs_take_turns() -> None:
    long, short = run([tasks(100 * SLOTS_PER_WORKER), tasks(2 * SLOTS_PER_WORKER)]).slowdowns
    assert short == 3.0, "after the first second half of the slots are its own, though the other one came first"
    assert long < 1.1


def test_a_scheduler_hands_out_one_task_after_the_other() -> None:
    cost_seconds = 0.001
    one = run([tasks(5000, 0.001)], workers=8, cost_seconds=cost_seconds)
    assert one.tasks_per_second == pytest.approx(1 / cost_seconds, rel=0.01)
    jobs = [tasks(5000, 0.001), tasks(5000, 0.001)]
    two = run(jobs, schedulers=2, workers=8, cost_seconds=cost_seconds, choice=LEAST_WAITING)
    assert two.tasks_per_second == pytest.approx(2 / cost_seconds, rel=0.01)


def test_a_job_has_the_slots_of_its_scheduler_only() -> None:
    (slowdown,) = run([tasks(8 * SLOTS_PER_WORKER)], schedulers=2).slowdowns
    assert slowdown == 2.0


def test_workers_move_to_where_work_waits() -> None:
    job = tasks(100 * SLOTS_PER_WORKER)
    (staying,) = run([job], schedulers=2, workers=4).slowdowns
    (moving,) = run([job], schedulers=2, workers=4, choice=MOVING).slowdowns
    assert moving < staying
    assert moving > 1.0, "it takes them time, and one stays"


def test_jobs_keep_the_slots_as_busy_as_was_asked_for() -> None:
    slots, utilisation, task_seconds = 64, 0.5, 0.1
    jobs = make_jobs(3000, slots, utilisation, task_seconds)
    work_seconds = sum(sum(job.seconds) for job in jobs)
    assert work_seconds / (slots * jobs[-1].at) == pytest.approx(utilisation, rel=0.15)
