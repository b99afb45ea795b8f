"""A worker that serves only named functions runs nothing else, whatever a client or a scheduler sends."""

from __future__ import annotations

import json
import os
import pickle
from itertools import product
from pathlib import Path
from typing import Any, Tuple

from fake_scheduler import FakeScheduler, StartWorker

from scaler.values.codecs import NEUTRAL_CODECS
from scaler.worker.served_functions import MARK
from scaler_protocol import messages as m

ONLY_NAMED = ("--only-named", "--functions", "scaler.conformance/*=scaler.conformance")
SERVED = "scaler.conformance/echo"
NAMES = ("", SERVED, "python:os:mkdir")
CODECS = ("cloudpickle", "json", "raw", "", "another")


class Bomb:
    """Unpickling it leaves a trace."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> Tuple[Any, ...]:
        return os.mkdir, (self._path,)


def task(payload: bytes, **fields: Any) -> m.Task:
    return m.Task(ids=[1], payload_sizes=[len(payload)], **fields)


def test_its_hello_offers_neither_pickles_nor_places(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker(*ONLY_NAMED)
    hello = scheduler.welcome()
    assert list(hello.codecs) == ["json", "raw"] and list(hello.functions) == ["scaler.conformance/*"]


def test_it_runs_the_functions_that_it_names(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker(*ONLY_NAMED)
    scheduler.welcome()
    scheduler.send(task(b"[1, 2]", function_name="scaler.conformance/sum", codec="json"), b"[1, 2]")
    assert json.loads(scheduler.result(1).payload) == 3


def test_it_unpickles_nothing_and_runs_nothing_else(
    scheduler: FakeScheduler, start_worker: StartWorker, tmp_path: Path
) -> None:
    start_worker(*ONLY_NAMED)
    scheduler.welcome()
    trace = tmp_path / "trace"
    bomb = pickle.dumps(Bomb(trace))
    for codec, name in product(CODECS, NAMES):
        definition = bytes([MARK]) + json.dumps(["f", codec, ["os", "mkdir", False], []]).encode()
        functions = [scheduler.create_inline(each, m.ObjectKind.FUNCTION) for each in (bomb, definition)]
        if codec not in NEUTRAL_CODECS or name != SERVED:
            functions.append(0)
        payload = json.dumps([str(trace)]).encode() if codec == "json" else bomb
        for function in functions:
            scheduler.send(task(payload, function=function, function_name=name, codec=codec), payload)
            outcome = scheduler.result(1)
            assert outcome.failure.kind in (m.FailureKind.CODEC_UNKNOWN, m.FailureKind.FUNCTION_NOT_LOADED)
            assert not trace.exists()
