"""In a processor: which code its tasks import, and whether that is what their client has.

    CODE frame ─▶ use: the client's archives before all else on the import path
    function ─note─▶ before_loading: what was edited is imported anew ─▶ load ─▶ after_loading: differences

Rules:
- A module is as it was when this process imported it. If its file is by now what the client has, it is imported anew,
  and with it the other local modules that may have parts of it. All functions and values are loaded again then, so that
  no two versions meet.
- Where the file is not what the client has either, the task runs with what there is, and the client is told.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import sys
from typing import Iterable, List, Sequence, Set

from scaler import nesting
from scaler.values.code_notes import Buffer, CodeNote, Notice
from scaler.values.source_versions import digest_of_file, versions

logger = logging.getLogger("scaler")


def use(key: str, folders: Sequence[str]) -> None:
    """Import from these folders first, from now on. Nothing has run in this process before."""
    nesting.code = nesting.CodeOfTasks(key, tuple(folders))
    sys.path[:0] = folders
    importlib.invalidate_caches()
    shipped = {name.partition(".")[0] for folder in folders for name in os.listdir(folder)}
    _forget_modules([name for name in sys.modules if name.partition(".")[0] in shipped])  # that were preloaded


def _forget_modules(names: Iterable[str]) -> None:
    for name in names:
        sys.modules.pop(name, None)


class ImportedCode:
    """Compares what is imported here with what clients have."""

    def __init__(self) -> None:
        self._told: Set[str] = set()
        versions.start()

    def before_loading(self, note: CodeNote) -> bool:
        """Forget modules that are older here than their files, if those are the client's; whether there were any."""
        versions.refresh()
        stale = []
        for name, digest in note.modules.items():
            module = versions.get(name)
            if module is not None and module.digest != digest and digest_of_file(module.path) == digest:
                stale.append(name)
                with contextlib.suppress(OSError, NotImplementedError):
                    # Compiled from the old source, perhaps within the same second, which is all that Python compares.
                    os.remove(importlib.util.cache_from_source(module.path))
        if stale:
            logger.info("reloading %s, which changed on disk", ", ".join(stale))
            _forget_modules(versions.with_dependents(stale))
            importlib.invalidate_caches()
        return bool(stale)

    def after_loading(self, note: CodeNote, content: Buffer) -> List[Notice]:
        """What the client's user should know about modules that a function needs, and that are imported here."""
        versions.refresh()
        other = {}
        for name, digest in note.modules.items():
            module = versions.get(name)
            if module is not None and module.digest != digest and f"{name} {digest}" not in self._told:
                other[name] = module
        notices = []
        for name in sorted(versions.named_in(content).intersection(other)) if other else ():
            self._told.add(f"{name} {note.modules[name]}")
            notices.append(Notice(f"module {name}", _difference(name, other[name].path, note.modules[name])))
        return notices


def explain_missing(error: ModuleNotFoundError, note: CodeNote) -> None:
    """Say what to do when a worker has not a module that its client has."""
    if error.name in note.modules:
        top = str(error.name).partition(".")[0]
        error.msg = f"{error.msg}: it is a file of the client's machine; ship it with Client(modules=[{top!r}])"


def _difference(name: str, path: str, digest: str) -> str:
    where = f"{os.uname().nodename}:{path}"
    if digest_of_file(path) == digest:
        return f"module {name!r} could not be reloaded by a worker ({where}): call client.restart_processors()"
    return (
        f"module {name!r} is not the same here and at a worker: tasks run {where} as it is there. If you have edited"
        f" it, reload it here; if the worker has another copy, ship yours: Client(modules=[{name.partition('.')[0]!r}])"
    )
