"""Peers share the scheduler's time by what their messages cost."""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import termios
import time
from collections import Counter
from math import inf
from typing import Dict, List, Tuple

import pytest
from connections_bench import Bench

from scaler_appliance.core.effects import SendChunk
from scaler_appliance.shell import connections
from scaler_appliance.shell.connection_ends import FAULT_SECONDS
from scaler_appliance.shell.connections import CONGESTED_BYTES, READING_SECONDS_PER_BYTE
from scaler_appliance.shell.fair_turns import FairTurns
from scaler_protocol.host.connection import Connection


def take(turns: FairTurns, costs: Dict[bytes, float], count: int) -> List[bytes]:
    """Whose turns come next, with one message a turn."""
    taken = []
    for _ in range(count):
        peer, messages = turns.next()
        messages.popleft()
        turns.end_turn(costs[peer])
        taken.append(peer)
    return taken


def test_messages_of_one_peer_stay_in_order() -> None:
    turns = FairTurns()
    turns.add(b"a", [[b"1"], [b"2"]])
    turns.add(b"a", [[b"3"]])
    seen = []
    while turns:
        _, messages = turns.next()
        seen.append(messages.popleft())
        turns.end_turn(1.0)
    assert seen == [[b"1"], [b"2"], [b"3"]]
    assert b"a" not in turns


def test_peers_share_the_time_however_dear_their_messages_are() -> None:
    turns = FairTurns()
    for peer in (b"dear", b"cheap"):
        turns.add(peer, [[b""]] * 1000)
    shares = Counter(take(turns, {b"dear": 10.0, b"cheap": 1.0}, 110))
    assert shares[b"cheap"] == 100 and shares[b"dear"] == 10


def test_one_very_dear_message_is_paid_for_afterwards() -> None:
    turns = FairTurns()
    turns.add(b"dear", [[b""]] * 2)
    take(turns, {b"dear": 100.0}, 1)  # and there is another one, so that it waits itself
    turns.add(b"other", [[b""]] * 50)
    assert take(turns, {b"other": 1.0}, 50) == [b"other"] * 50
    assert take(turns, {b"dear": 100.0}, 1) == [b"dear"]


def test_who_was_silent_goes_soon_but_has_saved_nothing() -> None:
    turns = FairTurns()
    turns.add(b"busy", [[b""]] * 1000)
    take(turns, {b"busy": 1.0}, 500)
    turns.add(b"silent", [[b""]] * 1000)
    costs = {b"busy": 1.0, b"silent": 1.0}
    assert b"silent" in take(turns, costs, 2)
    assert Counter(take(turns, costs, 100)) == {b"busy": 50, b"silent": 50}


def test_debts_are_not_lost_with_the_last_message() -> None:
    turns = FairTurns()
    turns.add(b"other", [[b""]] * 100)
    for _ in range(10):
        turns.add(b"dear", [[b""]])
        while b"dear" in turns:
            take(turns, {b"dear": 5.0, b"other": 1.0}, 1)
    waiting = len(turns.next()[1])
    assert waiting <= 100 - 45, "who says one dear message at a time pays for each"


def test_costs_besides_turns_count() -> None:
    """Such as those of reading, also while messages wait already."""
    turns = FairTurns()
    turns.charge(b"dear", 50.0)
    for peer in (b"dear", b"cheap"):
        turns.add(peer, [[b""]] * 100)
    assert take(turns, {b"dear": 1.0, b"cheap": 1.0}, 50) == [b"cheap"] * 50
    turns.charge(b"cheap", 20.0)
    assert Counter(take(turns, {b"dear": 1.0, b"cheap": 1.0}, 20))[b"dear"] >= 18


def test_after_a_pause_there_are_no_debts_and_the_first_to_come_goes_first() -> None:
    turns = FairTurns()
    turns.add(b"dear", [[b""]])
    take(turns, {b"dear": 100.0}, 1)
    for peer in (b"dear", b"a", b"b"):
        turns.add(peer, [[b""]])
    assert take(turns, dict.fromkeys((b"dear", b"a", b"b"), 1.0), 3) == [b"dear", b"a", b"b"]


def test_nothing_is_kept_of_who_is_gone() -> None:
    turns = FairTurns()
    for number in range(1000):
        name = b"%d" % number
        turns.add(name, [[b""]])
        take(turns, {name: 1.0}, 1)
        turns.forget(name)
    assert not turns and not turns._costs and not turns._turns


def test_answers_follow_what_their_peer_has_sent_before() -> None:
    turns, part = FairTurns(), SendChunk(b"a", 1, 0, 1, 1)
    turns.add(b"a", [[b"1"]])
    turns.add_answer(b"a", part)
    turns.add(b"a", [[b"2"]])
    _, messages = turns.next()
    assert list(messages) == [[b"1"], part, [b"2"]]


def test_answers_wait_with_the_messages_of_a_paused_peer() -> None:
    turns, part = FairTurns(), SendChunk(b"a", 1, 0, 1, 1)
    turns.add(b"a", [[b"1"]])
    turns.next()
    turns.pause(b"a")
    turns.add_answer(b"a", part)
    assert not turns and b"a" in turns
    turns.resume(b"a")
    assert list(turns.next()[1]) == [[b"1"], part]


def test_answers_that_are_dropped_leave_the_messages() -> None:
    turns, part = FairTurns(), SendChunk(b"a", 1, 0, 1, 1)
    turns.add(b"a", [[b"1"]])
    turns.add_answer(b"a", part)
    turns.drop_answers(b"a")
    turns.drop_answers(b"another")
    assert list(turns.next()[1]) == [[b"1"]]
    turns.pause(b"a")
    turns.add_answer(b"a", part)
    turns.drop_answers(b"a")
    turns.resume(b"a")
    assert list(turns.next()[1]) == [[b"1"]]


def test_a_peer_whose_only_answer_was_dropped_has_an_empty_turn() -> None:
    turns = FairTurns()
    turns.add_answer(b"a", SendChunk(b"a", 1, 0, 1, 1))
    turns.drop_answers(b"a")
    peer, messages = turns.next()
    assert peer == b"a" and not messages
    turns.end_turn(0.0)
    assert not turns and b"a" not in turns


# Connections, with real sockets at their other ends ---------------------------------------------------------------


class Clock:
    """In place of the module `time`: reading, and writing what has waited, take as long as a test says."""

    def __init__(self, patch: pytest.MonkeyPatch, seconds_per_byte: float, seconds_per_flush: float = 0.0) -> None:
        self.now = 0.0
        self.read: List[Connection] = []
        self.flushed: List[Connection] = []
        receive, flush = Connection.receive, Connection.flush

        def timed(connection: Connection) -> List[List[bytes]]:
            before = connection.protocol.held_bytes
            messages = receive(connection)
            arrived = sum(len(frame) for frames in messages for frame in frames)
            self.now += seconds_per_byte * (arrived + connection.protocol.held_bytes - before)
            self.read.append(connection)
            return messages

        def timed_flush(connection: Connection, most_bytes: float = inf) -> bool:
            self.now += seconds_per_flush
            self.flushed.append(connection)
            return flush(connection, most_bytes)

        patch.setattr(Connection, "receive", timed)
        patch.setattr(Connection, "flush", timed_flush)
        patch.setattr(connections, "time", self)

    def perf_counter(self) -> float:
        return self.now

    monotonic = perf_counter


def registered(bench: Bench, count: int) -> List[Tuple[bytes, Connection]]:
    """Callers with sessions."""
    callers = []
    for _ in range(count):
        caller = bench.caller()
        caller.send([b"hello"])
        [(name, _)] = bench.wait_for(1)
        bench.peers.greet(name)
        callers.append((name, caller))
    return callers


def test_reading_a_large_message_costs_its_peer_turns(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    (large_name, large), (small_name, small) = registered(bench, 2)
    Clock(monkeypatch, 1e-8)
    large.send([bytes(1 << 20)])
    while large_name not in bench.peers.turns:
        large.flush()
        bench.peers.receive(0.0, 0.01)
    small.send([b"small"])
    while small_name not in bench.peers.turns:
        bench.peers.receive(0.0, 0.01)
    turns = bench.peers.turns
    assert turns.next()[0] == small_name, "although it came later"
    assert 0.01 <= turns.time_of(large_name) - turns.time_of(small_name) <= 0.011


def test_a_round_of_reading_ends_and_then_those_who_have_cost_least_are_read_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    flooders, [(honest_name, honest)] = registered(bench, 6), registered(bench, 1)
    clock = Clock(monkeypatch, connections.READING_SECONDS / 100_000)
    flood = [b"x", bytes(60_000)]
    for _, flooder in flooders:
        flooder.send(flood)
    for name, _ in flooders:
        wait_until_arrived(bench, name, len(flood[1]))
    for count in (2, 4, 6):
        bench.peers.receive(0.0, 1.0)
        assert len(set(map(id, clock.read))) == len(clock.read) == count, "the others wait for the next round"

    turns = bench.peers.turns
    while turns:
        turns.next()[1].clear()
        turns.end_turn(0.0)
    for name, flooder in flooders:
        turns.charge(name, 1.0)
        flooder.send(flood)
    wait_until_readable(bench, 6)
    bench.peers.receive(0.0, 1.0)
    honest.send([b"honest"])
    wait_until_readable(bench, 5)
    clock.read.clear()
    bench.peers.receive(0.0, 1.0)
    assert clock.read[0] is bench.peers._peers[honest_name].connection


def test_writing_to_those_who_read_slowly_ends_as_well_and_holds_up_no_reading(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloaders, [(honest_name, honest)] = registered(bench, 6), registered(bench, 1)
    for name, _ in downloaders:
        bench.peers.send(name, [bytes(CONGESTED_BYTES)])
    for name, downloader in downloaders:
        descriptor = bench.peers._peers[name].connection.fileno()
        while not select.select([], [descriptor], [], 0)[1]:
            downloader.receive()
    clock = Clock(monkeypatch, 0.0, seconds_per_flush=connections.WRITING_SECONDS * 0.6)
    honest.send([b"honest"])
    for name, _ in [*downloaders, (honest_name, honest)]:
        bench.peers.turns.charge(name, float(name == honest_name))
    wait_until_readable(bench, 7)
    bench.peers.receive(0.0, 1.0)
    assert len(clock.flushed) == 2, "the other downloaders wait for the next round"
    assert honest_name in bench.peers.turns, "though it comes last"
    bench.peers.receive(0.0, 1.0)
    assert len(set(map(id, clock.flushed))) == len(clock.flushed) == 4, "those who have waited"


def wait_until_arrived(bench: Bench, name: bytes, count: int) -> None:
    """So many bytes of a peer can be read at once."""
    descriptor = bench.peers._peers[name].connection.fileno()
    deadline = time.monotonic() + 30.0
    while struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0] < count:
        assert time.monotonic() < deadline, "not all arrives"


def wait_until_readable(bench: Bench, count: int) -> None:
    """What callers have sent has arrived at so many sockets."""
    deadline = time.monotonic() + 30.0
    while len(bench.peers._epoll.poll(0.01)) < count:
        assert time.monotonic() < deadline, "nothing arrives"


def test_what_callers_cost_is_added_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    [(name, caller)] = registered(bench, 1)
    Clock(monkeypatch, 1e-6)
    bench.peers.newcomer_seconds = 0.0
    caller.send([bytes(10_000)])
    bench.wait_for(1)
    assert bench.peers.newcomer_seconds == 0.0
    bench.peers.forget(name, 0.0)
    caller.send([bytes(10_000)])
    bench.wait_for(1)
    assert bench.peers.newcomer_seconds == pytest.approx(0.01)


def test_a_message_whose_end_does_not_come_is_charged_to_all_callers(bench: Bench) -> None:
    """Its reading, that is: as long as the connection lasts, the message may still become work."""
    [(name, caller)] = registered(bench, 1)
    caller.send_encoded(b"\2" + (1 << 20).to_bytes(8, "big") + bytes(500_000))
    while bench.peers._peers[name].connection.protocol.held_bytes < 500_000:
        assert bench.receive(0.01) == []
        caller.flush()
    bench.peers.newcomer_seconds = 0.0
    caller.close()
    assert bench.wait_for_loss() == name
    assert bench.peers.newcomer_seconds >= 500_000 * READING_SECONDS_PER_BYTE + FAULT_SECONDS


def test_the_end_of_a_connection_that_is_not_read_is_reported_when_it_is_read_again(bench: Bench) -> None:
    """Otherwise, the scheduler would hear of it without a pause."""
    [(name, caller)] = registered(bench, 1)
    bench.peers.stop_reading(name)
    caller._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.close()  # which resets the connection
    assert not bench.peers.receive(0.0, 0.01) and not bench.gone
    bench.peers.go_on_reading(name)
    assert bench.wait_for_loss() == name
