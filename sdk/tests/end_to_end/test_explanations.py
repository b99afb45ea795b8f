"""Why a future is not done: asked, and unasked."""

from __future__ import annotations

import logging
import queue
from pathlib import Path
from typing import List

import pytest
from sdk_tasks import logged, wait_for_file, wait_until

from scaler import Client, Cluster, Scheduler


class Records(logging.Handler):
    """The log, as a queue."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()

    def emit(self, record: logging.LogRecord) -> None:
        self.queue.put(record)


def test_a_task_that_waits_for_workers_is_explained_unasked(tmp_path: Path) -> None:
    log, records = tmp_path / "log", Records()
    logging.getLogger("scaler").addHandler(records)
    try:
        with Scheduler(logging_paths=[str(log)]) as scheduler, Client(address=scheduler.get_address()) as client:
            futures = [client.submit(abs, -number) for number in range(10)]
            text = "because no worker is connected: start some with `scaler_cluster`"
            assert client.explain(futures[9]) == f"the task waits {text}"
            record = records.queue.get(timeout=30.0)
            assert record.levelno == logging.WARNING and record.getMessage() == f"10 tasks wait {text}"
            assert logged(log).count(f"10 tasks wait {text}") == 1
            with Cluster(scheduler.get_address(), n_workers=1, logging_level="WARNING"):
                assert [future.result(30.0) for future in futures] == list(range(10))
            assert records.queue.empty()
    finally:
        logging.getLogger("scaler").removeHandler(records)


def test_explain_describes_any_future(client: Client, done_files: List[Path]) -> None:
    running, gate = done_files
    blocked = [client.submit(wait_for_file, str(gate), str(running)) for _ in range(4)]
    waiting = [client.submit(wait_for_file, str(gate)) for _ in range(100)]
    wait_until(running)
    assert "the task is at worker" in client.explain(blocked[0])
    assert "slots of 1 worker are busy" in client.explain(waiting[-1])
    waiting[-1].cancel()
    assert client.explain(waiting[-1]) == "the task was cancelled"
    gate.touch()
    blocked[0].result(30.0)
    assert client.explain(blocked[0]) == "the task has a result"
    failing = client.submit(divmod, 1, 0)
    failing.exception(30.0)
    assert "the task has failed" in client.explain(failing)
    assert "ZeroDivisionError" in client.explain(failing)


def test_explain_knows_its_own_futures_only(client: Client, address: str) -> None:
    with Client(address=address) as other:
        with pytest.raises(ValueError, match="belongs to another client"):
            client.explain(other.submit(abs, -1))
