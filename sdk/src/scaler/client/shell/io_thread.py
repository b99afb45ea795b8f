"""The thread that drives a client and owns its core, session and connection.

    sleep ──▶ turn (client_driver) ──▶ serve workers ──▶ offer a slot ──▶ sleep ...

Rules:
- No other thread uses the core, the session or the connection, except for the first connection, which the thread that
  makes the client waits for before this one starts.
- It never waits for a user thread, and runs no user code: results are loaded by the threads that ask for them;
  callbacks and output have their own threads.
- It holds `turn_lock` except while it sleeps. Forks take that lock, so that no future is half way from one place to
  another in the copy.
- KeyboardInterrupt does not reach it, because it is not the main thread: it finishes what it has begun.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional, Tuple

from scaler.client.shell.client_driver import ClientDriver
from scaler.client.shell.data_service.client_serving import ClientServing
from scaler.client.shell.lone_tasks import Slot, plain_command, sort_out
from scaler.client.shell.mailbox import Mailbox
from scaler.client.shell.output import OutputChannel
from scaler.client.shell.polled_transport import PolledTransport
from scaler.client.shell.settling import Settling
from scaler.client.shell.transport import LINGER_SECONDS
from scaler.client.shell.waiting import Gate
from scaler.data_serving.serving_options import NOT_SERVING, ServingOptions
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.session.effects import Ended
from scaler_protocol.session.peer_session import SessionSettings
from scaler_protocol.wire import messages as m

if TYPE_CHECKING:
    from scaler.data_serving.data_connections import DataConnections
    from scaler.data_serving.rounds import Rounds

logger = logging.getLogger("scaler")


class IoThread(ClientDriver):
    """Parameters:
    credentials: for the scheduler, at its address.
    hello: introduces this client.
    settings: of its session.
    numbers: yields a new number for each object.
    on_heartbeat: called at each heartbeat, for periodic checks.
    send_deferred: sends a task that waited here.
    serving: how it serves workers.

    Raises SchedulerUnreachableError, NotASchedulerError, AuthenticationError, ProtocolVersionError,
    SchedulerRefusedError.
    """

    transport: PolledTransport
    mailbox: Mailbox
    settling: Settling
    output: OutputChannel

    def __init__(
        self,
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
        self.slot: Optional[Slot] = None
        self.turn_lock = threading.Lock()
        self.first_echo = Gate()
        self.settling = Settling()
        self.output = OutputChannel()
        self.mailbox = Mailbox(self._refuse)
        self._has_started = False
        with contextlib.ExitStack() as after_error:
            after_error.callback(self.mailbox.close_pipe)
            after_error.callback(own_serving.close)
            self.transport = PolledTransport(credentials, self.mailbox.waker)
            after_error.callback(self.transport.drop)
            self._on_first_welcome(self._connect_first())
            after_error.pop_all()
        self.thread = threading.Thread(target=self._run, name="scaler-client", daemon=True)

    def start(self) -> None:
        """Begin to take commands. Raises RuntimeError if the system has no room for another thread."""
        try:
            self.thread.start()
        except BaseException:
            self._release()
            raise
        self._has_started = True

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._has_started and threading.current_thread() is not self.thread:
            self.thread.join()

    def _connect_first(self) -> m.Welcome:
        """In the thread that makes the client."""
        self._session.start(time.monotonic())
        while True:
            began = self._perform_first()
            if isinstance(began, Ended):
                raise self.transport.end_error(began, self._connect_error)
            if began is not None:
                return began
            now = time.monotonic()
            if self.transport.wait(self._session.next_time - now):
                self._hear_first()
            if not self._session.is_open:
                self._session.on_time(now)

    # Turns ----------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self.turn_lock.acquire()
        try:
            self._hear_unread()
            while not self._is_over:
                now = time.monotonic()
                self._turn(now, self._sleep(now))
                self.transport.loop.run(time.monotonic())
            self._end(None)
        except Exception as failure:  # a bug of ours must not make users wait for ever
            self._fail(failure)
        finally:
            self._release()
            self.turn_lock.release()

    @property
    def _next_time(self) -> float:
        return min(super()._next_time, self.transport.loop.next_time)

    def _make_connections(self, serving: ClientServing) -> Tuple[Rounds, DataConnections]:
        # Only here, because few programs need them.
        from scaler.data_serving.data_connections import DataConnections
        from scaler.data_serving.rounds import Rounds

        loop = self.transport.loop
        rounds = Rounds(loop, serving.perform, maximum_run_seconds=0.0)
        return rounds, DataConnections(rounds, loop, serving, "Client")

    def _sleep(self, now: float) -> bool:
        """Sleep until there is something to do; whether to receive, or to finish connecting."""
        timeout_seconds = self._next_time - now
        self._publish_room()
        if timeout_seconds > 0 and self.mailbox.room > 0:
            self._offer_slot()
        is_idle = self.mailbox.sleep()
        if not is_idle or self._session_effects or (self.is_leaving and not self.core.is_closed):
            timeout_seconds = 0.0
        # At the very end: a thread that is woken takes the interpreter lock, which this thread no longer needs.
        self.settling.notify()
        self.files.remove_discarded()
        self.turn_lock.release()
        try:
            is_readable = self.transport.wait(timeout_seconds)
        finally:
            self.turn_lock.acquire()
        self.mailbox.awake()
        return is_readable

    def _take_commands(self) -> None:
        slot, self.slot = self.slot, None
        was_claimed = slot is not None and slot.withdraw()
        commands = self.mailbox.take()
        if not commands:
            return
        try:
            lone, commands = sort_out(commands, was_claimed)
        except TimeoutError:
            self._session.interrupt(time.monotonic(), "it is unknown what was sent")
            self._perform()  # the next session gets all of them
            lone, commands = None, list(map(plain_command, commands))
        if lone is not None:
            self.core.on_sent(lone.task)
            self.transport.keep(lone.frames)
            if lone.sent[0] < len(lone.data):
                self.transport.send_rest(memoryview(lone.data)[lone.sent[0] :])
        if commands:
            self.core.apply(commands)

    def _offer_slot(self) -> None:
        """Let a user thread send its next task by itself, if there is nothing else to do."""
        core = self.core
        if core.is_idle and not self.mailbox.commands and self._session.is_open:
            sender = self.transport.task_sender()
            if sender is not None:
                self.slot = Slot(core.next_task_id, sender, core.objects)

    def _on_echo(self) -> None:
        self.first_echo.open()

    def _warn(self, text: str) -> None:
        """Log handlers are user code, which this thread must not run."""
        thread = threading.Thread(target=logger.warning, args=("%s", text), name="scaler-warning", daemon=True)
        with contextlib.suppress(RuntimeError, MemoryError):  # no room for a thread
            thread.start()

    # Ending ---------------------------------------------------------------------------------------------------------

    def _fail(self, failure: Exception) -> None:
        self.slot = None
        super()._fail(failure)

    def _close_transport(self) -> None:
        self.transport.close(LINGER_SECONDS, time.monotonic)

    def after_fork_in_child(self, error: Exception) -> None:
        self.slot = None
        self.turn_lock = threading.Lock()  # taken for the fork, and not to be released here
        super().after_fork_in_child(error)
