"""Where workers fetch what a client keeps: its data address, and the connections there.

    ClientDriver ─▶ ClientServing ◀─▶ ArgumentService (which worker may have what)
                          └──────────▶ DataConnections, in the I/O thread or the event loop

Rules:
- Everything happens in the thread that drives the client, between its turns: one round of the connections at a time, so
  that messages of the scheduler wait some milliseconds at most.
- A client serves if others can reach it: it has a connection over TCP, not to its own host, and does not see the
  scheduler's files. Otherwise, and if anything here fails, the scheduler fetches what it places.
- The core gets the features that both sides have: if this client does not serve, `keptArguments` is not among them.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Callable, Optional

from scaler.client.core.argument_service import ArgumentService, SendPart, ServedObjects
from scaler.client.core.client_objects import missing
from scaler.client.shell.client_object_files import read, shares_directory
from scaler.data_serving.data_effects import SendData
from scaler.data_serving.serving_options import ServingOptions
from scaler_protocol.host.addresses import WILDCARDS, Address
from scaler_protocol.host.sodium import MissingLibraryError
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.session.features import KEPT_ARGUMENTS
from scaler_protocol.session.peer_session import NEVER
from scaler_protocol.wire import messages as m

if TYPE_CHECKING:
    from scaler.data_serving.data_connections import DataConnections
    from scaler.data_serving.rounds import Rounds

logger = logging.getLogger("scaler")

MakeConnections = Callable[["ClientServing"], "tuple[Rounds, DataConnections]"]


class ClientServing:
    """Parameters:
    make_connections: called when there is something to connect to for the first time.
    """

    def __init__(self, options: ServingOptions, credentials: Credentials, make_connections: MakeConnections) -> None:
        self._address = options.data_address
        self._credentials = credentials
        self._make_connections = make_connections
        self._rounds: Optional[Rounds] = None
        self._connections: Optional[DataConnections] = None
        self._service: Optional[ArgumentService] = None  # there is none before the first session
        self._offers = False  # with the last Hello

    # Sessions -------------------------------------------------------------------------------------------------------

    # SCL-OBJ-038
    def offer(self, hello: m.Hello, local_host: str) -> None:
        """Say in a Hello where workers can fetch from this client, if they can.

        Parameters:
            local_host: our end of the connection to the scheduler; empty: it has no host.
        """
        place = self._listen(local_host)
        self._offers = bool(place[0])
        others = [feature for feature in hello.features if feature != KEPT_ARGUMENTS]
        hello.features = [*others, KEPT_ARGUMENTS] if self._offers else others
        hello.data_address, hello.data_key = place

    def _listen(self, local_host: str) -> tuple[str, bytes]:
        wanted = self._address
        if wanted is None or not local_host or (wanted.host in WILDCARDS and _is_loopback(local_host)):
            return "", b""
        try:
            security = self._credentials.security()
            if self._connections is None:
                self._rounds, self._connections = self._make_connections(self)
            return self._connections.listen(wanted, local_host, security)
        except (OSError, KeyFileError, MissingLibraryError, MemoryError) as error:
            logger.warning("Client: workers fetch no objects from it: %s", error)
            return "", b""

    def agreed(self, welcome: m.Welcome) -> m.Welcome:
        """A Welcome, with the features that both sides have."""
        self.on_lost()
        shares = shares_directory(welcome.object_directory, welcome.object_directory_token)
        if (not self._offers or shares) and KEPT_ARGUMENTS in welcome.features:
            welcome.features = [feature for feature in welcome.features if feature != KEPT_ARGUMENTS]
        return welcome

    def serve(self, objects: ServedObjects) -> None:
        """From now on these are there to be fetched."""
        self._service = ArgumentService(objects)

    def on_lost(self) -> None:
        """The session has ended, if there was one."""
        if self._service is not None:
            self._service.end_session()
            self.perform()

    # The scheduler --------------------------------------------------------------------------------------------------

    def on_message(self, message: m.Member) -> None:
        """The scheduler has sent a message, which the core gets, too."""
        service = self._service
        if service is None:
            return
        if self._rounds is not None:
            self._rounds.note_others()
        if isinstance(message, m.Ticket):
            service.on_ticket(message, time.monotonic())
        elif isinstance(message, m.ObjectInstruction):
            service.on_instruction(message)
        self.perform()

    @property
    def next_time(self) -> float:
        """When `on_time` is to be called at the latest."""
        return NEVER if self._service is None else self._service.next_time

    def on_time(self, now: float) -> None:
        """Give up what has waited too long, if it is time."""
        if self._service is not None and now >= self._service.next_time:
            self._service.watch(now)
            self.perform()

    def go_on(self) -> None:
        """Something has happened at the connections: a round of them."""
        if self._rounds is not None:
            self._rounds.read()

    # Workers --------------------------------------------------------------------------------------------------------

    def on_data_accepted(self, connection: int, key: bytes) -> None:
        if self._service is not None:
            self._service.on_accepted(connection, key, time.monotonic())

    def on_data_connected(self, connection: int) -> None:
        raise AssertionError("a client connects to no worker")

    def on_data_message(self, connection: int, message: m.Message, payload: bytes) -> None:
        if self._service is not None:
            self._service.on_message(connection, message, time.monotonic())

    def on_data_closed(self, connection: int, reason: str) -> None:
        if self._service is not None:
            self._service.on_closed(connection)

    def perform(self) -> None:
        """Perform what the service asks for, until there is no more."""
        service, connections = self._service, self._connections
        while service is not None and service.effects:
            effect = service.effects.pop(0)
            if isinstance(effect, SendPart):
                effect = _part(effect)
            if connections is not None:
                connections.operations[type(effect)](effect)

    # Ends -----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End all of it."""
        self._service = None
        if self._connections is not None and self._rounds is not None:
            self._connections.close()
            self._rounds.close()

    def after_fork_in_child(self) -> None:
        """In a fork of the client's process: leave everything to the parent."""
        self._service = None
        if self._connections is not None and self._rounds is not None:
            self._connections.after_fork_in_child()
            self._rounds.after_fork_in_child()
        self._rounds = self._connections = None


def _part(effect: SendPart) -> SendData:
    connection, kept, request = effect
    try:
        chunk = read(kept.content, request.offset, request.length)
    except (OSError, MemoryError):
        return SendData(connection, missing(request))
    return SendData(connection, m.ObjectResponse(id=request.id, offset=request.offset, size=kept.size), chunk)


def _is_loopback(host: str) -> bool:
    """Whether no other host can reach this one there: the connection comes by a tunnel, or the scheduler is here."""
    return Address(host, 0).is_local or host.startswith("127.")
