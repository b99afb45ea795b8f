"""The end of data links: a worker as they see it, and what it has in common with a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Union, cast

from scaler.worker.agent.core.effects import CloseData, ConnectData, ReadChunk, SendData

if TYPE_CHECKING:
    from whole_system.links.data_links import DataLink, DataLinks
    from whole_system.simulated_world import World


DATA_EFFECTS = (ConnectData, SendData, CloseData)


class LinkEnd:
    """A part of `WorkerHost`, and of `ClientHost` (see `serving_end`)."""

    world: World
    core: Any
    name: str
    _round: Callable[[], None]

    def open_links(self, links: DataLinks) -> None:
        self._links = links
        self.data_links: Dict[int, DataLink] = {}  # by their number at this end
        self.data_address = links.new_address(cast(Any, self))
        self.data_key = self.name.encode() if self.world.plan.seed % 2 else b""

    @property
    def data_owner(self) -> Any:
        """Notified about data connections."""
        return self.core

    def perform_on_link(self, effect: Union[ConnectData, SendData, CloseData]) -> None:
        if isinstance(effect, ConnectData):
            self._links.connect(cast(Any, self), effect.connection, effect.address, effect.key)
        elif effect.connection in self.data_links:
            link = self.data_links[effect.connection]
            if isinstance(effect, SendData):
                link.send(cast(Any, self), effect.message, effect.payload)
            else:
                del self.data_links[effect.connection]
                link.close(cast(Any, self))

    def round_of_data(self) -> None:
        """A data connection has changed the core."""
        self._round()

    def on_data_closed(self, link: DataLink, reason: str) -> None:
        for number, each in list(self.data_links.items()):
            if each is link:
                del self.data_links[number]
                self.on_link_closed(number, reason)

    def on_link_closed(self, number: int, reason: str) -> None:
        """A data connection has ended for this end."""
        self.core.on_data_closed(number, reason)
        self._round()

    def answer_part(self, effect: ReadChunk, content: Optional[bytes]) -> None:
        """A part of an object was read for the scheduler or another worker, or its file is gone."""
        place = effect.object_id, effect.offset, effect.length
        chunk, why = (b"", "No such file") if content is None else (content[effect.offset :][: effect.length], "")
        part = memoryview(chunk) if effect.connection else chunk  # as the shell passes them on
        self.core.on_chunk_read(*place, part, why, effect.connection)

    def end_links(self) -> None:
        """The program has ended; other ends learn of it, or do not."""
        for link in list(self.data_links.values()):
            if not self.world.fault("data_silence"):
                link.close(cast(Any, self))
        self.data_links.clear()

    def what_links_keep(self) -> List[str]:
        """What is left of transfers; nothing, once no client is there."""
        objects = self.core.objects
        fetches, tickets = len(objects.transfers.fetches), len(objects.transfers.service)
        if not (fetches or tickets or objects._held):
            return []
        return [f"{fetches} fetches from workers, {tickets} tickets and callers, {objects._held}"]
