"""The loop of `scaler_provision`: messages, time and adapters in, effects out.

    poll ──▶ session ──Demand, Release──▶ ProvisionCore ──effects──▶ messages, and calls of adapters in threads
      ▲                                        ▲
      └── waker ◀── a call has ended ──────────┘

Rules:
- One thread decides; others only call adapters, and put what came of it into a queue.
- The session is found again for as long as the program runs: units go on without it.
"""

from __future__ import annotations

import logging
import os
import queue
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Union

from scaler.client.shell.polled_transport import PolledTransport
from scaler.client.shell.transport import described
from scaler.exceptions import DisconnectedError
from scaler.provision.core.provision_core import Log, ProvisionCore, SendMessage, StartUnits, StopUnit
from scaler.provision.unit_adapters import UnitAdapter, UnitError
from scaler_protocol.host.addresses import parse_addresses, why_not_connected
from scaler_protocol.host.waker import Waker
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.session.effects import (
    Connect,
    Disconnect,
    Interrupted,
    Opened,
    SessionEffect,
    StopConnecting,
    Transmit,
)
from scaler_protocol.session.features import PROVISIONING
from scaler_protocol.session.peer_session import PeerSession, SessionSettings
from scaler_protocol.wire import messages as m
from scaler_protocol.wire.codec import decode
from scaler_protocol.wire.errors import MalformedMessageError

TICK_SECONDS = 0.25
CALLS_AT_ONCE = 4  # of adapters
LEAVE_SECONDS = 2.0
ONE_REQUEST_SECONDS = 0.5

logger = logging.getLogger("scaler")


class Provisioner:
    """
    Parameters:
        credentials: for the scheduler, at its address.
        core: has the policy.
        adapters: by pool.
        listing_seconds: between two listings, by pool.
    """

    def __init__(
        self,
        credentials: Credentials,
        core: ProvisionCore,
        adapters: Dict[str, UnitAdapter],
        listing_seconds: Mapping[str, float],
    ) -> None:
        self._core, self._adapters, self._listing_seconds = core, adapters, listing_seconds
        self._address = parse_addresses(credentials.address)[0]
        self._waker = Waker()
        self._transport = PolledTransport(credentials, self._waker)
        hello = m.Hello(role=m.Role.CLIENT, name=f"scaler_provision {os.getpid()}", features=[PROVISIONING])
        self._session_effects: List[SessionEffect] = []
        settings = SessionSettings(heartbeat_interval_seconds=2.0)
        self._session = PeerSession(
            described(hello), settings, self._session_effects, lambda now: m.Heartbeat(), random.random
        )
        self._calls = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="scaler-units")
        self._done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._next_listing: Dict[str, float] = dict.fromkeys(adapters, 0.0)
        self._faults: Dict[str, str] = {}  # of listings, by pool
        self._is_asked_to_stop = False
        self._asked_at = 0.0  # for the first time
        self._failure = ""  # why no session can be had
        self._is_unreachable = False  # as was said

    def stop(self) -> None:
        """End soon, and the second time at once; for signal handlers and other threads.

        One Ctrl-C may arrive twice, from the terminal and from a program that wraps this one: what comes within
        ONE_REQUEST_SECONDS counts once.
        """
        now = time.monotonic()
        if not self._is_asked_to_stop:
            self._asked_at = now
        elif now >= self._asked_at + ONE_REQUEST_SECONDS:
            for adapter in self._adapters.values():
                adapter.hurry()
        self._is_asked_to_stop = True
        self._waker.write(b".")

    def run(self) -> str:
        """Until it is stopped, or the scheduler ends or refuses it; returns why, empty if it was stopped."""
        self._session.start(time.monotonic())
        next_tick = 0.0
        try:
            while not self._failure and not self._is_asked_to_stop:
                self._perform()
                now = time.monotonic()
                ends = min(next_tick, self._session.next_time)
                is_readable = self._transport.wait(max(0.0, ends - now))
                now = time.monotonic()
                if is_readable:
                    self._receive()
                if now >= self._session.next_time:
                    self._session.on_time(now)
                self._take_calls()
                if now >= next_tick:
                    next_tick = now + TICK_SECONDS
                    self._core.on_time(now)
                    self._list(now)
        finally:
            self._leave()
        return self._failure

    def _leave(self) -> None:
        if self._session.is_open:
            self._session.leave(time.monotonic(), "it was stopped")
            self._perform_session()
        self._transport.close(LEAVE_SECONDS, time.monotonic)
        self._calls.shutdown(wait=True)
        for adapter in self._adapters.values():
            adapter.close()
        self._waker.close()

    # The scheduler ----------------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        now = time.monotonic()
        if self._transport.is_connecting:
            self._connected(self._transport.finish_connecting)
            return
        try:
            for header, *_ in self._transport.receive():
                message = decode(header)
                if self._session.on_message(now, message):
                    self._on_message(now, message)
                self._perform_session()
        except DisconnectedError as error:
            self._session.on_disconnected(now, str(error))
        except MalformedMessageError as error:
            self._session.interrupt(now, f"the scheduler sent bytes that cannot be read as a message: {error}")

    def _on_message(self, now: float, message: object) -> None:
        if isinstance(message, m.Demand):
            self._core.on_demand(now, message)
        elif isinstance(message, m.Release):
            self._core.on_release(now, message)

    def _connected(self, attempt: Callable[[], bool]) -> None:
        try:
            if attempt():
                self._session.on_connected(time.monotonic())
        except (OSError, MemoryError) as error:
            self._transport.drop()
            self._on_connect_failed(error)

    def _on_connect_failed(self, error: Union[OSError, MemoryError]) -> None:
        reason = why_not_connected(self._address, error) if isinstance(error, OSError) else "out of memory"
        if not self._is_unreachable:
            self._is_unreachable = True
            logger.warning("%s: trying again", reason)
        self._session.on_connect_failed(time.monotonic(), reason)

    def _perform_session(self) -> None:
        while self._session_effects:
            effect = self._session_effects.pop(0)
            if isinstance(effect, Transmit):
                self._transport.send(effect.message)
            elif isinstance(effect, Connect):
                self._connected(self._transport.connect)
            elif isinstance(effect, StopConnecting):
                error = self._transport.stop_connecting()
                self._transport.drop()
                self._on_connect_failed(error)
            elif isinstance(effect, Disconnect):
                self._transport.drop()
            elif isinstance(effect, Opened):
                self._on_opened(effect.welcome)
            elif isinstance(effect, Interrupted):
                self._core.on_lost()
                if effect.was_open:
                    logger.warning("the scheduler is lost: %s; units go on, and none is started", effect.reason)
            elif not self._is_asked_to_stop:
                self._core.on_lost()
                refusal = effect.refusal
                why = effect.reason if refusal is None else str(self._transport.refusal_error(refusal))
                self._failure = why or "the scheduler has ended the session"

    def _on_opened(self, welcome: m.Welcome) -> None:
        if PROVISIONING not in welcome.features:
            version = welcome.implementation.version
            self._failure = (
                f"the scheduler (version {version}) does not serve provisioners: start one of a newer version"
            )
            return
        self._is_unreachable = False
        logger.info("connected to the scheduler, session %d", welcome.session)
        self._core.on_opened(time.monotonic())

    # Effects ----------------------------------------------------------------------------------------------------------

    def _perform(self) -> None:
        self._perform_session()
        for effect in self._core.take_effects():
            if isinstance(effect, SendMessage):
                if self._session.is_open:
                    self._transport.send(effect.message)
            elif isinstance(effect, StartUnits):
                for unit in effect.units:
                    logger.info("starts unit %s", unit)
                most = self._adapters[effect.pool].most_together
                for first in range(0, len(effect.units), most):
                    self._calls.submit(self._start, effect.pool, effect.units[first : first + most])
            elif isinstance(effect, StopUnit):
                logger.info("stops unit %s", effect.unit)
                self._calls.submit(self._stop, effect)
            elif isinstance(effect, Log):
                logger.log(logging.getLevelName(effect.level), "%s", effect.text)

    def _take_calls(self) -> None:
        while True:
            try:
                report = self._done.get_nowait()
            except queue.Empty:
                return
            report()

    def _report(self, report: Callable[[], None]) -> None:
        """From a thread: what came of a call."""
        self._done.put(report)
        self._waker.write(b".")

    def _start(self, pool: str, units: Sequence[str]) -> None:
        while units and not self._is_asked_to_stop:  # while they waited for their turn: nothing would know of them
            units = units[self._start_some(pool, units) :]

    def _start_some(self, pool: str, units: Sequence[str]) -> int:
        """Start the first of these units; returns of how many it is known what came of that."""
        counts: List[int] = []
        fault = _fault_of(lambda: counts.append(self._adapters[pool].start_together(units)))
        if fault is not None:
            self._report(lambda: self._core.on_start_failed(time.monotonic(), units, fault))
            return len(units)
        self._report(lambda: self._core.on_started(time.monotonic(), units[: counts[0]]))
        return counts[0]

    def _stop(self, effect: StopUnit) -> None:
        fault = _fault_of(lambda: self._adapters[effect.pool].stop(effect.unit))
        if fault is not None:
            self._report(lambda: logger.error("unit %s cannot be stopped: %s", effect.unit, fault))

    def _list(self, now: float) -> None:
        for pool, due in self._next_listing.items():
            if now >= due:
                self._next_listing[pool] = float("inf")  # until it has ended
                self._calls.submit(self._list_pool, pool, now)

    def _list_pool(self, pool: str, asked: float) -> None:
        try:
            found = self._adapters[pool].list()
        except Exception as error:
            fault = str(error) if isinstance(error, UnitError) else f"{type(error).__name__}: {error}"
            self._report(lambda: self._on_listing_failed(pool, fault))
            return

        def listed() -> None:
            self._faults.pop(pool, None)
            self._next_listing[pool] = time.monotonic() + self._listing_seconds[pool]
            self._core.on_listing(time.monotonic(), pool, asked, found)

        self._report(listed)

    def _on_listing_failed(self, pool: str, fault: str) -> None:
        self._next_listing[pool] = time.monotonic() + self._listing_seconds[pool]
        if self._faults.get(pool) != fault:
            self._faults[pool] = fault
            logger.error("the units of the pool %s cannot be listed: %s", pool, fault)
            self._core.on_listing_failed(time.monotonic(), pool, fault)


def _fault_of(call: Callable[[], None]) -> Optional[str]:
    """Why a call has failed; None if it has not."""
    try:
        call()
    except UnitError as error:
        return str(error)
    except Exception as error:  # a bug in an adapter must not leave a unit in the air
        logger.exception("a unit cannot be started or stopped")
        return f"{type(error).__name__}: {error}"
    return None
