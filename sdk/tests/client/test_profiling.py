"""Profiles: what was measured of a task comes with its outcome, where it was asked for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import List

import pytest
from sdk_tasks import identity, wait_for_file

from scaler import Client
from scaler.client import ProfileResult
from scaler.exceptions import ProcessorDiedError

TIMEOUT_SECONDS = 30.0


def use(megabytes: int, cpu_seconds: float) -> int:
    """Take memory and give it back, then compute."""
    size = len(bytearray(b"x") * (megabytes << 20))
    deadline = time.process_time() + cpu_seconds
    while time.process_time() < deadline:
        pass
    return size


def test_a_profile_has_the_names_and_units_of_both_generations(client: Client) -> None:
    future = client.submit(use, 100, 0.05, profiling=True)
    assert future.result(TIMEOUT_SECONDS) == 100 << 20
    profile = future.profiling_info()
    assert profile.duration_us >= profile.cpu_time_us * 0.5 and profile.cpu_time_us >= 50_000
    assert profile.peak_memory >= 90 << 20, "memory that was given back counts"
    assert profile.duration_s == profile.duration_us / 1e6
    assert profile.cpu_time_s == profile.cpu_time_us / 1e6
    assert profile.memory_peak == profile.peak_memory
    assert profile == ProfileResult(profile.duration_us, profile.peak_memory, profile.cpu_time_us)


def test_a_client_profiles_all_its_tasks(address: str) -> None:
    with Client(address=address, profiling=True) as client:
        futures = [client.submit(identity, number) for number in range(100)]
        assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(100))
        assert all(future.profiling_info().duration_us >= 1 for future in futures)
        unmeasured = client.submit(identity, 1, profiling=False)
        unmeasured.result(TIMEOUT_SECONDS)
        with pytest.raises(ValueError, match="no profile"):
            unmeasured.profiling_info()
        assert client.map(identity, range(10)) == list(range(10))


def test_profiled_and_other_tasks_side_by_side(client: Client) -> None:
    view = client.options(profiling=True)
    futures = [(view if number % 2 else client).submit(identity, number) for number in range(200)]
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == list(range(200))
    for number, future in enumerate(futures):
        if number % 2:
            assert future.profiling_info().duration_us >= 1
        else:
            with pytest.raises(ValueError, match=r"options\(profiling=True\)"):
                future.profiling_info()


def test_failed_tasks_and_large_results_have_profiles_too(client: Client) -> None:
    view = client.options(profiling=True)
    failed, large = view.submit(pow, 0, -1), view.submit(bytes, 1 << 20)
    assert isinstance(failed.exception(TIMEOUT_SECONDS), ZeroDivisionError)
    assert len(large.result(TIMEOUT_SECONDS)) == 1 << 20
    assert failed.profiling_info().duration_us >= 1 and large.profiling_info().duration_us >= 1


def test_there_is_no_profile_before_the_outcome_or_without_an_end(any_client: Client, done_files: List[Path]) -> None:
    view = any_client.options(profiling=True)
    future = view.submit(wait_for_file, str(done_files[1]))
    with pytest.raises(ValueError, match="is not done"):
        future.profiling_info()
    done_files[1].touch()
    future.result(TIMEOUT_SECONDS)
    assert future.profiling_info().duration_us >= 1

    def die() -> None:
        import os

        os._exit(3)

    dead = view.submit(die)
    with pytest.raises(ProcessorDiedError):
        dead.result(TIMEOUT_SECONDS)
    with pytest.raises(ValueError, match="did not run to an end"):
        dead.profiling_info()


def test_the_keyword_is_the_functions_where_it_has_one(client: Client) -> None:
    def function(profiling: object) -> object:
        return profiling

    future = client.submit(function, profiling="mine")
    assert future.result(TIMEOUT_SECONDS) == "mine"
    with pytest.raises(ValueError, match="no profile"):
        future.profiling_info()
