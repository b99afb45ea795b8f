"""The agent core's events of data connections and of files of objects: they go to the worker's objects.

Rule: nothing is decided here.
"""

from __future__ import annotations

from scaler.worker.agent.core.worker_objects import WorkerObjects
from scaler.worker.frames import Buffer
from scaler_protocol import messages as m
from scaler_protocol.session.peer_session import PeerSession


class DataEvents:
    """A part of `AgentCore`."""

    objects: WorkerObjects
    session: PeerSession

    def _plan(self) -> None:
        raise NotImplementedError

    # Other workers --------------------------------------------------------------------------------------------------

    def on_data_accepted(self, connection: int, key: bytes, now: float) -> None:
        """Another worker has connected to this one, and its handshake is complete.

        Parameters:
            connection: a number that the shell has chosen: negative, and not used before.
            key: the public key that it has proved; empty: keys are not used.
        """
        self.objects.transfers.on_accepted(connection, key, now)
        self._plan()

    def on_data_connected(self, connection: int, now: float) -> None:
        """A connection to another worker is made."""
        self.objects.transfers.on_connected(connection, now)

    def on_data_message(self, connection: int, message: m.Message, payload: Buffer, now: float) -> None:
        """A message from another worker.

        Parameters:
            payload: may be a view of memory that the connection's next message overwrites, after `finish_turn` and the
                effects.
        """
        self.objects.transfers.on_message(connection, message, payload, now)
        self._plan()

    def on_data_closed(self, connection: int, reason: str) -> None:
        """A connection with another worker has ended, or could not be made, and not because the core closed it."""
        self.objects.transfers.on_closed(connection, reason)

    # From files -----------------------------------------------------------------------------------------------------

    def on_object_found(self, object_id: int, is_there: bool) -> None:
        self.objects.on_found(object_id, is_there)

    def on_chunk_written(self, object_id: int, fetch: int, length: int, path: str) -> None:
        """The file at `path` now has `size` bytes of an object."""
        self.objects.on_chunk_written(object_id, fetch, length, path)

    def on_copy_named(self, object_id: int, fetch: int, path: str) -> None:
        """The whole file of an object that was fetched is at `path` now."""
        self.objects.on_copy_named(object_id, fetch, path)

    def on_copy_linked(self, object_id: int, fetch: int, path: str) -> None:
        """The file at `path` is that of an object which another worker on this host has; empty: none has it."""
        self.objects.on_copy_linked(object_id, fetch, path)

    def on_chunk_failed(self, object_id: int, fetch: int, why: str, is_full: bool) -> None:
        """A part of an object could not be written, because memory and disk are full or for another reason."""
        self.objects.on_chunk_failed(object_id, fetch, why, is_full)

    def on_result_kept(self, object_id: int, target: str, why: str = "") -> None:
        """The file of a result was renamed to its object's name; or it is gone, for the reason `why`."""
        self.objects.on_kept(object_id, target, why)

    def on_chunk_read(
        self, object_id: int, offset: int, length: int, chunk: Buffer, why: str = "", connection: int = 0
    ) -> None:
        """A requested part of an object, or the reason why it could not be read.

        Parameters:
            connection: that of the effect.
        """
        if self.session.is_open:
            self.objects.served.on_chunk_read(object_id, offset, length, chunk, why, connection)
