"""Callers that make faults all the time do not keep those from other addresses from being accepted."""

from __future__ import annotations

import selectors
import socket
import statistics
import threading
import time
from typing import List

from scheduler_process import SchedulerProcess, check_others_work

from scaler_protocol.host.addresses import parse_address, resolve

FLOODING_STREAMS, FAULTS_BEFORE = 128, 400  # twice what all callers together may make at once
ACCEPTED_WITHIN_SECONDS = 1.0


class Flood(threading.Thread):
    """Calls from one address, sends what is no greeting, and calls again once that has ended the connection."""

    def __init__(self, address: str, source: str) -> None:
        super().__init__(daemon=True)
        self.target = resolve(parse_address(address))[1]
        self.source = source
        self.ends = 0
        self.has_begun, self.is_over = threading.Event(), threading.Event()

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for _ in range(FLOODING_STREAMS):
                self._call(selector)
            while not self.is_over.is_set():
                for key, _ in selector.select(0.1):
                    assert isinstance(key.fileobj, socket.socket)
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    self.ends += 1
                    self._call(selector)
                if self.ends >= FAULTS_BEFORE:
                    self.has_begun.set()
            for key in list(selector.get_map().values()):
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.close()

    def _call(self, selector: selectors.BaseSelector) -> None:
        stream = socket.socket()
        stream.bind((self.source, 0))
        stream.settimeout(30.0)
        try:
            stream.connect(self.target)
            stream.sendall(b"this is no greeting of ZeroMQ")
        except ConnectionError:
            pass  # it was turned away, which is seen when it is read
        selector.register(stream, selectors.EVENT_READ)


def test_a_caller_from_another_address_is_greeted_within_a_second(scheduler: SchedulerProcess) -> None:
    """Most of them are: one may meet a stop of the scheduler or of this process. Otherwise all wait for seconds."""
    flood = Flood(scheduler.address, "127.0.0.3")
    flood.start()
    assert flood.has_begun.wait(60.0)
    seconds: List[float] = []
    try:
        for _ in range(10):
            begin = time.monotonic()
            with socket.socket() as honest:
                honest.bind(("127.0.0.4", 0))
                honest.settimeout(30.0)
                honest.connect(flood.target)
                assert honest.recv(1) == b"\xff"
            seconds.append(time.monotonic() - begin)
        check_others_work(scheduler)  # at the local socket
    finally:
        flood.is_over.set()
        flood.join(60.0)
    assert statistics.median(seconds) < ACCEPTED_WITHIN_SECONDS
    assert "callers from 127.0.0.3 have made too many faults" in scheduler.output()
