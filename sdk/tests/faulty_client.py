"""`faulty_client.py ADDRESS WHERE`: a program whose client's core breaks an invariant of its own.

WHERE is `commands`, `results` or `effects`: what the core, or its shell, is doing when it fails. Whatever that is, each
future ends, and each call returns or raises.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, List

from scaler import Client
from scaler.client.core.client_core import ClientCore
from scaler.client.core.pending_futures import PendingFutures
from scaler.client.shell.settling import Settling
from scaler.exceptions import ClientFailedError

TASKS = 300
DEADLINE_SECONDS = 30


def plant(where: str, is_armed: threading.Event) -> None:
    """Let the core fail once it is armed, and has several results."""
    apply, on_task_result, results = ClientCore.apply, PendingFutures.on_task_result, Settling.results
    seen = 0

    def count_results(self: PendingFutures, message: Any, payload: bytes) -> None:
        nonlocal seen
        on_task_result(self, message, payload)
        seen += 1
        if where == "results" and seen > 1 and is_armed.is_set():
            raise AssertionError("a planted fault")  # these futures are unknown to the core already

    def fail_at_commands(self: ClientCore, commands: Any) -> None:
        if where == "commands" and seen and is_armed.is_set():
            raise AssertionError("a planted fault")
        apply(self, commands)

    def fail_at_effects(self: Settling, futures: Any, payload: bytes, sizes: Any) -> None:
        if where == "effects" and seen > 1 and is_armed.is_set():
            raise AssertionError("a planted fault")
        results(self, futures, payload, sizes)

    PendingFutures.on_task_result = count_results  # type: ignore[method-assign]  # the fault
    ClientCore.apply = fail_at_commands  # type: ignore[method-assign]  # the fault
    Settling.results = fail_at_effects  # type: ignore[method-assign]  # the fault


def main(address: str, where: str) -> None:
    is_armed = threading.Event()
    plant(where, is_armed)
    client = Client(address)
    futures = [client.submit(abs, -each) for each in range(TASKS)]
    is_armed.set()
    numbers: List[Any] = []
    asking = threading.Thread(target=lambda: numbers.append(futures[0].task_id))
    asking.start()
    while client._shell.closed_because is None:
        try:
            futures.append(client.submit(abs, -1))
        except ClientFailedError:
            break
    asking.join(DEADLINE_SECONDS)
    ended = [each.exception(DEADLINE_SECONDS) for each in futures]
    errors = [error for error in ended if error is not None]
    print("results", all(each.result() == index for index, each in enumerate(futures[:TASKS]) if not ended[index]))
    print("errors", len(errors) > 0 and {type(error) for error in errors} == {ClientFailedError})
    print("waits", not asking.is_alive())
    for call in (lambda: client.submit(abs, 1), client.clear, client.info):
        try:
            call()
        except ClientFailedError:
            continue
        print("another call does not fail")
    client.disconnect()
    print(errors[0])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
