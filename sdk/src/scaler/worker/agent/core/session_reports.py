"""What a worker logs when its session, or its search for a scheduler, is interrupted or ends."""

from __future__ import annotations

from typing import NamedTuple, Optional

from scaler.worker.agent.core.effects import ERROR, INFO, WARNING, Log
from scaler.worker.exit_codes import EXIT_NO_SCHEDULER, EXIT_REFUSED
from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol import messages as m
from scaler_protocol.session.effects import EndCause, Ended, Interrupted


class End(NamedTuple):
    """Parameters:
    exit_code: of the program; None: as was decided before.
    """

    log: Optional[Log]
    exit_code: Optional[int] = None


def report_of_interruption(effect: Interrupted, address: str) -> Log:
    """What is logged when another attempt follows."""
    refusal = effect.refusal
    if refusal is not None and refusal.reason == m.RefusalReason.NOT_GREETED:
        return Log(WARNING, "Worker: the scheduler does not know this worker (any more), reconnecting")
    if refusal is not None:
        return Log(INFO, f"Worker: the scheduler shuts down ({refusal.message or 'no reason given'}), reconnecting")
    if effect.was_open:
        return Log(WARNING, f"Worker: the connection to the scheduler was lost ({effect.reason}), reconnecting")
    return Log(WARNING, f"Worker: no scheduler answers at {address} yet ({effect.reason}), trying again")


def report_of_end(effect: Ended, settings: WorkerSettings) -> End:
    """What is logged when the session has ended for good."""
    address = settings.address
    if effect.cause is EndCause.GAVE_UP:
        seconds = f"{settings.death_timeout_seconds:g} seconds (death_timeout_seconds)"
        text = f"Worker: no scheduler answered at {address} for {seconds}, giving up: {effect.reason}"
        return End(Log(ERROR, text), EXIT_NO_SCHEDULER)
    if effect.cause is EndCause.REFUSED:
        reason = effect.refusal.reason if effect.refusal is not None else ""
        name = getattr(reason, "name", str(reason))
        return End(Log(ERROR, f"Worker: refused by the scheduler ({name}): {effect.reason}"), EXIT_REFUSED)
    if effect.cause is EndCause.NOT_A_SCHEDULER:
        text = f"the program at {address} is not a Scaler scheduler, or an incompatible one: {effect.reason}"
        return End(Log(ERROR, f"Worker: {text}"), EXIT_REFUSED)
    if effect.cause is EndCause.SHUT_DOWN:
        return End(Log(INFO, f"Worker: the scheduler asks to stop: {effect.reason or 'shutdown'}"))
    return End(None)
