"""Objects that do harm when they are pickled or loaded, found by name in the tests' process and in the workers'.

An evil object knows in which of the two processes it does its harm: what is pickled in the client is loaded in a
worker, and what is pickled in a worker is loaded in the client.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, Dict, NoReturn

CLIENT = os.getpid()
"""The process that made an evil object: it is part of its state."""


def crash() -> NoReturn:
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)
    raise AssertionError("a segmentation fault was survived")


def exit_hard() -> NoReturn:
    os._exit(3)


def exit_softly() -> NoReturn:
    sys.exit("it leaves")


def fail() -> NoReturn:
    raise RuntimeError("it fails")


HARMS = {"crash": crash, "exit hard": exit_hard, "exit softly": exit_softly, "error": fail}


class Evil:
    """Does harm at one moment; before that it is a function that returns its argument, or any object.

    Parameters:
        harm: one of HARMS.
        moment: "pickled" or "unpickled".
        in_client: whether it does its harm in the client, else in a worker.
        padding_bytes: how large it is.
    """

    def __init__(self, harm: str, moment: str, in_client: bool, padding_bytes: int = 0, client: int = CLIENT) -> None:
        self.harm = harm
        self.moment = moment
        self.in_client = in_client
        self.padding = bytes(padding_bytes)
        self.client = client

    def __call__(self, value: Any) -> Any:
        return value

    def __reduce__(self) -> Any:
        self.act("pickled")
        return (_load, (type(self), self.harm, self.moment, self.in_client, self.padding, self.client))

    def act(self, moment: str) -> None:
        if moment == self.moment and (os.getpid() == self.client) == self.in_client:
            HARMS[self.harm]()


def _load(kind: Any, harm: str, moment: str, in_client: bool, padding: bytes, client: int) -> Any:
    loaded = kind(harm, moment, in_client, len(padding), client)
    loaded.act("unpickled")
    return loaded


class EvilError(Evil, Exception):
    """The same as an exception."""


def give(value: Any) -> Any:
    return value


def throw(error: Dict[str, Any]) -> NoReturn:
    """Make an evil exception, and raise it."""
    raise EvilError(**error)


def run_and_count(path: str, evil: Any = None) -> None:
    """Leave a mark in a file; an evil argument does its harm before that."""
    with open(path, "a") as marks:
        marks.write("x")
