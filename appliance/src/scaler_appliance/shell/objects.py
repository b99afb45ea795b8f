"""The files of objects that the scheduler keeps.

Rules:
- An object that is being received is written under a temporary name and gets its own when it is whole.
- A file that is not there is an answer (`None`), not an error: peers may delete what they shared.
"""

from __future__ import annotations

import os
import re
from typing import Dict, List, Optional, Set

from scaler_appliance.core.objects import SESSION_SHIFT
from scaler_protocol.buffers import Buffer
from scaler_protocol.segments import ObjectDirectory, read_chunk, sweep_abandoned, temporary_name, write_chunk

_OBJECT_NAME = re.compile("[0-9a-f]{16}")


class ObjectFiles:
    """Object files in the scheduler's directory.

    Parameters:
        directory: owned by this process; removed by `close`.
    """

    def __init__(self, directory: ObjectDirectory) -> None:
        self.directory = directory
        self._receiving: Dict[int, str] = {}

    def store_chunk(self, object_id: int, offset: int, chunk: Buffer, is_last: bool) -> None:
        path = self._receiving.get(object_id)
        if path is None:
            path = self._receiving[object_id] = os.path.join(self.directory.path, temporary_name())
        write_chunk(path, offset, chunk)
        if is_last:
            os.rename(self._receiving.pop(object_id), self.directory.object_path(object_id))

    def read_chunk(self, object_id: int, offset: int, length: int) -> Optional[bytes]:
        path = self._receiving.get(object_id) or self.directory.object_path(object_id)
        try:
            return read_chunk(path, offset, length)
        except FileNotFoundError:
            return None

    def remove(self, object_id: int) -> None:
        path = self._receiving.pop(object_id, None) or self.directory.object_path(object_id)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def of_sessions(self, sessions: Set[int]) -> List[int]:
        """Ids of the objects that have a file and were made by one of these sessions."""
        names = filter(_OBJECT_NAME.fullmatch, os.listdir(self.directory.path))
        return [object_id for object_id in (int(name, 16) for name in names) if object_id >> SESSION_SHIFT in sessions]

    def sweep_abandoned(self) -> None:
        """Remove directories beside ours whose owner was killed."""
        try:
            sweep_abandoned(os.path.dirname(self.directory.path))
        except OSError:
            pass  # somebody else removes one right now

    def close(self) -> None:
        self.directory.remove()
