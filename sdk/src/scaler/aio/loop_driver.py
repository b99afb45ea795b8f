"""Drives a client's core, session and connection in an event loop: the asyncio counterpart of `IoThread`.

    readable, timer, commands ──▶ turn (client_driver) ──▶ plan: the next timer, whether to watch for writing

Rules:
- Everything happens in callbacks of one loop. There is no thread and no lock, and nothing waits; only the name of a
  scheduler's host is resolved by a thread (`Dialing`).
- A timer reads first what has arrived: after a stop of this process, what waits is heard before time is judged.
- A handler of a signal may run at any moment. All that it can do here is to cancel futures, which appends to a list.
- If Ctrl-C raises KeyboardInterrupt within a turn, the state of the core is not known any more, and the client ends.
  Since Python 3.11, `asyncio.run` cancels its main task instead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Callable, Iterator, List, Optional, Tuple, Union

from scaler.aio.loop_settling import LoopMailbox, LoopOutput, LoopSettling
from scaler.aio.loop_transport import LoopTransport
from scaler.client.core import commands as c
from scaler.client.shell.client_driver import ClientDriver
from scaler.client.shell.data_service.client_serving import ClientServing
from scaler.data_serving.data_connections import DataConnections
from scaler.data_serving.rounds import Rounds
from scaler.data_serving.serving_options import NOT_SERVING, ServingOptions
from scaler.exceptions import ClientFailedError
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.session.effects import Ended
from scaler_protocol.session.peer_session import NEVER, SessionSettings
from scaler_protocol.wire import messages as m

logger = logging.getLogger("scaler")


class LoopDriver(ClientDriver):
    """Parameters:
    credentials: for the scheduler, at its address.
    hello: introduces this client.
    settings: of its session.
    numbers: yields a new number for each object.
    on_heartbeat: called at each heartbeat, for periodic checks.
    send_deferred: sends a task that waited here.
    serving: how it serves workers.
    """

    transport: LoopTransport
    mailbox: LoopMailbox
    settling: LoopSettling
    output: LoopOutput

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        credentials: Credentials,
        hello: m.Hello,
        settings: SessionSettings,
        numbers: Iterator[int],
        on_heartbeat: Callable[[], None],
        send_deferred: Callable[[Any], None],
        serving: ServingOptions = NOT_SERVING,
    ) -> None:
        own_serving = ClientServing(serving, credentials, self._make_connections)
        super().__init__(credentials.address, hello, settings, numbers, on_heartbeat, send_deferred, own_serving)
        self.direct_bytes = serving.direct_bytes
        self.loop = loop
        self.unwanted: List[Any] = []
        """Futures that were cancelled here, whose tasks are cancelled with the next turn."""
        self.first_echo: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.settling = LoopSettling()
        self.output = LoopOutput(loop)
        self.mailbox = LoopMailbox(loop, self._on_commands, self._refuse)
        self.transport = LoopTransport(credentials, loop, self._on_event)
        self._began: asyncio.Future[Union[m.Welcome, Ended]] = loop.create_future()
        self._has_begun = False
        self._timer: Optional[asyncio.TimerHandle] = None
        self._timer_at = NEVER

    # The first connection -------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Begin the first session.

        Raises SchedulerUnreachableError, NotASchedulerError, AuthenticationError, ProtocolVersionError,
        SchedulerRefusedError.
        """
        try:
            self._session.start(time.monotonic())
            self._go_on_first(time.monotonic())
            began = await self._began
            if isinstance(began, Ended):
                # What answers at that address, if it is no scheduler, is asked over a connection of its own.
                raise await self.loop.run_in_executor(None, self.transport.end_error, began, self._connect_error)
        except BaseException:
            self._is_over = True
            self._stop_timer()
            self.transport.drop()
            self.serving.close()
            raise

    def begin(self) -> None:
        """Begin to take commands."""
        self._has_begun = True
        self._hear_unread()
        self._on_commands()

    def _go_on_first(self, now: float) -> None:
        if not self._session.is_open:
            self._session.on_time(now)
        began = self._perform_first()
        if began is None:
            self._plan()
            return
        if isinstance(began, m.Welcome):
            self._on_first_welcome(began)
        self._began.set_result(began)

    def _on_first_event(self, is_readable: bool) -> None:
        if self._began.done():
            return
        now = time.monotonic()
        try:
            if is_readable:
                self._hear_first()
            self._go_on_first(now)
        except Exception as error:
            self._began.set_exception(error)

    # Turns ----------------------------------------------------------------------------------------------------------

    def _on_event(self) -> None:
        """Something is to be received, or the connection is established, or has failed."""
        self._do_turn(is_readable=True)

    def _on_commands(self) -> None:
        self.mailbox.is_scheduled = False
        self._do_turn(is_readable=False)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, NEVER
        self._do_turn(is_readable=not self.transport.is_connecting)

    def _do_turn(self, is_readable: bool) -> None:
        if self._is_over:
            return
        if not self._has_begun:
            self._on_first_event(is_readable)
            return
        try:
            self._turn(time.monotonic(), is_readable)
            self._after_turn()
        except Exception as failure:  # a bug of ours must not make coroutines wait for ever
            self._fail(failure)
            self._finish()
        except BaseException as interrupt:
            self._fail(ClientFailedError(f"{type(interrupt).__name__} came while the client was at work"))
            self._finish()
            raise

    def _after_turn(self) -> None:
        if self._is_over:
            self._end(None)
            self._finish()
            return
        self._publish_room()
        self.files.remove_discarded()
        self._plan()

    def _take_commands(self) -> None:
        commands = self.mailbox.take()
        if commands:
            self.core.apply(commands)
        if self.unwanted:
            unwanted, self.unwanted = self.unwanted, []
            self.core.apply([c.Cancel(unwanted, True)])

    def number_now(self) -> None:
        """Give the tasks that were submitted last their numbers, before the turn that sends them."""
        if not self._is_over:
            self._take_commands()

    def _plan(self) -> None:
        """See to it that the next turn comes in time."""
        self.transport.watch_for_writing()
        at = self._next_time
        if at >= self._timer_at:
            return  # the timer comes before, and plans again
        self._stop_timer()
        self._timer_at = at
        self._timer = self.loop.call_later(max(0.0, at - time.monotonic()), self._on_timer)

    def _make_connections(self, serving: ClientServing) -> Tuple[Rounds, DataConnections]:
        rounds = Rounds(self.loop, lambda: self._on_round(serving), maximum_run_seconds=0.0)
        return rounds, DataConnections(rounds, self.loop, serving, "Client")

    def _on_round(self, serving: ClientServing) -> None:
        serving.perform()
        if not self._is_over and self._has_begun:
            self._plan()  # a ticket has to be watched

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, NEVER

    def _on_echo(self) -> None:
        if not self.first_echo.done():
            self.first_echo.set_result(None)

    def _warn(self, text: str) -> None:
        logger.warning("%s", text)

    # Ending ---------------------------------------------------------------------------------------------------------

    def end_now(self) -> None:
        """Leave without waiting for the scheduler's answer: the loop will not run any more."""
        if self._is_over or not self._has_begun:
            return
        self.core.on_leaving()
        self._perform()
        self._session.leave(time.monotonic())
        self._perform()
        self._end(None)
        self._finish()

    def _finish(self) -> None:
        self._stop_timer()
        self._release()
        if not self.ended.done() and not self.loop.is_closed():
            self.ended.set_result(None)

    def _close_transport(self) -> None:
        self.transport.close()
