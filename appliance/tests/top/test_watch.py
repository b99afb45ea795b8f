"""A user's view: pausing, scrolling, and updates."""

from __future__ import annotations

from typing import List

from top.sample import cluster, functions, status, workers

from scaler_appliance.feed.cluster_model import ClusterModel
from scaler_appliance.top.frame import Size
from scaler_appliance.top.lines import plain
from scaler_appliance.top.view import View
from scaler_appliance.top.watch import Viewer

SIZE = Size(120, 30)


class Heard:
    address = "ipc:///tmp/monitor"

    def __init__(self, known: ClusterModel) -> None:
        self.cluster = known
        self.age = 0.0

    def age_seconds(self) -> float:
        return self.age

    def silence_reason(self) -> str:
        return ""

    def is_connected(self) -> bool:
        return self.age < 3


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def seen(watch: Viewer) -> List[str]:
    return plain(watch.frame(SIZE).lines)


def test_a_pause_keeps_figures_as_they_were_and_goes_on_with_the_newest() -> None:
    heard, clock = Heard(cluster(status(1, **functions("prepare")))), Clock()
    watch = Viewer(heard, View(), clock)
    before = seen(watch)

    watch.press(" ")
    heard.cluster.apply(status(2, **functions("prepare", finished=900), of_workers={"tasks": [77, 78, 79]}))
    clock.now += 8
    paused = seen(watch)
    assert [line for line in paused if line not in before] == ["paused for 8 s; press space to continue"]
    watch.press("m")
    assert "[rss]" in "\n".join(seen(watch))
    assert not any(" 77 " in line for line in seen(watch))

    watch.press(" ")
    assert any(" 77 " in line for line in seen(watch))


def test_news_are_shown_and_rows_put_in_order_again() -> None:
    heard = Heard(cluster(status(1)))
    watch = Viewer(heard, View(sort="sent"))
    seen(watch)
    heard.cluster.apply(status(2, of_workers={"tasks": [1, 5, 9]}))
    assert [line.split("|")[2][:3] for line in seen(watch) if line.startswith("2732")] == ["108", "56b", "d26"]


def test_help_and_back_keeps_the_place() -> None:
    watch = Viewer(Heard(cluster(status(**workers([f"w{number}" for number in range(60)])))), View())
    small = Size(80, 14)
    watch.frame(small)
    for key in ("KEY_DOWN", "?"):
        watch.press(key)
        watch.frame(small)
    watch.press("x")
    assert watch.view.offset == 1


def test_a_scheduler_that_falls_silent_is_told_from_one_that_speaks() -> None:
    heard = Heard(cluster())
    watch = Viewer(heard, View())
    heard.age = 12.0
    assert "waiting for ipc:///tmp/monitor, silent for 12 s: the figures are old" in seen(watch)
    heard.age = 0.0
    assert not any("waiting" in line for line in seen(watch))
