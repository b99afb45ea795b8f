"""Files that a program writes where its user told it to: links, addresses, recordings, logs.

    write_at_once ──▶ a new file ─▶ renamed to its name        create_output ──▶ a new file at its name
                 └──▶ a pipe or device ◀── at that name ──────┘    append_output ──▶ the file at its name, or a new one

The folder may be shared, as /tmp is, and another user may have prepared the name: with a symbolic link to a file of
ours, which would be overwritten, or with a file or a pipe of theirs, from which they would read what is written.

Rules:
- A new file is made with O_EXCL and O_NOFOLLOW. What is checked of an existing one is the open file.
- A symbolic link is followed only if this user or root has made it, such as /dev/stdout. One to a regular file is
  itself replaced, except for a log.
- A pipe or a socket must belong to this user or to root. A device is used as it is: only root can make one.
- A log may be a file of another user, but not in a folder that all users can write to.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Optional

from scaler_protocol.host import system

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_NOFOLLOW | system.O_CLOEXEC
_OPEN_ALREADY = ("/dev/fd/", "/dev/std", "/proc/")  # links there stand for open files
_APPEND = os.O_WRONLY | os.O_APPEND | system.O_CLOEXEC | system.O_NOCTTY


def write_at_once(path: str, text: str, mode: int = 0o600) -> None:
    """Write a text for a waiting program, which finds all of it or no file; a regular file at that name is replaced.

    Parameters:
        mode: of a new file, less the umask.

    Raises OSError.
    """
    special = _open_special(path)
    if special is not None:
        _write_and_close(special, text)
        return
    unfinished = f"{path}.{os.urandom(8).hex()}"
    try:
        _write_and_close(os.open(unfinished, _NEW, mode), text)
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise


def create_output(path: str) -> int:
    """A descriptor of a new file, which only this user can read; a regular file at that name is replaced.

    Raises OSError.
    """
    special = _open_special(path)
    if special is not None:
        return special
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, _NEW, 0o600)


def append_output(path: str) -> int:
    """A descriptor for lines at the end of a file, which is made if it does not exist.

    Raises OSError.
    """
    while True:  # another program of this user may make or rotate the file in between
        try:
            return _append_to_existing(path)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                return os.open(path, _NEW | os.O_APPEND, 0o666)


def _append_to_existing(path: str) -> int:
    found = os.lstat(path)
    is_link = stat.S_ISLNK(found.st_mode)
    _check_before(path, found)
    # A link of this user may lead to a file that does not exist yet.
    descriptor = os.open(path, _APPEND | (os.O_CREAT if is_link else system.O_NOFOLLOW), 0o666)
    try:
        opened = os.fstat(descriptor)
        if not stat.S_ISREG(opened.st_mode):
            _check_special(path, opened)
        elif _is_writable_by_all(os.path.dirname(os.path.realpath(path))):
            _check_owner(path, opened, "file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open_special(path: str) -> Optional[int]:
    """A descriptor of the pipe or device at a name; None if there is nothing, or a file or a link to be replaced."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(found.st_mode):
        return None
    _check_before(path, found)
    is_link = stat.S_ISLNK(found.st_mode)
    if is_link and not path.startswith(_OPEN_ALREADY) and (not os.path.exists(path) or os.path.isfile(path)):
        return None
    descriptor = os.open(path, os.O_WRONLY | system.O_CLOEXEC | system.O_NOCTTY | (0 if is_link else system.O_NOFOLLOW))
    try:
        opened = os.fstat(descriptor)
        if stat.S_ISREG(opened.st_mode):
            _check_owner(path, opened, "file")
        else:
            _check_special(path, opened)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_before(path: str, found: os.stat_result) -> None:
    """Checks the name, before what it leads to is opened: opening a pipe waits for its reader."""
    if stat.S_ISLNK(found.st_mode):
        _check_owner(path, found, "symbolic link")
    elif stat.S_ISFIFO(found.st_mode):
        _check_owner(path, found, "pipe")


def _check_special(path: str, opened: os.stat_result) -> None:
    if not stat.S_ISCHR(opened.st_mode):
        _check_owner(path, opened, "pipe")


def _check_owner(path: str, found: os.stat_result, kind: str) -> None:
    if found.st_uid not in (system.user_id(), 0):
        why = f"this {kind} belongs to the user with the id {found.st_uid}; remove it, or use another name"
        raise PermissionError(errno.EPERM, why, path)


def _is_writable_by_all(folder: str) -> bool:
    return bool(os.stat(folder).st_mode & stat.S_IWOTH)


def _write_and_close(descriptor: int, text: str) -> None:
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
