"""A scheduler on this machine, as a child process."""

from __future__ import annotations

import os
import select
import shlex
from typing import List, Sequence

from scaler.cluster.appliance import scheduler_command
from scaler.cluster.child_program import ChildProgram, option_arguments
from scaler.cluster.settings import SchedulerOptions, SchedulerSettings, option_values, takes
from scaler.compat.earlier_arguments import accepts_earlier
from scaler.exceptions import ProgramStartError
from scaler.restarts import EXIT_BROKEN_INVARIANT
from scaler.supported_systems import check_system

START_TIMEOUT_SECONDS = 30.0


class SchedulerProcess(ChildProgram):
    """A scheduler process with a given command line.

    Parameters:
        arguments: of `scaler_scheduler`.

    A scheduler that ends because of an internal error is started again at the same address, and clients resubmit their
    unfinished tasks.

    The program is the command in the environment variable SCALER_SCHEDULER if that is set, else the appliance installed
    beside this package, else `scaler_scheduler` on the PATH.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._program = scheduler_command()
        self._arguments = list(arguments)
        super().__init__([*self._program, *self._arguments])
        self._addresses: List[str] = []

    def start(self) -> None:
        """Start the scheduler and wait until it listens.

        Raises ProgramStartError if it ends instead (its own message is on standard error), or takes too long.
        """
        check_system()
        reader, writer = (_not_a_standard_stream(end) for end in os.pipe())
        try:
            self._command += ["--address-file", f"/dev/fd/{writer}"]
            self._launch((writer,))
        finally:
            os.close(writer)
        with os.fdopen(reader) as address_file:
            ready, _, _ = select.select([address_file], [], [], START_TIMEOUT_SECONDS)
            # Read two lines, not until the end: the scheduler inherited the writing end and keeps it open.
            self._addresses = [address_file.readline().strip() for _ in range(2)] if ready else []
        if not all(self._addresses) or not self._addresses:
            code = self.join(1.0)
            self.shutdown()
            raise ProgramStartError(
                f"the scheduler did not start: `{shlex.join(self._command)}` "
                + (f"ended with exit code {code}" if code is not None else "did not begin to listen in time")
            )
        assert self._child is not None
        self._child.start_watching(self._same_again(), EXIT_BROKEN_INVARIANT)

    def _same_again(self) -> List[str]:
        """The command of a scheduler that replaces this one, at its addresses."""
        address, monitor_address = self._addresses
        has_address = bool(self._arguments) and not self._arguments[0].startswith("-")
        options = self._arguments[1:] if has_address else self._arguments
        return [*self._program, address, *options, "--monitor-address", monitor_address]

    def get_address(self) -> str:
        """The address that clients and workers connect to."""
        return self._addresses[0]

    def get_monitor_address(self) -> str:
        """The address that monitors connect to."""
        return self._addresses[1]


def _not_a_standard_stream(descriptor: int) -> int:
    """The same file under a number above those of the standard streams, which a program may have closed."""
    if descriptor > 2:
        return descriptor
    import fcntl

    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(descriptor)


class Scheduler(SchedulerProcess):
    """A scheduler process.

    Parameters:
        address: where it listens; None chooses a free port of this machine.
        announce: whether `Client()` and `scaler_cluster` without an address find it, in other programs too.
        Others are the options of `scaler_scheduler`, by the same names; `scaler_scheduler -h` explains them. Durations
        are seconds or texts such as "30s", sizes are bytes or texts such as "1GB".

    See `SchedulerProcess` for which program is started.
    """

    @accepts_earlier("Scheduler")
    @takes(SchedulerSettings)
    def __init__(self, settings: SchedulerSettings) -> None:
        super().__init__(
            [
                settings.address or "tcp://127.0.0.1:0",
                "--exit-when-stdin-closes",
                *option_arguments(
                    monitor_address=settings.monitor_address,
                    announce=settings.announce,
                    **option_values(settings, SchedulerOptions),
                ),
            ]
        )
