"""The running part of a synchronous client: that of any client, but for what runs its tasks."""

from __future__ import annotations

import os
from typing import Any, Callable, List, Optional, Sequence

from scaler.client.archives import CodeSource
from scaler.client.core.deferring import DeferredTask
from scaler.client.shell.client_shell import ClientShell
from scaler.nesting import SYNCHRONOUS
from scaler.serializer import Serializer
from scaler.synchronous.synchronous_io import SynchronousIo
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.session.peer_session import SessionSettings


class SynchronousShell(ClientShell):
    """Parameters:
    code_sources: modules that its tasks import from where they are.
    """

    def __init__(self, serializer: Optional[Serializer], code_sources: Sequence[CodeSource]) -> None:
        super().__init__(Credentials(SYNCHRONOUS, insecure=True), serializer, 0.0, 0.0, 0.0, code_sources)

    def _make_io(
        self, credentials: Credentials, settings: SessionSettings, send_deferred: Callable[[DeferredTask], None]
    ) -> Any:
        return SynchronousIo(self._numbers, self._folders_of_modules, self._on_heartbeat)

    def _folders_of_modules(self) -> List[str]:
        roots = [root for roots in self.code.roots for root in roots]
        return [os.path.dirname(root.path) if root.prefix else root.path for root in roots]

    def abandon(self) -> None:
        """The last reference to this client is gone. Its objects go with it, unless references to them may be in use.
        Called by the garbage collector, at any moment in any thread."""
        super().abandon()
        if not self.value_objects:
            self._start_leaving()
            self.io.join()
