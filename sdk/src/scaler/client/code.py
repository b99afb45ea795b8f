"""The code that a client's functions need: which versions of local modules, and which archives it ships.

    submit ─▶ stamp() ── unchanged ──▶ the function is known
                 │ a local module was imported, or a shipped file changed
                 ▼
              another stamp ─▶ functions are serialised again ─▶ note_for(function) ─▶ sent, if that makes a difference

Rules:
- Each submit pays for `stamp`: a check of an empty queue and a comparison, and with `modules` one read of the clock.
  Files are checked only as often as costs at most a tenth of the time.
- An archive is an object of this client. It is sent when the first function needs it, and deleted when no function that
  names it, and no unfinished task of such a function, is left here.
- Inside a task, a client uses the code that the task runs with: functions that it submits run with the same code.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import deque
from functools import lru_cache
from typing import AbstractSet, Callable, Deque, Dict, FrozenSet, List, Optional, Sequence, Tuple

import cloudpickle

from scaler import nesting
from scaler.client.archives import Archive, CodeSource, Root, Uploadable, source_at
from scaler.client.core.kept_objects import KeptObject
from scaler.values.code_notes import MAXIMUM_NUMBER, CodeNote, Parts, add_note
from scaler.values.source_versions import versions

LOOKING_SHARE = 0.1
"""The share of the time that looking for changed files may take."""

_pickled_by_value: AbstractSet[str] = getattr(cloudpickle.cloudpickle, "_PICKLE_BY_VALUE_MODULES", frozenset())
"""The names that `cloudpickle.register_pickle_by_value` was called with, as long as they are registered."""


class SentArchive:
    """An archive in the cluster, which lives as long as this object is referenced."""

    __slots__ = ("digest", "object_id", "_unneeded")

    def __init__(self, digest: str, object_id: int, unneeded: Deque[int]) -> None:
        self.digest = digest
        self.object_id = object_id
        self._unneeded = unneeded

    def __del__(self) -> None:
        self._unneeded.append(self.object_id)  # any thread, at any moment: `ClientCode.delete_unneeded` does the rest


class ClientCode:
    """What one client's functions need.

    Parameters:
        sources: the code that it ships.
        send: called with the parts and the name of an archive; returns its object id.
        delete: called with the id of an archive that is not needed any more.
        find: the kept object of an id.
    """

    def __init__(
        self,
        sources: Sequence[CodeSource],
        send: Callable[[Parts, str], int],
        delete: Callable[[int], None],
        find: Callable[[int], Optional[KeptObject]] = lambda object_id: None,
    ) -> None:
        self._send = send
        self._delete = delete
        self._find = find
        self._lock = threading.RLock()
        self._own: List[CodeSource] = list(sources)
        self.ships_code = bool(sources)
        self._of_task = [] if nesting.code is None else _unpacked_sources(nesting.code.folders)
        self._inherited = None if sources else nesting.code  # of the task that this client is in
        self._generation = ""
        self._number = 0
        self._sent: Dict[str, SentArchive] = {}  # of the present sources, by digest
        self._unneeded: Deque[int] = deque()
        self._next_look = 0.0
        self._pending = versions.pending
        self._digests = self._digests_now()
        self._excluded = self._top_names()  # modules that travel in archives
        self.on_changed: Callable[[], None] = lambda: None  # called when all functions have to be serialised again
        versions.start()
        self._module_number = versions.number

    @property
    def roots(self) -> List[Sequence[Root]]:
        """Where the code is that this client ships."""
        return [source.roots for source in self._own]

    @property
    def _sources(self) -> List[CodeSource]:
        return self._own + self._of_task

    def after_fork_in_child(self) -> None:
        """In a fork of the client's process."""
        self._lock = threading.RLock()

    def stamp(self) -> int:
        """A number that changes when a function may have to be serialised again because of its code.

        Raises ModuleUploadError when code that this client ships is gone.
        """
        if self._pending or self._own or versions.number != self._module_number:
            self._look()
        return self._number

    def _look(self, is_thorough: bool = False) -> None:
        if self._pending:
            versions.refresh()
        elif versions.number == self._module_number and time.monotonic() < self._next_look and not is_thorough:
            return
        with self._lock:
            if versions.number != self._module_number:
                self._module_number = versions.number
                self._number += 1
            begin = time.monotonic()
            if self._own and (is_thorough or begin >= self._next_look):
                try:
                    for source in self._own:
                        source.look(is_thorough)
                finally:
                    if self._digests != self._digests_now():
                        self._changed()
                now = time.monotonic()
                self._next_look = now + (now - begin) / LOOKING_SHARE

    def _digests_now(self) -> List[str]:
        return [source.archive.digest for source in self._sources]

    def _changed(self) -> None:
        """The set of archives has changed."""
        self._number += 1
        self._digests = self._digests_now()
        self._inherited = None
        self._sent = {digest: sent for digest, sent in self._sent.items() if digest in self._digests}
        self._excluded = self._top_names()  # modules that travel in archives
        self.on_changed()

    def _top_names(self) -> FrozenSet[str]:
        return frozenset(name for source in self._sources for name in source.archive.top_names)

    def upload(self, uploads: Sequence[Uploadable]) -> None:
        """Ship more code, and the changed parts of the code that is already shipped.

        Raises ModuleUploadError when there is no such code, or it cannot be shipped.
        """
        new = [CodeSource(each) for each in uploads]
        with self._lock:
            replaced = [source.roots for source in new]
            self._own = [source for source in self._own if source.roots not in replaced] + new
            self.ships_code = bool(self._own)
            if new:
                self._changed()
            self._look(is_thorough=True)

    def renew(self) -> None:
        """From now on functions run in processors that have not run any task before."""
        with self._lock:
            self._generation = os.urandom(8).hex()
            self._number += 1
            self.on_changed()

    # Notes ----------------------------------------------------------------------------------------------------------

    def note(self, parts: Parts) -> Tuple[SentArchive, ...]:
        """Append a note to a serialised function about the code it needs; returns the archives, which the function must
        keep.

        Raises what sending an archive raises.
        """
        self.delete_unneeded()
        with self._lock:
            archives = [source.archive for source in self._sources]
            sent = tuple(self._sent_archive(archive) for archive in archives)
            note = CodeNote(
                self._key(archives),
                tuple((each.object_id & MAXIMUM_NUMBER, each.digest) for each in sent),
                versions.digests(self._excluded.union(_pickled_by_value)),
            )
        add_note(parts, note)
        return sent

    def _key(self, archives: Sequence[Archive]) -> str:
        if self._inherited is not None and not self._generation:
            return self._inherited.key
        if not archives and not self._generation:
            return ""
        text = " ".join([self._generation, *(archive.digest for archive in archives)])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _sent_archive(self, archive: Archive) -> SentArchive:
        sent = self._sent.get(archive.digest)
        if sent is None:
            object_id = self._send([archive.content], f"code of {', '.join(archive.top_names)}"[:200])
            sent = self._sent[archive.digest] = SentArchive(archive.digest, object_id, self._unneeded)
        return sent

    def keep(self, object_id: int, archives: Tuple[SentArchive, ...]) -> None:
        """A function was sent: its archives are needed as long as its object is."""
        kept = self._find(object_id)
        if kept is not None:
            kept.needs = archives

    def delete_unneeded(self) -> None:
        """Delete archives that no function needs any more."""
        while self._unneeded:
            self._delete(self._unneeded.popleft())


@lru_cache(maxsize=1)
def _unpacked_sources(folders: Tuple[str, ...]) -> List[CodeSource]:
    """The code in folders that archives were unpacked to, whose content never changes."""
    return [source_at([Root(folder, "")]) for folder in folders]
