"""Runs a peer on a thread of this process: what a whole matrix of mutants and cases can afford.

Rule: to a case there is no difference to a process, but that nothing can be left behind.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import threading
import traceback
from typing import Any, Callable, Dict, Optional

from scaler_conformance.benches.implementation import Launcher, Running

EXIT_CRASHED = 70


class ThreadLauncher(Launcher):
    """Starts peers of one class.

    Parameters:
        make_peer: makes one from an address, an object with `run` (its exit code) and `terminate`. With pipes it is
            also given what it reads and writes, two binary files.
    """

    def __init__(self, make_peer: Callable[..., Any], name: str = "") -> None:
        self._make_peer = make_peer
        self.name = name

    def start(self, values: Dict[str, str], pipes: bool = False) -> Running:
        make_peer = self._make_peer
        if values.get("variant"):
            make_peer = functools.partial(make_peer, variant=values["variant"])
        if values.get("keys"):
            make_peer = functools.partial(make_peer, keys=values["keys"])
        return _RunningThread(make_peer, values.get("address", ""), pipes)

    def has_variant(self, name: str) -> bool:
        return True


class _RunningThread(Running):
    def __init__(self, make_peer: Callable[..., Any], address: str, pipes: bool) -> None:
        self._exit_code: Optional[int] = None
        self._output = io.StringIO()
        if pipes:
            reader, self.stdin = _pipe()
            self.stdout, writer = _pipe()
            self._peer = make_peer(address, reader, writer) if address else make_peer(reader, writer)
        else:
            self._peer = make_peer(address)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._exit_code = self._peer.run()
        except Exception:
            traceback.print_exc(file=self._output)
            self._exit_code = EXIT_CRASHED

    def exit_code(self) -> Optional[int]:
        return None if self._thread.is_alive() else self._exit_code

    def wait(self, seconds: float) -> Optional[int]:
        self._thread.join(seconds)
        return self.exit_code()

    def terminate(self) -> None:
        if self._thread.is_alive():
            self._peer.terminate()

    def reload(self) -> None:
        if self._thread.is_alive():
            self._peer.reload_soon()

    def kill(self) -> None:
        """A thread cannot be killed; a peer that has `exit_code` is told to end."""
        for stream in (self.stdin, self.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if self._thread.is_alive():
            self._peer.do_soon(lambda: setattr(self._peer, "exit_code", 137))
            self._thread.join(5)

    def output(self) -> str:
        return self._output.getvalue()


def _pipe() -> Any:
    reader, writer = os.pipe()
    return open(reader, "rb", buffering=0), open(writer, "wb", buffering=0)
