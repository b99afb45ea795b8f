"""What a case works with: the implementation under test on one side, the suite's peers on the other.

Rules:
- Each role has its own bench in `benches/`: a module named after the role with a class `RoleBench`. This module is what
  they share.
- The implementation is started when the case first needs it, and only once unless the case restarts it.
- `tear_down` always ends everything, and says how the implementation ended.
"""

from __future__ import annotations

import importlib
import random
import threading
import time
from typing import Callable, Dict, List, Optional, Type

from scaler_conformance.benches.implementation import Launcher, Running
from scaler_conformance.configuration.settings import Settings
from scaler_conformance.judging.verdicts import NotApplicable, Teardown, Violation
from scaler_conformance.playing.conversation import Conversation
from scaler_conformance.playing.hold import Hold, HoldListener
from scaler_conformance.playing.transports import DealerTransport
from scaler_conformance.playing.wire_log import WireLog

_LOOK_SECONDS = 0.01
ROLES = ("worker", "scheduler", "client")


class Identification:
    """The name, version and language that an implementation reports."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.name = self.version = self.language = ""

    def said(self, name: str, version: str, language: str) -> None:
        with self._lock:
            self.name, self.version, self.language = name, version, language


class Bench:
    """The bench of one case.

    Parameters:
        launcher: starts the implementation.
        log: records the trace.
        generator: the case's randomness, derived from the seed and the case's id.
        identification: set when the implementation has reported its name.
    """

    def __init__(
        self,
        settings: Settings,
        launcher: Launcher,
        log: WireLog,
        generator: random.Random,
        identification: Identification,
    ) -> None:
        self.settings = settings
        self.random = generator
        self.running: Optional[Running] = None
        self.is_meant_to_end = False  # set by what makes the implementation end as part of the case
        self._launcher = launcher
        self._log = log
        self._identification = identification
        self._listener: Optional[HoldListener] = None
        self._closers: List[Callable[[], None]] = []

    # The implementation ---------------------------------------------------------------------------------------------

    def start(self, values: Dict[str, str], pipes: bool = False) -> Running:
        """Start the implementation; see Launcher."""
        assert self.running is None, "the implementation has already been started"
        self._log.note("the implementation is started")
        self.running = self._launcher.start(values, pipes)
        return self.running

    def how_it_ended(self) -> Optional[str]:
        """How the implementation ended; None before it starts and while it runs."""
        code = self.running.exit_code() if self.running is not None else None
        if code is None:
            return None
        return f"the implementation ended with exit code {code}" if code >= 0 else f"it was killed by signal {-code}"

    def expect_exit(self, expected: str, requirement: Optional[str] = None) -> int:
        """Wait until the implementation exits by itself, and return its exit code.

        Raises Violation if it does not exit.
        """
        assert self.running is not None
        self.is_meant_to_end = True
        code = self._wait_for_end(self.running, self.settings.deadline_seconds)
        if code is None:
            raise Violation(expected, f"it is still running after {self.settings.deadline_seconds:g} s", requirement)
        self._log.note(f"the implementation ended with exit code {code}")
        return code

    # What cases need ------------------------------------------------------------------------------------------------

    def times(self, count: int) -> int:
        """The number of repetitions of a randomised case that makes `count` of them in a full run; at least 5."""
        return max(5, min(count, int(count * self.settings.effort)))

    def need_feature(self, feature: str) -> None:
        """Raises NotApplicable if the configuration says that the implementation lacks the feature."""
        if feature in self.settings.missing:
            raise NotApplicable(f"the configuration lists {feature} as missing")

    def hold(self, addition: str = "") -> Hold:
        """A task of the conformance function `wait` that runs until this case releases it.

        Parameters:
            addition: what it adds to the tag that it is given.
        """
        if self._listener is None:
            self._listener = HoldListener(self.settings.deadline_seconds, self.how_it_ended)
            self._closers.append(self._listener.close)
        return self._listener.new_hold(addition)

    def at_end(self, close: Callable[[], None]) -> None:
        """Call something when the case is over, whatever its result."""
        self._closers.append(close)

    def dial(
        self,
        address: str,
        name: str,
        make: Callable[..., Conversation] = Conversation,
        identity: bytes = b"",
    ) -> Conversation:
        """Connect to a scheduler, as a client or worker does, and return the conversation over the connection.

        Parameters:
            name: in traces.
            make: the conversation's class, with the parameters of Conversation.
            identity: the ZeroMQ identity of the connection; none by default.
        """
        transport = DealerTransport(address, identity)
        self._closers.append(transport.close)
        transport.conversation = make(name, transport, self.settings, self._log, self.how_it_ended)
        return transport.conversation

    # The end --------------------------------------------------------------------------------------------------------

    def idle(self) -> None:
        """Called repeatedly while the implementation ends, to answer its messages."""

    def say_goodbye(self) -> None:
        """Ask the implementation to end, in the way its role provides; the caller waits for its end."""

    def tear_down(self) -> Teardown:
        """End everything, and return how the implementation ended."""
        try:
            return self._end_implementation() if self.running is not None else Teardown.NOT_STARTED
        finally:
            for close in reversed(self._closers):
                close()

    def _end_implementation(self) -> Teardown:
        running = self.running
        assert running is not None
        verdict = Teardown.CLEAN
        try:
            if running.exit_code() is None:
                self.say_goodbye()
                if self._wait_for_end(running, self.settings.deadline_seconds) is None:
                    verdict = Teardown.UNCLEAN
                    running.terminate()
                    self._wait_for_end(running, self.settings.deadline_seconds / 2)
            elif not self.is_meant_to_end:
                verdict = Teardown.UNCLEAN
            if running.exit_code() is not None:
                left = running.wait_until_gone(self.settings.deadline_seconds / 2)
                for each in left:
                    self._log.note(f"still running after the implementation ended: {each}")
                verdict = Teardown.LEAK if left else verdict
        finally:
            running.kill()
        return verdict

    def _wait_for_end(self, running: Running, seconds: float) -> Optional[int]:
        deadline = time.monotonic() + seconds
        while running.wait(_LOOK_SECONDS) is None and time.monotonic() < deadline:
            self.idle()
        return running.exit_code()


def bench_class(role: str) -> Type[Bench]:
    """The bench of a role."""
    made: Type[Bench] = importlib.import_module(f"scaler_conformance.benches.{role}").RoleBench
    return made
