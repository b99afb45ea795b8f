"""The files of a worker, as its core sees them: in the scheduler's directory, or its own.

Rules:
- Operations are performed in the order in which they were asked for.
- A file that is being fetched has a name of its own until it is whole. What is whole may be found by other workers on
  the same host, if they share memory.
- Files are lost, and disks are full, as the world's faults say.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

from whole_system.user_tasks import digest_of

from scaler.values.code_notes import read_note
from scaler.worker.agent.core.effects import (
    FindObject,
    KeepResult,
    LinkCopy,
    NameCopy,
    OpenObjects,
    ReadChunk,
    ReadNote,
    RemoveCode,
    RemoveFiles,
    RemoveLeftovers,
    UnpackCode,
    WriteChunk,
)
from scaler.worker.frames import ContentPlace

if TYPE_CHECKING:
    from whole_system.links.data_links import DataLinks
    from whole_system.scheduler_host import SchedulerHost
    from whole_system.simulated_world import World

SHARED_MEMORY_SHARE = 0.7
"""Of histories: workers on one host see each other's files. In the others they are in containers."""


class WorkerDisk:
    """A part of `WorkerHost`."""

    world: World
    core: Any
    name: str
    now: float
    is_alive: bool
    is_shared: bool
    data_address: str
    answer_part: Callable[[ReadChunk, Optional[bytes]], None]
    _links: DataLinks
    _scheduler: SchedulerHost
    _round: Callable[[], None]

    def open_disk(self) -> None:
        """At the beginning."""
        self.files: Dict[str, bytes] = {}
        self.folders: Dict[str, bytes] = {}  # of clients' code: the archive that each was unpacked from
        self.lost_files = 0
        shares_memory = Random(f"shared memory: {self.world.plan.seed}").random() < SHARED_MEMORY_SHARE
        self._shares_memory = shares_memory and bool(self.data_address)

    @property
    def _token(self) -> str:
        return f"new-{self.name}-"

    def end_disk(self) -> None:
        """The program has ended."""
        self.files.clear()
        self.folders.clear()
        for path in [path for path in self._scheduler.files if path.rpartition("/")[2].startswith(self._token)]:
            del self._scheduler.files[path]

    def _store(self, path: str) -> Dict[str, bytes]:
        if not path.startswith("/shared/"):
            return self.files
        return self._scheduler.files if self._scheduler.has_directory(path) else {}

    def read(self, path: str) -> Optional[bytes]:
        return self._store(path).get(path)

    def write(self, path: str, content: bytes) -> None:
        self._store(path)[path] = content

    def _lose_sometimes(self, path: str) -> None:
        """The file of a large result may be gone, as after an error of the disk."""
        if self.world.fault("result_lost"):
            self.world.say(self.name, "loses", path)
            self.lost_files += 1
            self._store(path).pop(path, None)

    def operate(self, effect: Any) -> None:
        """Perform an operation, and tell the core."""
        core, now = self.core, self.now
        if isinstance(effect, OpenObjects):
            directory = effect.directory if self.is_shared else "/own"
            core.on_objects_opened(self.is_shared, f"{directory}/{self._token}", now)
        elif isinstance(effect, FindObject):
            core.on_object_found(effect.object_id, self.read(effect.path) is not None)
        elif isinstance(effect, WriteChunk):
            self._write_chunk(effect)
        elif isinstance(effect, NameCopy):
            self._name_copy(effect)
        elif isinstance(effect, LinkCopy):
            self._link_copy(effect)
        elif isinstance(effect, ReadChunk):
            self._lose_sometimes(effect.path)
            self.answer_part(effect, self.read(effect.path))
        elif isinstance(effect, ReadNote):
            core.on_note_read(effect.function, read_note(self.read(effect.path) or b""))
        elif isinstance(effect, UnpackCode):
            self._unpack(effect)
        elif isinstance(effect, RemoveCode):
            for folder in effect.folders:
                del self.folders[folder]
        elif isinstance(effect, KeepResult):
            self._lose_sometimes(effect.path)
            content = self._store(effect.path).pop(effect.path, None)
            if content is None:
                core.on_result_kept(effect.object_id, effect.target, "No such file")
            else:
                self.write(effect.target, content)
                core.on_result_kept(effect.object_id, effect.target)
        elif isinstance(effect, RemoveFiles):
            for path in effect.paths:
                self._store(path).pop(path, None)
        else:
            assert isinstance(effect, RemoveLeftovers), effect
            beginning = f"{self._token}{effect.process_id}-"
            for files in (self.files, self._scheduler.files):
                for path in [path for path in files if path.rpartition("/")[2].startswith(beginning)]:
                    del files[path]
        self._round()

    def _write_chunk(self, effect: WriteChunk) -> None:
        core, path = self.core, f"/own/{self._token}fetch{effect.fetch}"
        if self.world.fault("worker_disk_full"):
            self.lost_files += 1
            if effect.is_first:
                self.files.pop(path, None)
            core.on_chunk_failed(effect.object_id, effect.fetch, "no space left on device", True)
            return
        assert not (effect.is_first and path in self.files), "a file is begun twice"
        if not (effect.is_first or path in self.files):
            core.on_chunk_failed(effect.object_id, effect.fetch, "No such file", False)  # it was given up
            return
        before = self.files.get(path, bytes(effect.size))
        end = effect.offset + len(effect.chunk)
        self.files[path] = before[: effect.offset] + bytes(effect.chunk) + before[end:]
        core.on_chunk_written(effect.object_id, effect.fetch, len(effect.chunk), path)

    def _name_copy(self, effect: NameCopy) -> None:
        path, content = f"/own/{effect.name}", self.files.pop(effect.path, None)
        if content is None:
            self.core.on_chunk_failed(effect.object_id, effect.fetch, "No such file", False)  # it was given up
            return
        assert path not in self.files, "there is a file of that name"
        self.files[path] = content
        self.core.on_copy_named(effect.object_id, effect.fetch, path)

    def _link_copy(self, effect: LinkCopy) -> None:
        path = f"/own/{effect.name}"
        content = self._links.file_nearby(self, path) if self._shares_memory and path not in self.files else None
        if content is not None:
            assert len(content) == effect.size, "the file of another object is found"
            self.files[path] = content
        self.core.on_copy_linked(effect.object_id, effect.fetch, "" if content is None else path)

    def _unpack(self, effect: UnpackCode) -> None:
        is_file = effect.place == ContentPlace.FILE
        content = self.read(bytes(effect.content).decode()) if is_file else bytes(effect.content)
        if content is None or self.world.fault("worker_disk_full"):
            self.lost_files += content is not None
            self.core.on_code_failed(effect.digest, "no space left on device")
        elif digest_of(content) != effect.digest:
            self.core.on_code_failed(effect.digest, "it is another archive")
        else:
            folder = f"/code/{effect.digest}"
            self.folders[folder] = content
            self.core.on_code_unpacked(effect.digest, folder)
