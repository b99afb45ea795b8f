"""A failure of a call that all languages can read is never unpickled, whatever a worker sends."""

from __future__ import annotations

import os
import pickle
import traceback
from pathlib import Path
from typing import Any, Tuple

from scaler.exceptions import NamedFunctionError
from scaler.values.codecs import PYTHON_CODEC
from scaler.values.failures import load_failure
from scaler_protocol import encode_struct
from scaler_protocol import messages as m


class Bomb(Exception):
    """Unpickling it leaves a trace."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = str(path)

    def __reduce__(self) -> Tuple[Any, ...]:
        return os.mkdir, (self._path,)


def test_an_exception_in_a_neutral_call_s_failure_is_not_unpickled(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    failure = m.Failure(
        kind=m.FailureKind.TASK_RAISED,
        type_name="builtins.ValueError",
        message="too large",
        codec=PYTHON_CODEC,
        exception=pickle.dumps(Bomb(trace)),
    )
    error = load_failure(encode_struct(failure), "example.org/f", is_neutral=True)
    assert not trace.exists()
    assert isinstance(error, NamedFunctionError) and "too large" in str(error)
    load_failure(encode_struct(failure), "f")
    assert trace.exists(), "the bomb works"


def test_the_text_of_a_neutral_call_s_failure_controls_no_terminal() -> None:
    clear = "\x1b[2J\x9b2J\r\u202e"
    for kind in (m.FailureKind.TASK_RAISED, m.FailureKind.WORKER_LOST, m.FailureKind.FUNCTION_NOT_LOADED):
        failure = m.Failure(
            kind=kind, type_name=f"E{clear}", message=f"why{clear}", worker=f"node{clear}", traceback=f"at\n{clear}"
        )
        error = load_failure(encode_struct(failure), "example.org/f", is_neutral=True)
        shown = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        assert "why\\u001b[2J" in shown and "node\\u001b[2J" in shown and "at\n\\u001b" in shown
        assert not set(clear) - set("[2J") & set(shown)
