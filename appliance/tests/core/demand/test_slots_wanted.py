"""The arithmetic of demand: probes for tasks of which nothing is known."""

from __future__ import annotations

from typing import List, Tuple

import pytest

from scaler_appliance.core.demand.slots_wanted import LARGEST_PROBE, NeedsKey, Probes, TaskLoad, wanted

TARGET_SECONDS = 10.0
KEY = NeedsKey("", ())


def load_of(unmeasured: int, occupied: int = 0, unserved: int = 0) -> TaskLoad:
    load = TaskLoad()
    load.add(unmeasured - unserved, 0.0, occupied)
    load.add(unserved, 0.0, is_served=False)
    return load


def probes_of(looks: List[Tuple[float, TaskLoad]], key: NeedsKey = KEY) -> List[int]:
    """The probe at each of these looks; 0: there is none."""
    probes = Probes()
    return [probes.look(now, {key: load}, TARGET_SECONDS).get(key, 0) for now, load in looks]


def test_a_probe_grows_only_after_a_look_at_which_none_of_its_tasks_ran() -> None:
    waiting, running = load_of(5), load_of(5, occupied=1)

    assert probes_of([(0.0, waiting), (0.5, waiting), (1.0, waiting), (2.0, waiting)]) == [1, 1, 16, 16]
    assert probes_of([(0.0, waiting), (0.5, running), (1.0, waiting), (1.5, waiting)]) == [1, 1, 1, 16]
    assert probes_of([(float(now), running) for now in range(9)]) == [1] * 9


def test_a_probe_is_one_slot_again_after_its_tasks_were_known() -> None:
    waiting = load_of(5)

    assert probes_of([(0.0, waiting), (1.0, waiting), (2.0, TaskLoad()), (3.0, waiting)]) == [1, 16, 0, 1]


def test_tasks_that_may_take_as_long_as_the_target_are_not_waited_for() -> None:
    assert probes_of([(0.0, load_of(5))], NeedsKey("", (), 8.0)) == [1]
    assert probes_of([(0.0, load_of(5))], NeedsKey("", (), 16.0)) == [16]


@pytest.mark.parametrize(
    "load, probe, slots",
    [
        (load_of(100), 1, 1),
        (load_of(100), LARGEST_PROBE, LARGEST_PROBE),
        (load_of(7), LARGEST_PROBE, 7),
        (load_of(100, occupied=40), LARGEST_PROBE, 40),
        (load_of(100, unserved=100), LARGEST_PROBE, 1),
        (load_of(100, unserved=95), LARGEST_PROBE, 5),
        (TaskLoad(), LARGEST_PROBE, 0),
    ],
)
def test_unknown_tasks_want_what_they_are_in_or_the_probe(load: TaskLoad, probe: int, slots: int) -> None:
    assert wanted(load, TARGET_SECONDS, probe) == slots
