"""The versions of the local modules that a process has imported: digests of their sources at import.

    import, importlib.reload, %autoreload ──▶ find_spec ──▶ pending ──▶ refresh ──▶ versions by module

Rules:
- A module is local if its source is a file outside the standard library and outside `site-packages`: installed code has
  no cost here.
- Python asks the finders of `sys.meta_path` about each module that it imports or reloads. The first of them is ours,
  which only records the name. So without imports the cost is a look at an empty queue, and a file is read once for each
  import.
- A module's version is that of its import. Editing a file changes nothing until the module is reloaded.
- Dependencies between modules are found by words: the name of one occurs in the source of the other, or in a function's
  pickle. This finds too many rather than too few, and never runs user code.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import site
import sys
import sysconfig
import threading
import types
from collections import deque
from itertools import accumulate
from typing import Any, Callable, Deque, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Set, Tuple, Union

Buffer = Union[bytes, bytearray, memoryview]

OWN_PACKAGES = frozenset({"scaler", "scaler_protocol", "scaler_appliance"})
MAXIMUM_SEARCHED_BYTES = 1024 * 1024
"""This much of a pickle names its dependencies; the rest is data."""

_AUTORELOAD = "IPython.extensions.autoreload"
_NEW_CELL = ""  # in the queue of names that Python has looked for
_WORD = re.compile(rb"[^\W\d]\w*")


class ImportedModule(NamedTuple):
    """A local module at its import."""

    spec: Any  # a new object after each import and reload
    path: str
    digest: str
    stamp: Tuple[int, int]  # time and size of the file


class _ImportWatch:
    """A finder that finds nothing, and records the requested names."""

    def __init__(self, pending: Deque[str]) -> None:
        self._pending = pending

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        self._pending.append(name)


class SourceVersions:
    """The local modules of this process. Thread safe."""

    def __init__(self) -> None:
        self.number = 0  # increases when a local module is imported
        self.pending: Deque[str] = deque()  # names that Python has looked for since `refresh`
        self._modules: Dict[str, ImportedModule] = {}
        self._words: Dict[str, Tuple[str, FrozenSet[bytes]]] = {}  # digest and words of sources, by path
        self._digests: Optional[Tuple[FrozenSet[str], Dict[str, str]]] = None  # of the last call, until a change
        self._watch: Optional[_ImportWatch] = None
        self._lock = threading.RLock()

    def start(self) -> None:
        """Examine the imported modules, and watch further imports."""
        with self._lock:
            if self._watch is None:
                self._watch = _ImportWatch(self.pending)
                self.pending.extend(list(sys.modules))
                _call_before_cells(self.on_cell)
            if sys.meta_path[:1] != [self._watch]:  # a finder added later may hide imports from ours
                with contextlib.suppress(ValueError):
                    sys.meta_path.remove(self._watch)
                sys.meta_path.insert(0, self._watch)
        self.refresh()

    def refresh(self) -> None:
        """Examine the modules that were imported or reloaded since the last call."""
        with self._lock:
            while self.pending:
                name = self.pending.popleft()
                if name == _NEW_CELL:
                    self._look_for_patches()
                    continue
                known = self._modules.get(name)
                found = _imported(name, known)
                if found is None:
                    self._modules.pop(name, None)
                    if known is not None:
                        self._words.pop(known.path, None)
                else:
                    self._modules[name] = found
                if found is not known:
                    self._digests = None
                    self.number += 1

    def on_cell(self, *_: Any) -> None:
        """Called before a notebook cell runs, when %autoreload may have changed modules in place, without imports."""
        self.pending.append(_NEW_CELL)

    def _look_for_patches(self) -> None:
        if _AUTORELOAD not in sys.modules:
            return
        for name, module in list(self._modules.items()):
            if _stamp_of(module.path) != module.stamp:
                patched = _read_module(module.spec, module.path)
                if patched is not None:
                    self._modules[name] = patched
                    self._digests = None
                    self.number += 1

    def after_fork(self) -> None:
        """Called in a forked child: another thread may have held the lock."""
        self._lock = threading.RLock()

    def get(self, name: str) -> Optional[ImportedModule]:
        return self._modules.get(name)

    def digests(self, excluded: FrozenSet[str]) -> Dict[str, str]:
        """The digests of all local modules.

        Parameters:
            excluded: modules, and packages with their contents, to leave out.
        """
        with self._lock:
            before = self._digests
            if before is None or before[0] != excluded:
                modules = self._modules.items()
                digests = {name: each.digest for name, each in modules if excluded.isdisjoint(_with_parents(name))}
                before = self._digests = (excluded, digests)
            return before[1]

    def named_in(self, content: Buffer) -> Set[str]:
        """The local modules that a serialised function may need."""
        data = bytes(content[:MAXIMUM_SEARCHED_BYTES])
        with self._lock:
            names: Dict[bytes, List[str]] = {}  # by their last part, which is all that relative imports mention
            for name in self._modules:
                names.setdefault(_last_part(name), []).append(name)
            found: Set[str] = set()
            new = {name for last in names if last in data for name in names[last]}
            while new:
                found |= new
                words = frozenset().union(*(self._words_of(name) for name in new))
                new = {name for last in words & names.keys() for name in names[last]} - found
            return found

    def with_dependents(self, names: Iterable[str]) -> Set[str]:
        """These local modules, and all others here that may have imported parts of them."""
        with self._lock:
            found = set(names)
            others = {name: self._words_of(name) for name in self._modules.keys() - found}
            new = set(map(_last_part, found))
            while new:
                dependents = [name for name, words in others.items() if not words.isdisjoint(new)]
                for name in dependents:
                    del others[name]
                found.update(dependents)
                new = set(map(_last_part, dependents))
            return found

    def _words_of(self, name: str) -> FrozenSet[bytes]:
        module = self._modules[name]
        digest, words = self._words.get(module.path, ("", frozenset()))
        if digest != module.digest:
            words = frozenset(_WORD.findall(_read(module.path) or b""))
            self._words[module.path] = (module.digest, words)
        return words.union(name.encode().split(b".")[:-1])  # and its parents


def _last_part(name: str) -> bytes:
    return name.rpartition(".")[2].encode()


def _with_parents(name: str) -> Iterable[str]:
    return accumulate(name.split("."), "{}.{}".format)


versions = SourceVersions()
"""The versions of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=versions.after_fork)


def digest_of(content: Buffer) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def digest_of_file(path: str) -> str:
    """The digest of a file as it is now; empty if it cannot be read."""
    content = _read(path)
    return "" if content is None else digest_of(content)


def _imported(name: str, known: Optional[ImportedModule]) -> Optional[ImportedModule]:
    """A local module as imported now; the same object as before if it was not imported again."""
    if name == "__main__" or name.partition(".")[0] in OWN_PACKAGES:
        return None
    module = sys.modules.get(name)
    if not issubclass(type(module), types.ModuleType):  # some objects in `sys.modules` only imitate modules
        return None
    # `getattr` would import a lazy module.
    spec = types.ModuleType.__getattribute__(module, "__dict__").get("__spec__")
    if known is not None and known.spec is spec:
        return known
    path = getattr(spec, "origin", None)
    if not isinstance(path, str) or not path.endswith(".py") or not is_local(path):
        return None
    return _read_module(spec, path)


def _read_module(spec: Any, path: str) -> Optional[ImportedModule]:
    stamp = _stamp_of(path)
    content = _read(path)
    return None if stamp is None or content is None else ImportedModule(spec, path, digest_of(content), stamp)


def _stamp_of(path: str) -> Optional[Tuple[int, int]]:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _call_before_cells(callback: Callable[..., None]) -> None:
    """Register a callback that runs before each cell, in a notebook or IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        shell.events.register("pre_run_cell", callback)


def _read(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _library_folders() -> Tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    if hasattr(site, "getsitepackages"):  # old virtual environments lack it
        folders += site.getsitepackages()
    with contextlib.suppress(Exception):  # the user may have no home
        folders.append(site.getusersitepackages())
    return tuple({each + os.sep for folder in folders for each in (folder, os.path.realpath(folder))})


_LIBRARIES = _library_folders()
_STANDARD_LIBRARY = os.path.realpath(sysconfig.get_path("stdlib")) + os.sep
_LIBRARY_NAMES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def is_local(path: str) -> bool:
    """Whether a file belongs neither to the standard library nor to an installed package."""
    return not (_is_of_library(path) or _is_of_library(os.path.realpath(path)))


def is_standard_library(path: str) -> bool:
    """Whether a file belongs to Python itself."""
    installed = any(name in path for name in _LIBRARY_NAMES)
    return not installed and os.path.realpath(path).startswith(_STANDARD_LIBRARY)


def _is_of_library(path: str) -> bool:
    return path.startswith(_LIBRARIES) or any(name in path for name in _LIBRARY_NAMES)
