"""Several clients at one cluster."""

from __future__ import annotations

import time
from concurrent.futures import wait

from scaler import Client

MANY = 20_000


def test_few_tasks_do_not_wait_for_another_clients_many(address: str) -> None:
    with Client(address=address) as rich, Client(address=address) as poor:
        many = [rich.submit(time.sleep, 0.005) for _ in range(MANY)]  # half of them take a dozen seconds
        wait(many[:200])  # by then every slot works, and has work ahead
        few = [poor.submit(lambda: time.sleep(0.005)) for _ in range(10)]
        wait(few)
        assert sum(future.done() for future in many) < MANY // 2
        rich.clear()
