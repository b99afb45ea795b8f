"""What is wanted of the pools that provisioners have named."""

from __future__ import annotations

from typing import Dict, List, Tuple

from core.demand.test_provisioning import GPU, provisioner, unit_worker
from scheduler_harness import Client, Harness, options

from scaler_protocol import messages as m

CPU_POOL = m.UnitPool(pool="cpu", slots=4, maximum_units=2)
GPU_POOL = m.UnitPool(pool="gpu", slots=8, maximum_units=3, capabilities=[m.Capability(name="gpu", amount=2.0)])
NIGHT_POOL = m.UnitPool(pool="night", slots=1, maximum_units=9, lifetime_milliseconds=60_000)


def with_pools(harness: Harness, *pools: m.UnitPool, tenant: str = "") -> Client:
    client = provisioner(harness, tenant)
    client.send(m.Units(pools=list(pools), sequence=1))
    return client


def wanted(harness: Harness, tenant: str = "*") -> Dict[str, Tuple[int, int]]:
    """Slots and units by pool, as published."""
    return {each.pool: (each.slots_wanted, each.units_wanted) for each in published(harness, tenant)}


def published(harness: Harness, tenant: str = "*") -> List[m.PoolDemand]:
    harness.wait(1.0)
    pools: List[m.PoolDemand] = harness.core.status.snapshot(tenant).pools
    return pools


def submit(harness: Harness, count: int, tenant: str = "a", hours: float = 0.0, **capabilities: float) -> None:
    """So many tasks of a new function, each of which may take long."""
    needs = options(time_request_milliseconds=int(hours * 3_600_000), **capabilities)
    client = harness.client(tenant)
    client.submit(range(count), function=client.create(count + 1, b"code"), function_name="work", options=needs)


def test_pools_are_used_in_order_and_each_up_to_its_maximum() -> None:
    harness = Harness(demand_target_seconds=10.0)
    with_pools(harness, CPU_POOL, GPU_POOL)
    assert wanted(harness) == {"cpu": (0, 0), "gpu": (0, 0)}

    submit(harness, 11, hours=1)  # at 16 slots, and no more than there are tasks

    assert wanted(harness) == {"cpu": (8, 2), "gpu": (3, 1)}


def test_a_unit_has_as_many_slots_as_its_capabilities_serve_and_the_others_are_for_other_tasks() -> None:
    harness = Harness(demand_target_seconds=10.0)
    with_pools(harness, GPU_POOL, CPU_POOL)

    submit(harness, 3, hours=1, gpu=1)
    assert wanted(harness) == {"gpu": (3, 2), "cpu": (0, 0)}
    submit(harness, 15, hours=1)

    assert wanted(harness) == {"gpu": (18, 3), "cpu": (0, 0)}


def test_tasks_that_no_unit_of_a_pool_can_run_want_nothing_of_it() -> None:
    harness = Harness(demand_target_seconds=10.0)
    with_pools(harness, NIGHT_POOL, CPU_POOL)

    submit(harness, 2, hours=1)
    submit(harness, 2, hours=1, fpga=1)

    assert wanted(harness) == {"night": (0, 0), "cpu": (2, 1)}


def test_workers_that_are_no_units_are_not_for_a_pool_to_provide_and_units_are() -> None:
    harness = Harness(demand_target_seconds=1.0)
    client = with_pools(harness, CPU_POOL)
    harness.worker(slots=2, tenant="a")
    submit(harness, 5, hours=1)
    assert wanted(harness) == {"cpu": (3, 1)}

    client.send(m.Units(units=[m.Unit(unit="job 1", pool="cpu", slots=4)], pools=[CPU_POOL], sequence=2))
    unit_worker(harness, "job 1", slots=4, tenant="*")

    (pool,) = published(harness)
    assert (pool.slots_wanted, pool.units_wanted, pool.units) == (3, 1, 1)


def test_pools_end_with_their_provisioner_and_those_of_one_name_count_together() -> None:
    harness = Harness(demand_target_seconds=10.0)
    first = with_pools(harness, CPU_POOL)
    second = provisioner(harness, process_id=8)
    second.send(m.Units(pools=[CPU_POOL], sequence=1))
    submit(harness, 10, hours=1)
    assert wanted(harness) == {"cpu": (10, 3)}

    first.vanish()
    assert wanted(harness) == {"cpu": (8, 2)}
    second.vanish()
    harness.core.watch(True, False)
    assert wanted(harness) == {}


def test_a_tenant_sees_the_pools_of_its_own_provisioners() -> None:
    harness = Harness(demand_target_seconds=10.0)
    with_pools(harness, CPU_POOL)
    with_pools(harness, GPU_POOL, tenant="a")
    submit(harness, 3, tenant="a", hours=1)

    assert wanted(harness, "b") == {}
    assert wanted(harness, "a") == {"gpu": (3, 1)}
    assert wanted(harness).keys() == {"cpu", "gpu"}


def test_pools_without_slots_and_many_pools_do_no_harm() -> None:
    harness = Harness(demand_target_seconds=10.0)
    largest = (1 << 32) - 1
    odd = m.UnitPool(pool="odd", maximum_units=largest)
    large = m.UnitPool(pool="large", slots=largest, maximum_units=largest, capabilities=GPU)
    with_pools(harness, odd, large, *(m.UnitPool(pool=f"p{number}") for number in range(1000)))
    submit(harness, 2, hours=1)

    found = wanted(harness)

    assert (found["odd"], found["large"]) == ((0, 0), (2, 1))
    assert len(found) == 256
