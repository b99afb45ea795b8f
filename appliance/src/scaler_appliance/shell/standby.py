"""A scheduler that stands by for another one: it serves while the other one does not.

    wait ──no answer from the other one for `takeover_seconds`──▶ serve
         ◀──answers for as long: make way, as for a restart──────

Rules:
- While it waits it listens nowhere, so that peers which have both addresses find the other one.
- The other one is asked once a second, in a thread, with the owner's key of our own folder of keys. Peers trust a
  standby only if both schedulers have the same keys: if they do not, it says so at the start.
- Nothing is agreed between the two. If only the link between them is cut, both serve, each with the peers that it has.
  A session is with one scheduler, so no task gets lost or runs twice by that.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from typing import Callable, Optional

from scaler_appliance.checks.greeting import greet
from scaler_protocol.host.addresses import parse_addresses, why_not_connected
from scaler_protocol.host.sodium import MissingLibraryError
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.programs.event_loop import Completion, EventLoop, Timer
from scaler_protocol.programs.service_manager import ServiceManager
from scaler_protocol.programs.startup import has_terminal
from scaler_protocol.wire.errors import ProtocolError

INTERVAL_SECONDS = 1.0
ANSWER_SECONDS = 2.0
STOOD_STILL_SECONDS = 2 * (INTERVAL_SECONDS + ANSWER_SECONDS)

logger = logging.getLogger("scaler")


class Presence:
    """Whether another scheduler serves, judged by what it answers. It is believed to at first.

    Parameters:
        seconds: for how long all answers have to say otherwise, before it is believed.
    """

    def __init__(self, seconds: float) -> None:
        self.is_there = True
        self._seconds = seconds
        self._since: Optional[float] = None  # when the first of the answers that say otherwise was asked for
        self._asked_at = 0.0

    def on_answer(self, asked_at: float, has_answered: bool) -> bool:
        """What was asked at a time has come to this; returns whether `is_there` has changed by that."""
        stood_still = asked_at - self._asked_at > STOOD_STILL_SECONDS  # so what was there before says nothing
        self._asked_at = asked_at
        if has_answered == self.is_there:
            self._since = None
            return False
        if self._since is None or stood_still:
            self._since = asked_at
        if asked_at - self._since < self._seconds:
            return False
        self.is_there, self._since = has_answered, None
        return True


class Standby:
    """Looks after another scheduler, on an event loop, for as long as the program runs.

    Parameters:
        credentials: for the other scheduler, with its address.
        takeover_seconds: see `Presence`.
        service_manager: told what this program does.
    """

    def __init__(
        self, loop: EventLoop, credentials: Credentials, takeover_seconds: float, service_manager: ServiceManager
    ) -> None:
        self.has_made_way = False  # and did not stop
        self._other = credentials.address
        self._credentials = credentials
        self._presence = Presence(takeover_seconds)
        self._service_manager = service_manager
        self._loop = loop
        self._decision: Completion[bool] = Completion(loop)  # of `is_needed`
        self._make_way: Optional[Callable[[str], bool]] = None  # while this scheduler serves
        self._answers: Optional[bool] = None  # whether it does; None: that is not known yet
        self._was_refused = False  # by the first answer
        self._signs_of_life: Optional[Timer] = None

    def start(self) -> None:
        """Look after it from now on."""
        threading.Thread(target=self._ask, name="standby", daemon=True).start()

    def is_needed(self, exit_when_stdin_closes: bool) -> bool:
        """Wait until the other scheduler is gone, or this program is asked to stop: then it returns false.

        Raises OSError if the other one does not trust this one.
        """
        self.has_made_way, self._make_way = False, None
        self._decision = Completion(self._loop)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            self._loop.add_signal_handler(number, self._stop, number.name)
        self._loop.add_signal_handler(signal.SIGHUP, self._on_hangup, has_terminal())
        if exit_when_stdin_closes:
            self._loop.add_reader(sys.stdin.fileno(), self._on_stdin)
        logger.info("Scheduler: stands by for %s", self._other)
        self._service_manager.ready(self._status)
        self._give_signs_of_life()
        try:
            return self._decision.wait()
        finally:
            if self._signs_of_life is not None:
                self._signs_of_life.cancel()
            if exit_when_stdin_closes:
                self._loop.remove_reader(sys.stdin.fileno())

    def serves(self, make_way: Callable[[str], bool]) -> None:
        """This scheduler serves from now on; `make_way` ends that, and gets the reason, when the other one is back.

        It returns whether this program is to stand by again.
        """
        self._make_way = make_way

    @property
    def _status(self) -> str:
        return f"standing by for {self._other}"

    def _give_signs_of_life(self) -> None:
        self._service_manager.working(self._loop.time())
        self._signs_of_life = self._loop.call_later(INTERVAL_SECONDS, self._give_signs_of_life)

    # Asked to stop while it waits -----------------------------------------------------------------------------------

    def _stop(self, why: str) -> None:
        if not self._decision.done():
            self._service_manager.stopping(why)
            logger.info("Scheduler: stopped: %s", why)
            self._decision.set_result(False)

    def _on_hangup(self, had_terminal: bool) -> None:
        if had_terminal and not has_terminal():
            self._stop("SIGHUP")
            return
        self._service_manager.reloading()
        logger.info("Scheduler: options and keys are loaded when this scheduler begins to serve")
        self._service_manager.ready(self._status)

    def _on_stdin(self) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            self._loop.remove_reader(sys.stdin.fileno())
            self._stop("the process that started the scheduler is gone")

    # The other scheduler --------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Thread: ask again and again."""
        while True:
            asked_at = time.monotonic()
            refusal: Optional[Exception] = None
            try:
                greet(self._credentials, asked_at + ANSWER_SECONDS)
                reason = ""
            except TimeoutError:
                reason = f"it did not answer within {ANSWER_SECONDS:g} s"
            except OSError as error:
                reason = why_not_connected(parse_addresses(self._other)[0], error)
            except (ProtocolError, KeyFileError, MissingLibraryError) as error:
                refusal, reason = error, f"it does not serve this program: {error}"
            except Exception as error:  # whatever it is, a standby goes on asking
                reason = f"{type(error).__name__}: {error}"
            try:
                self._loop.call_soon_threadsafe(self._on_answer, asked_at, reason, refusal)
            except RuntimeError:
                return  # the event loop has ended
            time.sleep(max(0.0, asked_at + INTERVAL_SECONDS - time.monotonic()))

    def _on_answer(self, asked_at: float, reason: str, refusal: Optional[Exception]) -> None:
        if self._answers is None and refusal is not None and not self._was_refused:
            self._was_refused = True  # one that has died meanwhile cannot be seen to be this user's: it is asked again
            return
        before, self._answers = self._answers, not reason
        if before is None and refusal is not None and not self._decision.done():
            advice = "both need the same keys: copy the folder of keys from its host"
            self._decision.set_exception(OSError(f"--standby-of {self._other}: {refusal}; {advice}"))
        elif reason and before is not False:
            logger.warning("Scheduler: there is no answer from %s: %s", self._other, reason)
        elif not reason and not before:
            logger.info("Scheduler: %s answers", self._other)
        if not self._presence.on_answer(asked_at, not reason):
            return
        if self._presence.is_there:
            if self._make_way is not None:
                self.has_made_way = self._make_way(f"{self._other} serves again")
                self._make_way = None
        elif not self._decision.done():
            logger.warning("Scheduler: serves instead of %s: %s", self._other, reason)
            self._decision.set_result(True)
