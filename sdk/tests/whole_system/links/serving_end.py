"""A client as its data links see it: workers fetch from it what it keeps.

Rule: chance is drawn apart from all other, so that histories without it stay what they are.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, List, Optional

from whole_system.links.link_end import LinkEnd

from scaler.client.core.argument_service import ArgumentService, SendPart
from scaler.client.core.client_core import ClientCore
from scaler.client.core.client_objects import missing
from scaler.data_serving.data_effects import SendData
from scaler.values.sizes import INLINE_BYTES
from scaler_protocol.session.features import KEPT_ARGUMENTS
from scaler_protocol.wire import messages as m

if TYPE_CHECKING:
    from whole_system.links.data_links import DataLinks

EARLIER_SHARE = 0.1  # of clients, to which their scheduler is one without the feature
DIRECT_BYTES = INLINE_BYTES  # so that what the simulated users make large is kept


class ServingEnd(LinkEnd):
    """A part of `ClientHost`."""

    core: Optional[ClientCore]
    is_alive: bool
    at_own: Any

    @property
    def now(self) -> float:
        raise NotImplementedError

    def prepare_serving(self, links: DataLinks) -> None:
        self.open_links(links)
        draws = Random(f"kept arguments: {self.world.plan.seed} {self.name}")
        self._is_earlier = draws.random() < EARLIER_SHARE
        self._service: Optional[ArgumentService] = None
        self._watch_at = 0.0

    @property
    def data_owner(self) -> Any:
        return self

    def offer(self, hello: m.Hello) -> None:
        if self.data_address:
            hello.features = [*hello.features, KEPT_ARGUMENTS]
            hello.data_address, hello.data_key = self.data_address, self.data_key

    def agreed(self, welcome: m.Welcome) -> m.Welcome:
        """With the features that both sides have."""
        self._end_session()
        if self._is_earlier or not self.data_address:
            welcome.features = [feature for feature in welcome.features if feature != KEPT_ARGUMENTS]
        return welcome

    def serve(self, core: ClientCore) -> None:
        self._service = ArgumentService(core.objects)

    def _end_session(self) -> None:
        if self._service is not None:
            self._service.end_session()
            self._perform_service()

    def on_served_message(self, message: Any) -> None:
        """The scheduler has sent a message, which the core gets, too."""
        if self._service is None:
            return
        if isinstance(message, m.Ticket):
            self._service.on_ticket(message, self.now)
        elif isinstance(message, m.ObjectInstruction):
            self._service.on_instruction(message)
        self._perform_service()

    # Workers --------------------------------------------------------------------------------------------------------

    def on_data_accepted(self, number: int, key: bytes, now: float) -> None:
        if self._service is not None:
            self._service.on_accepted(number, key, now)

    def on_data_message(self, number: int, message: Any, payload: Any, now: float) -> None:
        if self._service is not None:
            self._service.on_message(number, message, now)

    def on_link_closed(self, number: int, reason: str) -> None:
        if self._service is not None:
            self._service.on_closed(number)

    def round_of_data(self) -> None:
        self._perform_service()

    def _perform_service(self) -> None:
        service = self._service
        assert service is not None
        while service.effects:
            effect = service.effects.pop(0)
            self.perform_on_link(self._part(effect) if isinstance(effect, SendPart) else effect)
        if service.next_time > self.now and service.next_time != self._watch_at and len(service):
            at = self._watch_at = service.next_time
            self.at_own(at, lambda: self._watch(at))

    def _watch(self, at: float) -> None:
        if at == self._watch_at and self._service is not None and self.is_alive:
            self._service.watch(self.now)
            self._perform_service()

    def _part(self, effect: SendPart) -> SendData:
        connection, kept, request = effect
        if not isinstance(kept.content, bytes):
            return SendData(connection, missing(request))
        part = kept.content[request.offset : request.offset + request.length]
        return SendData(connection, m.ObjectResponse(id=request.id, offset=request.offset, size=kept.size), part)

    def what_is_served(self) -> List[str]:
        """What is left of transfers; nothing, once all its objects have ended."""
        core, service = self.core, self._service
        kept = [] if core is None else [hex(object_id) for object_id in core.objects._served]
        return [f"objects that are served {kept}"] if kept or (service is not None and len(service)) else []
