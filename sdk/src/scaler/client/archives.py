"""Python code of a client's machine, packed for its workers.

    "mypackage" ─┐
    "./src"      ├▶ CodeSource: where the files are ─▶ look: has one changed? ─▶ Archive: its files, and their digest
    a module    ─┘

Rules:
- The digest covers names and contents only: the same code has the same digest wherever and whenever it is packed.
- Compiled files, hidden files and folders, virtual environments and caches are left out. All other files are packed,
  including data.
- Code that cannot run on other machines, or that was probably not meant to be sent, is refused with the reason.
- A file is read again when its size, modification time or identity differs, and for a moment after each change, because
  the clocks of file systems are coarse.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import os
import sys
import time
import types
from typing import Any, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from scaler.exceptions import ArgumentTypeError, ModuleUploadError
from scaler.values.code_notes import MAXIMUM_ARCHIVE_BYTES, add_to_digest
from scaler.values.source_versions import OWN_PACKAGES, is_standard_library

MAXIMUM_FILES = 10_000
MAXIMUM_BYTES = MAXIMUM_ARCHIVE_BYTES

ATTEMPTS = 3
"""How often to read files that are being replaced at the same time."""

SETTLED_SECONDS = 0.1
"""A file that changed less than this before it was read may change again with the same modification time."""

Uploadable = Union[str, "os.PathLike[str]", types.ModuleType]

_IGNORED_FOLDERS = frozenset({"__pycache__", "node_modules"})
_COMPILED = (".pyc", ".pyo")
_NATIVE = (".so", ".pyd", ".dll", ".dylib")
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


class Archive(NamedTuple):
    """Files as they were at one time.

    Parameters:
        digest: of their names and contents.
        top_names: of the modules and packages that can be imported from them.
        content: a zip file.
    """

    digest: str
    top_names: Tuple[str, ...]
    content: bytes


class Root(NamedTuple):
    """A file or folder that is to be packed.

    Parameters:
        path: where it is.
        prefix: its name in the archive; empty for a folder whose content is what can be imported.
    """

    path: str
    prefix: str


class _File(NamedTuple):
    name: str  # in the archive
    path: str
    stamp: Tuple[int, ...]


class CodeSource:
    """Code that a client ships.

    Parameters:
        what: the name of a module or package, a path, or a module.

    Raises ModuleUploadError when there is no such code, or it cannot be shipped.
    """

    def __init__(self, what: Uploadable) -> None:
        self._roots = _roots_of(what)
        self.label = self._roots[0].prefix or self._roots[0].path
        self._listing: List[_File] = []
        self._read_at = 0.0
        self.archive = self._read(self._list())

    @property
    def roots(self) -> Sequence[Root]:
        """Where the code is; `source_at` makes an equal source from it."""
        return self._roots

    def look(self, is_thorough: bool = False) -> bool:
        """Pack the files again if one may have changed; returns whether one has.

        Parameters:
            is_thorough: read all files, even if the file system reports no change.

        Raises ModuleUploadError when they are gone, or cannot be shipped any more.
        """
        before = self.archive
        listing = self._list()
        if not is_thorough and listing == self._listing and self._is_settled():
            return False
        self.archive = self._read(listing)
        return self.archive.digest != before.digest

    def _read(self, listing: List[_File]) -> Archive:
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(ModuleUploadError):
                return self._pack(listing)
            listing = self._list()  # a file that was there a moment ago is gone: it is being replaced
        return self._pack(listing)

    def _is_settled(self) -> bool:
        newest = max((file.stamp[0] for file in self._listing), default=0)
        # A file system whose clock is ahead must not make us read its files again and again.
        return abs(self._read_at - newest / 1e9) > SETTLED_SECONDS

    def _list(self) -> List[_File]:
        files = sorted(file for root in self._roots for file in _files_of(root))
        if not any(file.name.endswith(".py") for file in files):
            raise ModuleUploadError(f"{self.label}: there is no Python file in it")
        return files

    def _pack(self, listing: List[_File]) -> Archive:
        import zipfile  # slow, and needed only where code is uploaded

        self._read_at = time.time()
        digest = hashlib.blake2b(digest_size=16)
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for file in listing:
                try:
                    with open(file.path, "rb") as source:
                        content = source.read()
                except OSError as error:
                    raise ModuleUploadError(f"{self.label}: {file.path} cannot be read: {error.strerror}") from error
                add_to_digest(digest, file.name, content)
                entry = zipfile.ZipInfo(file.name, _ZIP_TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
        self._listing = listing
        top_names = {file.name.partition("/")[0] for file in listing if file.name.endswith(".py")}
        tops = tuple(sorted(name[:-3] if name.endswith(".py") else name for name in top_names))
        if OWN_PACKAGES.intersection(tops):
            raise ModuleUploadError(f"{self.label}: Scaler itself cannot be uploaded, since the worker runs on its own")
        return Archive(digest.hexdigest(), tops, stream.getvalue())


def source_at(roots: Sequence[Root]) -> CodeSource:
    """The code of `roots`, as it is now.

    Raises ModuleUploadError when it is gone, or cannot be shipped.
    """
    source = CodeSource.__new__(CodeSource)
    source._roots = list(roots)
    source.label = roots[0].prefix or roots[0].path
    source.archive = source._read(source._list())
    return source


# Where code is ------------------------------------------------------------------------------------------------------


def _roots_of(what: Uploadable) -> List[Root]:
    if isinstance(what, types.ModuleType):
        return _roots_of_module(what.__name__, getattr(what, "__spec__", None))
    if isinstance(what, os.PathLike):
        return [_root_of_path(os.fspath(what))]
    if not isinstance(what, str):
        raise ArgumentTypeError(f"modules must be names, paths or modules, not {type(what).__name__}")
    if os.sep in what or what.startswith(".") or what.endswith(".py"):
        return [_root_of_path(what)]
    try:
        spec = importlib.util.find_spec(what)
    except (ImportError, ValueError, AttributeError):
        spec = None
    return _roots_of_module(what, spec)


def _roots_of_module(name: str, spec: Any) -> List[Root]:
    top = name.partition(".")[0]
    if name == "__main__":
        raise ModuleUploadError("__main__ need not be uploaded: what it defines travels with each function by itself")
    if spec is None:
        raise ModuleUploadError(
            f"no module named {name!r} can be found here; give a name that `import` finds, a path like './{name}', or"
            " an imported module"
        )
    if top != name:  # the whole package, for nothing in it can be imported without it
        spec = importlib.util.find_spec(top)
    origin = getattr(spec, "origin", None)
    if top in sys.builtin_module_names or (origin and is_standard_library(origin)):
        raise ModuleUploadError(f"module {name!r} is a part of Python itself, which all workers have")
    folders = list(getattr(spec, "submodule_search_locations", None) or ())
    if folders:
        return [Root(os.path.abspath(folder), top) for folder in folders]
    if not origin or not os.path.isfile(origin):
        raise ModuleUploadError(f"module {name!r} has no file that could be uploaded (it comes from {origin})")
    return [Root(os.path.abspath(origin), os.path.basename(origin))]


def _root_of_path(text: str) -> Root:
    path = os.path.abspath(os.path.expanduser(text))
    if not os.path.exists(path):
        raise ModuleUploadError(f"there is no file or folder {text!r} (looked for {path})")
    if not os.path.isdir(path):
        if not path.endswith(".py"):
            raise ModuleUploadError(f"{text!r} is neither a folder nor a Python file")
        if not _is_package(os.path.dirname(path)):
            return Root(path, os.path.basename(path))
        path = os.path.dirname(path)
    if not _is_package(path):
        return Root(path, "")
    while _is_package(os.path.dirname(path)):  # nothing in a package can be imported without it
        path = os.path.dirname(path)
    return Root(path, os.path.basename(path))


def _is_package(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "__init__.py"))


# Which files --------------------------------------------------------------------------------------------------------


def _files_of(root: Root) -> Iterator[_File]:
    try:
        if not os.path.isdir(root.path):
            yield _file(root.prefix, root.path, root.path, os.stat(root.path))
            return
        sizes: Dict[str, int] = {}  # bytes by the folder or file at the top, to say what is large
        walk = _walk(root.path, root.prefix, frozenset({os.path.realpath(root.path)}))
        for count, (top, file) in enumerate(walk, start=1):
            sizes[top] = sizes.get(top, 0) + file.stamp[1]
            if count > MAXIMUM_FILES or sum(sizes.values()) > MAXIMUM_BYTES:
                largest = max(sizes, key=lambda each: sizes[each])
                raise ModuleUploadError(
                    f"{root.path} is too large to be uploaded: it has more than"
                    f" {MAXIMUM_FILES} files or {MAXIMUM_BYTES >> 20} MiB, most of them in {largest!r}; upload the"
                    " packages that tasks import, and send data with send_object()"
                )
            yield file
    except OSError as error:
        raise ModuleUploadError(f"{root.path} cannot be read (any more): {error.strerror}") from error


def _walk(folder: str, prefix: str, inside: FrozenSet[str], top: Optional[str] = None) -> Iterator[Tuple[str, _File]]:
    """All files below a folder, each with the name of what is at the top.

    What is deleted meanwhile is left out: editors write to a file beside the one that they replace.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            name = f"{prefix}/{entry.name}" if prefix else entry.name
            this_top = top or entry.name
            with contextlib.suppress(FileNotFoundError):
                if entry.is_dir():
                    real = os.path.realpath(entry.path) if entry.is_symlink() else ""
                    if entry.name not in _IGNORED_FOLDERS and real not in inside and not _is_environment(entry.path):
                        yield from _walk(entry.path, name, inside | {real} if real else inside, this_top)
                elif not entry.name.endswith(_COMPILED) and entry.is_file():
                    yield this_top, _file(name, entry.path, folder, entry.stat())


def _is_environment(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "pyvenv.cfg"))


def _file(name: str, path: str, label: str, found: os.stat_result) -> _File:
    if path.endswith(_NATIVE) or ".so." in os.path.basename(path):
        raise ModuleUploadError(
            f"{path} is compiled for this machine, so the code in {label} cannot be uploaded: install it on the workers"
        )
    return _File(name, path, (found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns))
