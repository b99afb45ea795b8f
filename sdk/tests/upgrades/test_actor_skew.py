"""Actors between versions: they are made, called and seen whichever side is newer, or reports no actors."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from sdk_tasks import Counter
from upgrades.loaded_cluster import Cluster
from upgrades.loading_client import DEADLINE_SECONDS
from upgrades.version_skew import newer_build, this_build

from scaler import Client
from scaler.client.requests import info_of
from scaler_protocol import messages as m


def test_a_scheduler_that_reports_no_actors_has_none_for_the_client() -> None:
    info = info_of(m.Info(worker_count=1), "tcp://127.0.0.1:2345", 1.0)
    assert (info.actor_count, info.actors, info.actors_not_listed) == (0, (), 0)
    assert "actor" not in str(info) and "actor" not in info._repr_html_()


def test_the_state_of_an_actor_that_only_a_newer_scheduler_knows_is_shown_by_its_number() -> None:
    answer = m.Info(actor_count=1, actors=[m.ActorInfo(name="Counter", state=9)])
    assert info_of(answer, "tcp://127.0.0.1:2345", 1.0).actors[0].state == "state 9"


@pytest.mark.slow
@pytest.mark.exhaustive  # seconds, for messages whose growth other tests of versions show
@pytest.mark.parametrize("is_scheduler_newer", [True, False])
def test_actors_are_seen_when_the_scheduler_has_another_version(is_scheduler_newer: bool, tmp_path: Path) -> None:
    older, newer = this_build(), newer_build(tmp_path / "newer")
    scheduler, worker = (newer, older) if is_scheduler_newer else (older, newer)
    with ExitStack() as stack:
        cluster = Cluster(stack, tmp_path)
        cluster.start_scheduler(scheduler)
        cluster.start_worker(worker)
        with (
            Client(cluster.address, modules=["sdk_tasks"]) as client,
            client.actor(Counter, 10, name="visits") as counter,
        ):
            assert counter.add(5).result(DEADLINE_SECONDS) == 15
            (actor,) = client.info().actors
            assert (actor.name, actor.state, actor.calls_finished) == ("Counter 'visits'", "alive", 2)
