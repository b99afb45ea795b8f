"""What nodes are told that miss an object."""

from __future__ import annotations

from scaler_appliance.core.objects.object_records import failure_of_missing
from scaler_appliance.core.objects.object_table import ObjectTable
from scaler_protocol import encode_struct


class MissingObjectFailures:
    """Encoded failures; nodes that follow each other usually miss the same object, whose failure is encoded once.

    Parameters:
        tenant: who owns the nodes.
    """

    def __init__(self, objects: ObjectTable, tenant: str) -> None:
        self._objects, self._tenant = objects, tenant
        self._object_id = 0
        self._payload = b""

    def of(self, object_id: int) -> bytes:
        """The failure of a node that misses this object."""
        if object_id != self._object_id:
            self._payload = encode_struct(failure_of_missing(object_id, self._objects.find_of(object_id, self._tenant)))
            self._object_id = object_id
        return self._payload
