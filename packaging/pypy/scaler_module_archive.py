"""The modules of a copy in one file: build.py makes it, and start.py imports from it.

    size of the index, 8 bytes │ index, by marshal: an entry by name of the module │ bytecode and sources

Rules:
- Instead of a thousand small files, one is made at the first start, and one is opened at each start.
- A module is as if it lay in the library's folder: its `__file__` and `__path__` say so. So what else belongs to a
  package, its data and its extensions, is found there.
- What cannot be read as it was written is an ImportError that names the module: start.py knows what to do.
- It is imported before all modules that are in it, so it needs those alone that PyPy itself has loaded.
"""

from __future__ import annotations

import _imp
import marshal
import os
import sys
from _frozen_importlib import ModuleSpec

TYPE_CHECKING = False  # as in `typing`, which would have to lie beside the archive
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any, Dict, List, Optional, Sequence, Tuple

NAME = "modules"
SIZE_BYTES = 8
MARSHAL_VERSION = 2  # newer formats refer back to what is the same object, which PyPy's compiler leaves to chance
DAMAGED = EOFError, ValueError, TypeError, OverflowError, MemoryError  # what marshal and wrong sizes lead to


class ModuleArchive:
    """Finds and loads modules, for `sys.meta_path`.

    Parameters:
        path: of the archive.
        library: the folder in which the modules seem to lie.

    Raises ImportError if it is no archive.
    """

    def __init__(self, path: str, library: str) -> None:
        self._library = library
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # to the end: modules are imported when needed
            size = int.from_bytes(os.pread(self._file, SIZE_BYTES, 0), "little")
            self._index: Dict[str, Tuple[str, bool, int, int, int, int]] = marshal.loads(
                os.pread(self._file, size, SIZE_BYTES)
            )
        except (OSError, *DAMAGED) as error:
            raise ImportError(f"{NAME}: {error}", name=NAME) from error
        self._begin = SIZE_BYTES + size

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """As `importlib.abc.MetaPathFinder`."""
        entry = self._index.get(name)
        if entry is None:
            return None
        file = f"{self._library}/{entry[0]}"
        loader: Any = self  # it loads, and is no instance of the class that importlib has for that
        spec = ModuleSpec(name, loader, origin=file, is_package=entry[1])
        spec.has_location = True
        if entry[1]:
            spec.submodule_search_locations = [os.path.dirname(file)]
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """As `importlib.abc.Loader`."""

    def exec_module(self, module: ModuleType) -> None:
        """As `importlib.abc.Loader`."""
        exec(self.get_code(module.__name__), module.__dict__)

    def get_code(self, name: str) -> CodeType:
        """As `importlib.abc.InspectLoader`."""
        file, _, offset, size, _, _ = self._entry(name)
        try:
            code: CodeType = marshal.loads(self._read(name, offset, size))
        except DAMAGED as error:
            raise ImportError(f"{name} is damaged: {error}", name=name) from error
        _imp._fix_co_filename(code, f"{self._library}/{file}")  # type: ignore[attr-defined]  # as importlib does
        return code

    def get_source(self, name: str) -> Optional[str]:
        """As `importlib.abc.InspectLoader`: tracebacks show lines of it. None: there is none here."""
        _, _, _, _, offset, size = self._entry(name)
        return self._read(name, offset, size).decode() if size else None

    def is_package(self, name: str) -> bool:
        """As `importlib.abc.InspectLoader`."""
        return self._entry(name)[1]

    def _entry(self, name: str) -> Tuple[str, bool, int, int, int, int]:
        if name not in self._index:
            raise ImportError(f"{name} is not in the archive", name=name)
        return self._index[name]

    def _read(self, name: str, offset: int, size: int) -> bytes:
        content = os.pread(self._file, size, self._begin + offset)
        if len(content) != size:
            raise ImportError(f"{name} is damaged: it is cut off", name=name)
        return content


def import_from(path: str, library: str) -> None:
    """Import modules from an archive from now on, rather than from folders. Raises ImportError if it is none."""
    sys.meta_path.insert(2, ModuleArchive(path, library))  # behind what is built in


def archived(modules: List[Tuple[str, bytes, bytes]]) -> bytes:
    """The content of an archive.

    Parameters:
        modules: of each its path, its bytecode as marshal has it, and its source, empty if that is left out.
    """
    index: Dict[str, Tuple[str, bool, int, int, int, int]] = {}
    parts: List[bytes] = []
    end = 0
    for path, code, source in modules:
        name = path[: -len(".py")].replace("/", ".")
        is_package = name.endswith(".__init__")
        name = name[: -len(".__init__")] if is_package else name
        index[name] = path, is_package, end, len(code), end + len(code), len(source)
        parts += [code, source]
        end += len(code) + len(source)
    head = marshal.dumps(index, MARSHAL_VERSION)
    return b"".join([len(head).to_bytes(SIZE_BYTES, "little"), head, *parts])
