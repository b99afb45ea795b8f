"""What telling monitors costs the scheduler, without sockets: its core, its codec and thousands of peers.

    python benchmarks/status_core.py --workers 5000 --rate 50000

    two clusters, one of them watched, by turns a hundredth of a virtual second each

Rules:
- Measured is what the scheduler does but for its sockets: decode, decide, encode; and, once a virtual second, publish.
  So the share of publishing is more here than in a whole scheduler. What the peers do is not measured.
- Everything changes all the time: each worker gets about ten tasks per second, and reports a processor
  every two.
- The clusters take turns every few milliseconds, and change parts every few virtual seconds, so that what else the
  machine does hits both alike. The seconds after a monitor has subscribed or unsubscribed are not measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from array import array
from typing import Any, NamedTuple

from status_cost_peers import busy_heartbeat
from zero_worker_peers import hello

from scaler_appliance.core.effects import Send
from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_protocol import decode, encode
from scaler_protocol import messages as m
from scaler_protocol.wire.codec import encode_in_parts

STEPS = 100  # of a virtual second
HEARTBEAT_SECONDS = 2
TURN_SECONDS = 4
WARM_UP_TURNS = 2
BUSY_MICROSECONDS_PER_TASK = 100  # so that the scheduler sends some ten in a message
CODEC = "cloudpickle"
Frames = tuple[bytes, bytes, bytes]  # peer, header, payload


def main() -> None:
    """Program entry."""
    parser = argparse.ArgumentParser(
        description="Measure what telling monitors costs the scheduler, without its sockets.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--workers", type=int, default=5000)
    parser.add_argument("--rate", type=int, default=50_000, help="tasks a virtual second")
    parser.add_argument("--turns", type=int, default=6, help="in which each cluster is watched, or is not")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    options = parser.parse_args()
    figures = measure(options.workers, options.rate, options.turns)
    if options.json:
        print(json.dumps(figures, indent=1))
        return
    print(
        f"{platform.python_implementation()}, {options.workers} workers, {options.rate} tasks/s, without sockets:"
        f" {figures['quiet_milliseconds']:.0f} ms CPU a second; watched {figures['watched_milliseconds']:.0f} ms, of"
        f" which publishing {figures['publishing_milliseconds']:.1f} ms ({figures['publishing_percent']:.2f} %),"
        f" all in all {figures['more_percent']:+.2f} %; {figures['published_bytes'] / 1000:.0f} KB/s published;"
        f" a snapshot {figures['snapshot_milliseconds']:.1f} ms, {figures['snapshot_bytes'] / 1000:.0f} KB"
    )


def measure(workers: int, rate: int, turns: int) -> dict[str, float]:
    """Two clusters side by side, one of them watched; returns means of a second."""
    clusters = Cluster(workers, rate), Cluster(workers, rate)
    quiet, watched, publishing, sizes, snapshots, ratios = [], [], [], [], [], []
    snapshot_bytes = 0
    for turn in range(turns + WARM_UP_TURNS):
        away, on = clusters[turn % 2], clusters[1 - turn % 2]
        away.unsubscribe()
        begin = time.thread_time()
        snapshot_bytes = on.subscribe()
        snapshots.append(time.thread_time() - begin)
        for _ in range(HEARTBEAT_SECONDS):
            side_by_side(away, on)
        seconds = [side_by_side(away, on) for _ in range(TURN_SECONDS)]
        quiet.append(statistics.mean(each.spent for each, _ in seconds))
        watched.append(statistics.mean(each.spent for _, each in seconds))
        publishing.append(statistics.mean(each.publishing for _, each in seconds))
        sizes.append(statistics.mean(each.published_bytes for _, each in seconds))
        ratios.append(watched[-1] / quiet[-1])
    shares = [part / whole for part, whole in zip(publishing, watched)]
    kept = slice(WARM_UP_TURNS, None)
    return {
        "quiet_milliseconds": 1000 * statistics.median(quiet[kept]),
        "watched_milliseconds": 1000 * statistics.median(watched[kept]),
        "publishing_milliseconds": 1000 * statistics.median(publishing[kept]),
        "publishing_percent": 100 * statistics.median(shares[kept]),
        "more_percent": 100 * (statistics.median(ratios[kept]) - 1),
        "published_bytes": statistics.median(sizes[kept]),
        "snapshot_milliseconds": 1000 * statistics.median(snapshots[kept]),
        "snapshot_bytes": snapshot_bytes,
    }


def side_by_side(away: Cluster, on: Cluster) -> tuple[Second, Second]:
    """A virtual second of both, step by step."""
    spent = [0.0, 0.0]
    for _ in range(STEPS):
        for place, cluster in enumerate((away, on)):
            spent[place] += cluster.step()
    publishing, size = on.publish()
    return Second(spent[0], 0.0, 0), Second(spent[1] + publishing, publishing, size)


class Second(NamedTuple):
    """What a virtual second took: CPU seconds of the scheduler's part, of these for publishing, and bytes published."""

    spent: float
    publishing: float
    published_bytes: int


class WorkerPeer:
    """Answers each batch at once."""

    def __init__(self, number: int) -> None:
        self.peer = b"worker %d" % number
        self.process_id = number + 1
        self.is_watched = False
        self.beats = 0

    def heartbeat(self) -> Frames:
        self.beats += 1
        return self.peer, encode(busy_heartbeat(self.process_id, self.beats)), b""

    def answer(self, task: m.Task) -> Frames:
        count = len(task.ids)
        busy = count * BUSY_MICROSECONDS_PER_TASK
        result = m.TaskResult(ids=task.ids, payload_sizes=array("I", [4]) * count, codec=CODEC, busy_microseconds=busy)
        if self.is_watched:
            result.runs = array("Q", [count, self.process_id, busy])
        return self.peer, encode(result), b"done" * count


class Cluster:
    """A scheduler's core, and peers of it, in virtual time."""

    def __init__(self, workers: int, rate: int) -> None:
        self.core = SchedulerCore(Settings())
        self.now = 0.0
        self._rate = rate
        self._last_id = 0
        self._workers = [WorkerPeer(number) for number in range(workers)]
        self._by_peer = {worker.peer: worker for worker in self._workers}
        self._next_beat = 0
        self._arriving: list[Frames] = []
        greetings = [(worker.peer, encode(hello(m.Role.WORKER, "worker")), b"") for worker in self._workers]
        self._serve([*greetings, (b"client", encode(hello(m.Role.CLIENT, "client")), b"")])
        self._function = self.core.state.sessions[b"client"].number << 40 | 1
        instruction = m.ObjectInstruction(
            ids=[self._function],
            sizes=[1],
            storages=bytes([m.ObjectStorage.INLINE]),
            kinds=bytes([m.ObjectKind.FUNCTION]),
            names=["no_op"],
            codec=CODEC,
        )
        self._serve([(b"client", encode(instruction), b"f")])

    def subscribe(self) -> int:
        """A monitor subscribes; returns the size of the snapshot."""
        self.core.watch(True, True)
        return len(self._publication(is_snapshot=True))

    def unsubscribe(self) -> None:
        """The monitor unsubscribes."""
        self.core.watch(False, False)

    def step(self) -> float:
        """Let a hundredth of a virtual second pass; returns the scheduler's CPU seconds."""
        self.now += 1 / STEPS
        burst, self._arriving = self._arriving, []
        for _ in range(len(self._workers) // HEARTBEAT_SECONDS // STEPS):
            burst.append(self._workers[self._next_beat].heartbeat())
            self._next_beat = (self._next_beat + 1) % len(self._workers)
        burst.append(self._tasks(self._rate // STEPS))
        return self._serve(burst)

    def publish(self) -> tuple[float, int]:
        """CPU seconds, and bytes."""
        begin = time.thread_time()
        size = len(self._publication(is_snapshot=False))
        size += len(encode(self.core.state.runs.take(self.now, bytes(16), 0)))
        return time.thread_time() - begin, size

    def _publication(self, is_snapshot: bool) -> bytes:
        """All parts of the next one."""
        while True:
            status = self.core.take_status(self.now, is_snapshot)
            if status is not None:
                return next(frame for frame in encode_in_parts(status) if frame is not None)

    def _tasks(self, count: int) -> Frames:
        ids = array("Q", range(self._last_id + 1, self._last_id + 1 + count))
        self._last_id += count
        sizes = array("I", [8]) * count
        return b"client", encode(m.Task(ids=ids, payload_sizes=sizes, function=self._function)), bytes(8 * count)

    def _serve(self, burst: list[Frames]) -> float:
        """The scheduler's part, measured; then what the peers answer."""
        core, now = self.core, self.now
        begin = time.thread_time()
        for peer, header, payload in burst:
            core.on_message(now, peer, decode(header), payload)
        core.tick(now)
        sent = [
            (effect.peer, encode(effect.message), b"".join(effect.payload))
            for effect in core.take_effects()
            if isinstance(effect, Send)
        ]
        spent = time.thread_time() - begin
        for peer, header, _ in sent:
            worker = self._by_peer.get(peer)
            message: Any = decode(header) if worker is not None else None
            if worker is not None and isinstance(message, m.Task):
                self._arriving.append(worker.answer(message))
            elif worker is not None and isinstance(message, m.HeartbeatEcho):
                worker.is_watched = message.is_watched
            elif worker is not None and isinstance(message, m.BalanceRequest):
                response = m.BalanceResponse(request_id=message.request_id)
                self._arriving.append((peer, encode(response), b""))
        return spent


if __name__ == "__main__":
    main()
