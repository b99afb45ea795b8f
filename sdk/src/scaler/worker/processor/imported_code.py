"""In a processor: which code its tasks import, and whether it matches their client's.

    CODE frame ─▶ use: the client's archives before all else on the import path
    function ─note─▶ before_loading: edited modules are reloaded ─▶ load ─▶ after_loading: differences

Rules:
- A module is as it was when this process imported it. If its file now matches the client's version, it is reloaded,
  together with other local modules that may have imported parts of it. All functions and values are then loaded again,
  so that versions do not mix.
- If the file does not match the client's version either, the task runs with the worker's version, and the client gets a
  notice.
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

MAXIMUM_TOLD = 1000  # modules, in one version each, that clients were told about; then some are told again


def use(key: str, folders: Sequence[str]) -> None:
    """Import from these folders first, from now on. No task has run in this process before."""
    nesting.code = nesting.CodeOfTasks(key, tuple(folders))
    sys.path[:0] = folders
    importlib.invalidate_caches()
    shipped = {name.partition(".")[0] for folder in folders for name in os.listdir(folder)}
    _forget_modules([name for name in sys.modules if name.partition(".")[0] in shipped])  # that were preloaded


def _forget_modules(names: Iterable[str]) -> None:
    for name in names:
        sys.modules.pop(name, None)


class ImportedCode:
    """Compares the modules that are imported here with those of clients."""

    def __init__(self) -> None:
        self._told: Set[str] = set()
        versions.start()

    def before_loading(self, note: CodeNote) -> bool:
        """Forget modules that are older here than their files, if the files match the client's; returns whether there
        were any."""
        versions.refresh()
        stale = []
        for name, digest in note.modules.items():
            module = versions.get(name)
            if module is not None and module.digest != digest and digest_of_file(module.path) == digest:
                stale.append(name)
                with contextlib.suppress(OSError, NotImplementedError):
                    # Bytecode of the old source may have the same time, which Python compares in whole seconds.
                    os.remove(importlib.util.cache_from_source(module.path))
        if stale:
            logger.info("reloading %s, which changed on disk", ", ".join(stale))
            _forget_modules(versions.with_dependents(stale))
            importlib.invalidate_caches()
        return bool(stale)

    def after_loading(self, note: CodeNote, content: Buffer) -> List[Notice]:
        """Notices for the client's user about modules that a function needs and that are imported here."""
        versions.refresh()
        other = {}
        for name, digest in note.modules.items():
            module = versions.get(name)
            if module is not None and module.digest != digest and f"{name} {digest}" not in self._told:
                other[name] = module
        notices = []
        if len(self._told) >= MAXIMUM_TOLD:
            self._told.clear()
        for name in sorted(versions.named_in(content).intersection(other)) if other else ():
            self._told.add(f"{name} {note.modules[name]}")
            notices.append(Notice(f"module {name}", _difference(name, other[name].path, note.modules[name])))
        return notices


def explain_missing(error: ModuleNotFoundError, note: CodeNote) -> None:
    """Explain what to do when a worker lacks a module that the client has."""
    if error.name in note.modules:
        top = str(error.name).partition(".")[0]
        error.msg = f"{error.msg}: it is a file on the client's machine; ship it with Client(modules=[{top!r}])"


def explain_import_error(error: BaseException) -> None:
    """Say what to do about a module that a task has not found; nothing if it is here, or if that was said."""
    if not isinstance(error, ModuleNotFoundError):
        return
    with contextlib.suppress(Exception):  # finders are anyone's code, and so is what this exception says
        top = (error.name or "").partition(".")[0]
        if top and "modules=" not in str(error) and importlib.util.find_spec(top) is None:
            remedy = f"install it there, or ship it, if it is yours: Client(modules=[{top!r}])"
            error.msg = f"{error}; the worker on {os.uname().nodename} lacks {top}: {remedy}"
            error.args = (error.msg,)  # which is what travels


def _difference(name: str, path: str, digest: str) -> str:
    where = f"{os.uname().nodename}:{path}"
    if digest_of_file(path) == digest:
        return f"module {name!r} could not be reloaded by a worker ({where}): call client.restart_processors()"
    return (
        f"module {name!r} differs between this client and a worker: tasks use the worker's {where}. If you have edited"
        f" it, reload it here; if the worker has another copy, ship yours: Client(modules=[{name.partition('.')[0]!r}])"
    )
