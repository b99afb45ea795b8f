"""Attackers that belong to another user of the host than those whom they attack.

    test, of this user                        copy of this process, of another user
      another_user.runs(action)     ──────▶     action()                  and it ends
      another_user.starts(Peer, …)  ──────▶     peer = Peer(…)
      peer.send(…), peer.heard      ◀─────▶     is called, or read, there, until the `with` block ends

Rules:
- A copy keeps no descriptor of this process but its three standard ones, and no privilege: what is closed here is
  closed, and a file that is private is not read there.
- A copy starts no program and imports no module: what this user's interpreter is made of may be private, too.
- If root does not run the tests, attackers are processes of this user. `test_negative_matrix` says so.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  # what connecting to an address imports by itself
import gc
import os
import pickle
import shutil
import signal
import struct
import traceback
from contextlib import contextmanager
from pathlib import Path
from socket import socket, socketpair
from typing import Any, Callable, Iterator, Tuple, TypeVar, cast

Result = TypeVar("Result")
NOBODY = 65534
_LENGTH = struct.Struct("!Q")
_MAXIMUM_DESCRIPTORS = 65536


class AnotherUser:
    """Parameters:
    folder: that other users can reach; files of the other user are put there.
    """

    def __init__(self, folder: Path) -> None:
        self.is_another = os.geteuid() == 0
        self.user = NOBODY if self.is_another else os.geteuid()
        self.folder = folder
        folder.mkdir(mode=0o700)
        self._gives(folder)

    def _gives(self, path: Path) -> None:
        if self.is_another:
            os.chown(path, NOBODY, NOBODY)

    def copy_of(self, file: Path) -> Path:
        """A file of the other user with the content and the mode of one of this user."""
        copy = self.folder / file.name
        shutil.copy(file, copy)
        self._gives(copy)
        return copy

    def runs(self, action: Callable[[], Result]) -> Result:
        """What an action returns that the other user performs.

        Raises AssertionError with the other process's traceback if it fails.
        """
        with self.starts(lambda: _Performed(action())) as performed:
            result: Result = performed.result
        return result

    @contextmanager
    def starts(self, make: Callable[..., Result], *arguments: Any, **options: Any) -> Iterator[Result]:
        """An object that is made, and lives, in a process of the other user: its methods and attributes are remote.

        What is passed and returned is pickled, but for the arguments here.
        """
        near, far = socketpair()
        process_id = os.fork()
        if not process_id:
            try:
                self._become_the_other(far.fileno())
                _serve(far, lambda: make(*arguments, **options))
            finally:
                os._exit(0)
        far.close()
        try:
            _take(near)  # it has been made
            yield cast(Result, _Remote(near))
        finally:
            near.close()
            os.kill(process_id, signal.SIGKILL)  # it may be waiting for whom it attacks
            os.waitpid(process_id, 0)

    def _become_the_other(self, channel: int) -> None:
        gc.freeze()  # nothing that this process has made is freed, and closed, in the copy
        os.closerange(3, channel)
        os.closerange(channel + 1, _MAXIMUM_DESCRIPTORS)
        if self.is_another:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)


class _Performed:
    def __init__(self, result: Any) -> None:
        self.result = result


class _Remote:
    """Stands for an object in another process."""

    def __init__(self, channel: socket) -> None:
        self._channel = channel

    def __enter__(self) -> _Remote:
        return self

    def __exit__(self, *details: object) -> None:
        pass  # the process ends in `starts`

    def __getattr__(self, name: str) -> Any:
        is_method, value = self._ask(name, None)
        return value if not is_method else lambda *arguments, **options: self._ask(name, (arguments, options))[1]

    def _ask(self, name: str, call: Any) -> Tuple[bool, Any]:
        _put(self._channel, True, (name, call))
        return cast(Tuple[bool, Any], _take(self._channel))


def _serve(channel: socket, make: Callable[[], Any]) -> None:
    """Make an object, and do with it what is asked for until the other end is closed."""
    try:
        made = make()
        _put(channel, True, None)
    except BaseException:
        _put(channel, False, traceback.format_exc())
        return
    while True:
        try:
            name, call = _take(channel)
        except EOFError:
            return
        try:
            value = getattr(made, name)
            if call is not None:
                _put(channel, True, (True, value(*call[0], **call[1])))
            else:
                _put(channel, True, (True, None) if callable(value) else (False, value))
        except BaseException:
            _put(channel, False, traceback.format_exc())


def _put(channel: socket, is_well: bool, value: Any) -> None:
    data = pickle.dumps((is_well, value))
    channel.sendall(_LENGTH.pack(len(data)) + data)


def _take(channel: socket) -> Any:
    (length,) = _LENGTH.unpack(_read(channel, _LENGTH.size))
    is_well, value = pickle.loads(_read(channel, length))
    assert is_well, f"in the process of the other user:\n{value}"
    return value


def _read(channel: socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = channel.recv(min(count - len(found), 1 << 20))
        if not data:
            raise EOFError("the other process has ended")
        found += data
    return found
