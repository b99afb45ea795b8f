"""A client program of a soak: it submits work until it is told to rest, and reports what is wrong.

`python -m soak.load_client ADDRESS SEED MOST_A_SECOND LEDGER KIND`; KIND is `mixed` or `hoarding`. Standard input has
commands, one a line, `work` and `rest`; its end is the program's end. Reports are lines of JSON on standard output:

    {"counts": {kind: {outcome: count}}, "unfinished": ..., "oldest_seconds": ...}     once a second
    {"excused": text, "kind": ..., "began": ..., "ended": ...}                         an error that a fault may explain
    {"wrong": text, ...}                                                               an outcome that nothing explains
    {"resting": {kind: seconds it waited since it was told}, "unfinished": 0}          all work has ended
    {"left": true}                                                                     disconnected

Rule: times are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import collections
import gc
import json
import logging
import os
import random
import select
import sys
import threading
import time
from concurrent.futures import CancelledError
from typing import Counter, Dict, List, NamedTuple, Set

from soak.work_kinds import HOARDING, MIXED, Work, WorkSource

from scaler import Client
from scaler.exceptions import SchedulerUnreachableError

MOST_IN_FLIGHT = 200
MOST_HOARDED = 400
TURN_SECONDS = 0.02
MOST_IN_A_BURST = 30
CLIENT_TIMEOUT_SECONDS = 120.0
CONNECT_SECONDS = 60.0
TEXT_LENGTH = 400


class Pending(NamedTuple):
    work: Work
    began: float


class LoadClient:
    def __init__(self, address: str, seed: int, most_a_second: float, ledger: str, kind: str) -> None:
        self._client = _connect(address)
        self._random = random.Random(seed)
        self._is_hoarding = kind == "hoarding"
        self._source = WorkSource(self._client, self._random, ledger, HOARDING if self._is_hoarding else MIXED)
        self._pending: List[Pending] = []
        self._counts: Dict[str, Counter[str]] = collections.defaultdict(collections.Counter)
        self._longest: Dict[str, float] = {}  # seconds from submit to outcome, by kind
        self._rest_waits: Dict[str, float] = {}
        self._is_working = False  # until it is told to
        self._resting_since = 0.0
        self._has_rested = False
        self._is_collecting = True
        self._lock = threading.Lock()
        self._done_once: Set[int] = set()  # positions of futures whose callbacks were called
        self._submitted = 0
        self._ran: List[int] = []
        self._reported_at = 0.0
        self._most_a_second = most_a_second
        self._allowance, self._allowed_at = 0.0, time.monotonic()

    def run(self) -> None:
        commands = b""
        while True:
            if select.select([0], [], [], TURN_SECONDS)[0]:
                data = os.read(0, 4096)
                if not data:
                    break
                *words, commands = (commands + data).split(b"\n")
                for word in words:
                    self._obey(word)
            self._turn(time.monotonic())
        self._client.disconnect()
        _report(left=True)

    def _obey(self, word: bytes) -> None:
        self._is_working = word == b"work"
        self._resting_since = 0.0 if self._is_working else time.monotonic()
        self._has_rested = False
        self._rest_waits = {}

    def _turn(self, now: float) -> None:
        if self._is_working:
            self._submit()
        if not self._is_hoarding or self._resting_since or self._is_collecting:
            self._judge_done()
        if self._resting_since and not self._has_rested and not self._pending and not self._callbacks_missing():
            self._rest()
        if now - self._reported_at > 1.0:
            self._reported_at = now
            self._report(now)

    def _submit(self) -> None:
        """A hoarding client takes nothing until it has much, then everything."""
        limit = MOST_HOARDED if self._is_hoarding else MOST_IN_FLIGHT
        self._is_collecting = len(self._pending) >= limit or (self._is_collecting and bool(self._pending))
        now = time.monotonic()
        earned = (now - self._allowed_at) * self._most_a_second
        self._allowance, self._allowed_at = min(MOST_IN_A_BURST, self._allowance + earned), now
        while len(self._pending) < limit and self._allowance >= 1 and not (self._is_hoarding and self._is_collecting):
            self._allowance -= 1
            began = time.monotonic()
            try:
                works = self._source.submit()
            except Exception as error:
                is_excusable = type(error).__name__ == "ObjectStorageFullError"
                self._note_error("submit", error, began, is_excusable)
                return
            for work in works:
                position = self._submitted
                self._submitted += 1
                self._pending.append(Pending(work, began))
                work.future.add_done_callback(lambda _, position=position: self._note_done(position))

    def _note_done(self, position: int) -> None:
        with self._lock:
            if position in self._done_once:
                _report(wrong=f"the callback of future {position} was called twice", kind="callback", began=0, ended=0)
            self._done_once.add(position)

    def _callbacks_missing(self) -> int:
        """Futures of which no callback has been called: callbacks follow the results."""
        with self._lock:
            return self._submitted - len(self._done_once)

    def _judge_done(self) -> None:
        now = time.monotonic()
        left = []
        for pending in self._pending:
            if pending.work.future.done():
                self._judge(pending, now)
            else:
                left.append(pending)
        self._pending = left

    def _judge(self, pending: Pending, now: float) -> None:
        work = pending.work
        outcome: object
        try:
            outcome = work.future.result()
            name = "result"
        except CancelledError as error:
            outcome, name = error, "CancelledError"
        except BaseException as error:
            outcome, name = error, type(error).__name__
        self._longest[work.kind] = max(self._longest.get(work.kind, 0.0), now - pending.began)
        if self._resting_since:
            waited = now - max(self._resting_since, pending.began)
            self._rest_waits[work.kind] = max(self._rest_waits.get(work.kind, 0.0), waited)
        if work.right(outcome):
            self._counts[work.kind][name] += 1
            if work.number >= 0:
                self._ran.append(work.number)
        elif isinstance(outcome, BaseException):
            self._note_error(work.kind, outcome, pending.began, name in work.excusable)
        else:
            self._counts[work.kind]["wrong"] += 1
            _report(wrong=f"result {outcome!r:.200}", kind=work.kind, began=pending.began, ended=now)

    def _note_error(self, kind: str, error: BaseException, began: float, is_excusable: bool) -> None:
        text = f"{type(error).__name__}: {error}"[:TEXT_LENGTH]
        self._counts[kind][type(error).__name__] += 1
        _report(**{"excused" if is_excusable else "wrong": text}, kind=kind, began=began, ended=time.monotonic())

    def _rest(self) -> None:
        """All work has ended: keep nothing, so that memory and objects can be compared with those of the last rest."""
        self._client.clear()
        self._has_rested = True
        self._submitted = 0
        self._done_once.clear()
        gc.collect()
        self._report(time.monotonic())
        _report(resting=self._rest_waits)

    def _report(self, now: float) -> None:
        oldest = min((pending.began for pending in self._pending), default=now)
        waiting: Counter[str] = collections.Counter(pending.work.kind for pending in self._pending)
        _report(
            counts=self._counts,
            longest_seconds=self._longest,
            ran=self._ran,
            unfinished=waiting,
            callbacks_missing=self._callbacks_missing(),
            oldest_seconds=now - oldest,
        )
        self._ran = []


def _connect(address: str) -> Client:
    """The network may be cut just now, or the scheduler be restarted."""
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return Client(address=address, timeout_seconds=CLIENT_TIMEOUT_SECONDS)
        except SchedulerUnreachableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _report(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(address: str, seed: str, most_a_second: str, ledger: str, kind: str) -> None:
    logging.basicConfig(format="[%(levelname)s]%(asctime)s: %(message)s", level=logging.WARNING)  # on standard error
    LoadClient(address, int(seed), float(most_a_second), ledger, kind).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
