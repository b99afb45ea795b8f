"""The table of workers: its rows, its columns, and their order.

Rules:
- A row is a processor with its agent. `worker` begins with the processor's id; cpu, rss and ITL are the processor's
  own, and all others its agent's, which are repeated in each of its rows. A worker without processors has one row, too.
- Rows with equal sort keys keep their order, so that the table does not flicker.
- There may be a hundred thousand rows: they are sorted as plain tuples, and only visible ones become rows.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from scaler_appliance.feed.cluster_entities import ProcessorRecord, WorkerRecord
from scaler_appliance.feed.cluster_model import ClusterModel
from scaler_appliance.top import text


class Row(NamedTuple):
    """A processor, if there is one, of a worker that has `queued` tasks without a slot."""

    worker: WorkerRecord
    processor: Optional[ProcessorRecord]
    queued: int

    @property
    def process_id(self) -> int:
        return self.worker.process_id if self.processor is None else self.processor.process_id

    @property
    def name(self) -> str:
        """The name, such as 15940|host|3c9409c0, shortened to the width."""
        return f"{self.process_id}|{text.safe(self.worker.host)}|{text.safe(self.worker.name)}"


class Column(NamedTuple):
    """A column: its title, the key that sorts by it (empty: none), what it sorts by, and how it is written."""

    title: str
    key: str
    order: Callable[[WorkerRecord, Optional[ProcessorRecord], int], Any]
    write: Callable[[Row], str]
    meaning: str


def _flags(row: Row) -> str:
    if row.processor is None:
        return "-"
    return "".join(str(row.processor.state_bits >> bit & 1) for bit in range(3))


ROWS_MEANING = "columns; a row is a processor, a Python process that runs tasks in a slot of its worker"

COLUMNS: Tuple[Column, ...] = (
    Column(
        "worker",
        "n",
        lambda worker, processor, queued: (worker.host, worker.name),
        lambda row: row.name,
        "process id of the processor|host|name of its worker",
    ),
    Column(
        "agt_cpu",
        "C",
        lambda worker, processor, queued: worker.cpu_permille,
        lambda row: text.percent(row.worker.cpu_permille),
        "processor time of the worker's agent, of one core",
    ),
    Column(
        "agt_rss",
        "M",
        lambda worker, processor, queued: worker.resident_bytes,
        lambda row: text.size(row.worker.resident_bytes),
        "memory of the worker's agent",
    ),
    Column(
        "cpu",
        "c",
        lambda worker, processor, queued: -1 if processor is None else processor.cpu_permille,
        lambda row: "-" if row.processor is None else text.percent(row.processor.cpu_permille),
        "processor time of the processor, of one core",
    ),
    Column(
        "rss",
        "m",
        lambda worker, processor, queued: -1 if processor is None else processor.resident_bytes,
        lambda row: "-" if row.processor is None else text.size(row.processor.resident_bytes),
        "memory of the processor",
    ),
    Column(
        "free",
        "f",
        lambda worker, processor, queued: worker.slots - worker.busy,
        lambda row: text.count(row.worker.slots - row.worker.busy),
        "slots of the worker that have no task",
    ),
    Column(
        "sent",
        "w",
        lambda worker, processor, queued: worker.tasks,
        lambda row: text.count(row.worker.tasks),
        "tasks sent to the worker, without an outcome yet",
    ),
    Column(
        "queued",
        "d",
        lambda worker, processor, queued: queued,
        lambda row: text.count(row.queued),
        "those of them without a slot yet",
    ),
    Column(
        "lag",
        "l",
        lambda worker, processor, queued: worker.latency_microseconds,
        lambda row: text.lag(row.worker.latency_microseconds),
        "how long a message takes between scheduler and worker",
    ),
    Column(
        "ITL",
        "",
        lambda worker, processor, queued: 0,
        _flags,
        "1 or 0: processor is initialized, has a task, is locked (suspended)",
    ),
)

BY_TITLE: Dict[str, Column] = {column.title: column for column in COLUMNS}
BY_KEY: Dict[str, Column] = {column.key: column for column in COLUMNS if column.key}
SORTABLE: Tuple[str, ...] = tuple(column.title for column in BY_KEY.values())
# The names of columns in earlier generations.
OTHER_TITLES = {"working": "sent", "w": "sent", "name": "worker"}


class Rows:
    """The rows whose name contains `wanted`, sorted by the column `sort`: the largest first, but names from A to Z."""

    def __init__(self, cluster: ClusterModel, sort: str, is_reversed: bool, wanted: str) -> None:
        order = BY_TITLE[sort].order
        entries: List[Tuple[Any, WorkerRecord, Optional[ProcessorRecord], int]] = []
        for worker in cluster.workers.values():
            processors = worker.processors
            queued = worker.waiting
            for processor in processors or (None,):
                entries.append((order(worker, processor, queued), worker, processor, queued))
        if wanted:
            folded = wanted.casefold()
            entries = [entry for entry in entries if folded in Row(*entry[1:]).name.casefold()]
        entries.sort(key=itemgetter(0), reverse=is_reversed == (sort == "worker"))
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def part(self, offset: int, count: int) -> List[Row]:
        return [Row(*entry[1:]) for entry in self._entries[offset : offset + count]]
