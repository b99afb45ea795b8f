"""What autoscalers are told."""

from __future__ import annotations

from typing import Any, List

from ui.browsing import Site, told_state

from scaler_appliance.ui.metrics import NEEDS_LISTED, OTHER, Metrics
from scaler_protocol import messages as m


def demand(wanted: int, missing: int = 0, hours: int = 0, **capabilities: float) -> m.SlotDemand:
    return m.SlotDemand(
        capabilities=[m.Capability(name=name, amount=amount) for name, amount in capabilities.items()],
        time_request_milliseconds=hours * 3_600_000,
        tasks=wanted * 2,
        tasks_unmeasured=1,
        work_microseconds=wanted * 1_500_000,
        slots_wanted=wanted,
        slots_missing=missing,
    )


def site(*demands: m.SlotDemand) -> Site:
    made = Site(steps=1)
    made.feed.scheduler.demands = list(demands)
    made.feed.step()
    return made


def wanted(metrics: Metrics, label: str = "") -> Any:
    return metrics.value("scaler_slots_wanted", {"capabilities": label})


def test_the_demand_is_there_as_json() -> None:
    answer = site(demand(9, 4), demand(3, 1, gpu=2)).browser.get("/api/demand")

    assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
    body = answer.json()
    assert (body["slots_wanted"], body["slots_missing"]) == (12, 5)
    assert body["demands"][1] == {
        "capabilities": {"gpu": 2.0},
        "time_request_seconds": 0.0,
        "tasks": 6,
        "tasks_unmeasured": 1,
        "work_seconds": 4.5,
        "slots_wanted": 3,
        "slots_missing": 1,
    }


def test_an_autoscaler_asks_for_the_kind_of_worker_that_it_starts() -> None:
    browser = site(demand(9), demand(3, gpu=2), demand(2, gpu=1), demand(5, gpu=1, ssd=1)).browser

    def told(capabilities: str) -> int:
        return int(browser.get(f"/api/demand?capabilities={capabilities}").json()["slots_wanted"])

    assert [told(each) for each in ("", "gpu", "ssd,%20gpu", "fpga")] == [9, 5, 5, 0]


def test_the_demand_of_a_pool_is_there_by_its_name() -> None:
    made = site(demand(9))
    made.feed.scheduler.pools = [
        m.PoolDemand(pool="cpu", slots_wanted=12, units_wanted=3, units=2),
        m.PoolDemand(pool="big gpu"),
    ]
    made.feed.step()

    answer = made.browser.get("/api/demand?pool=cpu")
    cpu = {"pool": "cpu", "slots_wanted": 12, "units_wanted": 3, "units": 2}
    assert (answer.status, answer.json()) == (200, {"schema": answer.json()["schema"], **cpu})
    assert made.browser.get("/api/demand?pool=big+gpu").json()["slots_wanted"] == 0
    unknown = made.browser.get("/api/demand?pool=tpu")
    assert unknown.status == 404 and "no provisioner has a pool of this name" in unknown.json()["error"]
    assert made.browser.get("/api/demand").json()["pools"][0] == cpu

    metrics = Metrics(made.state)
    told = {name: metrics.value(f"scaler_pool_{name}", {"pool": "cpu"}) for name in cpu if name != "pool"}
    assert told == {"slots_wanted": 12, "units_wanted": 3, "units": 2}
    assert wanted(metrics) == 9, "the sums of what tasks need are what they were"


def test_a_silent_scheduler_has_no_demand() -> None:
    made = site(demand(9))
    made.feed.age = 30.0

    answer = made.browser.get("/api/demand")

    assert answer.status == 503 and "silent" in answer.json()["error"]
    assert made.browser.get("/api/demand?pool=cpu").status == 503
    assert wanted(Metrics(made.state)) is None


def test_prometheus_gets_the_demand_by_what_tasks_need() -> None:
    metrics = Metrics(site(demand(9, 4), demand(3, gpu=2), demand(2, 1, hours=1, gpu=2)).state)

    assert wanted(metrics) == 9 and wanted(metrics, "gpu=2") == 5
    assert metrics.value("scaler_slots_missing", {"capabilities": "gpu=2"}) == 1


def test_a_demand_that_has_ended_is_0_and_there_is_always_one() -> None:
    state, feed = told_state(steps=1)
    metrics = Metrics(state)
    assert wanted(metrics) == 0 and wanted(metrics, "gpu=1") is None
    feed.scheduler.demands = [demand(3, gpu=1)]
    feed.step()
    assert wanted(metrics, "gpu=1") == 3

    feed.scheduler.demands = []
    feed.step()

    assert wanted(metrics, "gpu=1") == 0


def test_the_series_are_few_whatever_tasks_need() -> None:
    demands: List[m.SlotDemand] = [demand(1, **{f"c{number}": 1}) for number in range(NEEDS_LISTED + 20)]
    metrics = Metrics(site(*demands).state)

    assert wanted(metrics, "c0=1") == 1
    assert wanted(metrics, OTHER) == 21
