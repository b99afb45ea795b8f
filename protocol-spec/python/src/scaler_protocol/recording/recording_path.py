"""Where a recording is written. A module of its own, for programs that usually do not record."""

from __future__ import annotations

import contextlib
import os
from typing import Iterator


class RecordingPathError(OSError):
    """A recording cannot be written to its path."""


def path_of_process(path: str) -> str:
    """The path of a recording, in which `%p` stands for the id of this process."""
    return path.replace("%p", str(os.getpid()))


@contextlib.contextmanager
def recording_path(option: str, path: str) -> Iterator[None]:
    """An error of the system becomes one that names the option and the path."""
    try:
        yield
    except OSError as error:
        raise RecordingPathError(f"{option} {path}: {error.strerror or error}") from error
