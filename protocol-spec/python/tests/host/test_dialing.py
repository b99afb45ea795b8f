"""Connecting to the first that answers: in which order places are tried, and what an error says about each."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
from contextlib import ExitStack, closing, suppress
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import pytest
from played_names import Answer, no_such_name, play_names, silent_name_server

from scaler_protocol.host.addresses import Address, Target, parse_addresses, why_not_connected
from scaler_protocol.host.dialing import ATTEMPT_DELAY_SECONDS, Dialing, Place, Race

WAIT_MILLISECONDS = 30_000
REFUSED = OSError(errno.ECONNREFUSED, "Connection refused")
A: List[Target] = [(socket.AF_INET6, ("fd00::1", 1, 0, 0)), (socket.AF_INET, ("10.0.0.1", 1))]
B: List[Target] = [(socket.AF_INET, ("10.0.0.2", 1))]


ANSWERING, REFUSING = "127.0.83.1", "127.0.83.2"
"""Addresses of these tests alone: others listen at any port of 127.0.0.1 and 127.0.0.2."""

# Which place is tried when: the race, in simulated time ---------------------------------------------------------------


def tried(race: Race, until: float, fails_after: Callable[[Place], float] = lambda place: float("inf")) -> List[Any]:
    """When which place is tried, up to a time, as (time, host)."""
    tries: List[Tuple[float, Any]] = []
    ends: Dict[Place, float] = {}
    now = 0.0
    while True:
        now = max(now, min([race.next_time, *ends.values()]))
        if now > until:
            return tries
        for place in [place for place, end in ends.items() if end <= now]:
            del ends[place]
            race.on_failed(place, REFUSED, now)
        begun = race.take_due(now)
        if begun is not None:
            tries.append((now, begun.target[1][0]))
            ends[begun] = now + fails_after(begun)


def test_a_silent_place_delays_the_next_one_by_a_quarter_of_a_second() -> None:
    race = Race(1, 0.0)
    race.on_resolved(0, A)
    assert tried(race, until=10.0) == [(0.0, "fd00::1"), (ATTEMPT_DELAY_SECONDS, "10.0.0.1")]
    race.end()
    assert race.is_lost
    assert [error.errno for _, _, error in race.failures] == [errno.ETIMEDOUT, errno.ETIMEDOUT]


def test_after_a_refusal_the_next_place_is_tried_at_once() -> None:
    race = Race(2, 0.0)
    race.on_resolved(0, A)
    race.on_resolved(1, B)
    tries = tried(race, until=10.0, fails_after=lambda place: 0.01)
    assert tries == [(0.0, "fd00::1"), (0.01, "10.0.0.1"), (0.02, "10.0.0.2")]
    assert race.is_lost and len(race.failures) == 3


def test_a_name_that_is_being_resolved_holds_the_less_preferred_for_a_moment_only() -> None:
    race = Race(2, 0.0)
    race.on_resolved(1, B)
    assert race.next_time == ATTEMPT_DELAY_SECONDS
    assert tried(race, until=1.0) == [(ATTEMPT_DELAY_SECONDS, "10.0.0.2")]
    race.on_resolved(0, A)
    begun = race.take_due(1.0)
    assert begun is not None and begun.position == 0, "it is tried as soon as it is known"


def test_a_name_that_does_not_resolve_holds_up_nothing() -> None:
    race = Race(2, 0.0)
    race.on_resolved(1, B)
    race.on_unresolved(0, socket.gaierror(socket.EAI_NONAME, "no such name"))
    assert tried(race, until=1.0) == [(0.0, "10.0.0.2")]


# With sockets ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as closed_at_end:
        yield closed_at_end


def listening(stack: ExitStack, family: int = socket.AF_INET, host: str = "127.0.0.1") -> Tuple[socket.socket, int]:
    listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
    listener.bind((host, 0))
    listener.listen()
    return listener, listener.getsockname()[1]


def listening_beside_a_refusal(stack: ExitStack) -> Tuple[socket.socket, int]:
    """One that listens at ANSWERING, at a port that is refused at REFUSING: other tests listen at other addresses."""
    port = refusing_port(stack, host=REFUSING)
    listener = stack.enter_context(socket.socket())
    listener.bind((ANSWERING, port))
    listener.listen()
    return listener, port


def refusing_port(stack: ExitStack, family: int = socket.AF_INET, host: str = "127.0.0.1") -> int:
    bound = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
    bound.bind((host, 0))
    return int(bound.getsockname()[1])


def dial(stack: ExitStack, text: str) -> Dialing:
    return stack.enter_context(closing(Dialing(parse_addresses(text))))


def connected(dialing: Dialing) -> socket.socket:
    """Raises OSError when it has failed."""
    assert select.select([dialing.fileno()], [], [], WAIT_MILLISECONDS / 1000)[0], "it says nothing"
    stream = dialing.finish()
    assert stream is not None
    return stream


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Dict[str, Answer]:
    return play_names(monkeypatch)


def test_the_address_of_a_name_that_answers_wins(stack: ExitStack, names: Dict[str, Answer]) -> None:
    listener, port = listening_beside_a_refusal(stack)
    names["scheduler.example"] = lambda: [REFUSING, ANSWERING]
    dialing = dial(stack, f"tcp://scheduler.example:{port}")
    with connected(dialing) as stream:
        assert stream.getpeername() == listener.getsockname()
    assert dialing.reached == Address("scheduler.example", port)


def test_of_several_addresses_the_one_that_answers_wins(stack: ExitStack) -> None:
    listener, port = listening(stack)
    refusing = refusing_port(stack)
    dialing = dial(stack, f"tcp://127.0.0.1:{refusing},tcp://127.0.0.1:{port}")
    with connected(dialing) as stream:
        assert stream.getpeername() == listener.getsockname()
    assert dialing.reached == Address("127.0.0.1", port)


def test_a_name_that_is_never_resolved_does_not_keep_others_waiting(stack: ExitStack, names: Dict[str, Answer]) -> None:
    listener, port = listening(stack)
    names["lost.example"] = silent_name_server(stack)
    dialing = dial(stack, f"tcp://lost.example:1,tcp://127.0.0.1:{port}")
    with connected(dialing) as stream:
        assert stream.getpeername() == listener.getsockname()


def test_names_are_resolved_again_at_each_attempt(stack: ExitStack, names: Dict[str, Answer]) -> None:
    listener, port = listening(stack)
    elsewhere = ["127.0.0.3"]  # where nothing listens
    names["moved.example"] = lambda: elsewhere
    with pytest.raises(OSError, match=r"which is 127\.0\.0\.3, \(Connection refused\)"):
        connected(dial(stack, f"tcp://moved.example:{port}"))
    elsewhere[:] = ["127.0.0.1"]
    with connected(dial(stack, f"tcp://moved.example:{port}")) as stream:
        assert stream.getpeername() == listener.getsockname()


def test_the_error_says_what_happened_at_each_place(stack: ExitStack, names: Dict[str, Answer]) -> None:
    names["half.example"] = lambda: [ANSWERING, REFUSING]
    names["no-such-name.invalid"] = no_such_name
    port = refusing_port(stack, host=REFUSING)
    with pytest.raises(OSError) as raised:
        connected(dial(stack, f"tcp://half.example:{port},tcp://no-such-name.invalid:1"))
    error = raised.value
    assert error.errno == errno.ECONNREFUSED
    said = why_not_connected(Address("half.example", port), error)
    assert f"nothing listens at tcp://half.example:{port}, which is {ANSWERING}, (Connection refused)" in said
    assert f"nothing listens at tcp://half.example:{port}, which is {REFUSING}, (Connection refused)" in said
    assert "tcp://no-such-name.invalid:1" in said


def test_an_attempt_that_is_given_up_says_what_was_silent(stack: ExitStack, names: Dict[str, Answer]) -> None:
    names["lost.example"] = silent_name_server(stack)
    dialing = dial(stack, "tcp://lost.example:1")
    assert dialing.finish() is None
    assert "cannot be resolved for now" in str(dialing.error().strerror)


def test_an_owner_that_gives_up_leaves_no_socket(stack: ExitStack, names: Dict[str, Answer]) -> None:
    listener, port = listening(stack)
    is_asked, go_on = threading.Event(), threading.Event()

    def slow_name_server() -> Sequence[str]:
        is_asked.set()
        go_on.wait()
        return ["127.0.0.1"]

    names["slow.example"] = slow_name_server
    before = {thread.ident for thread in threading.enumerate()}
    dialing = Dialing(parse_addresses(f"tcp://slow.example:{port}"))
    assert is_asked.wait(WAIT_MILLISECONDS / 1000)  # so that all of its threads have been started
    mine = [thread for thread in threading.enumerate() if thread.is_alive() and thread.ident not in before]
    dialing.close()
    go_on.set()
    for thread in mine:
        thread.join(WAIT_MILLISECONDS / 1000)
        assert not thread.is_alive()
    listener.setblocking(False)
    for _ in range(2):  # whether it had connected before it noticed or not
        try:
            stream, _ = listener.accept()
        except BlockingIOError:
            break
        with stream, suppress(ConnectionResetError):  # it may have been closed before it was accepted
            assert stream.recv(1) == b""


# What the system's errors mean ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "unknown host name in tcp://db:1"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "cannot be resolved for now (Temporary failure)"),
        (REFUSED, "nothing listens at tcp://db:1 (Connection refused)"),
        (OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)), "no answer from tcp://db:1"),
        (OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH)), "tcp://db:1 is unreachable (No route to host)"),
        (OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH)), "tcp://db:1 is unreachable"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "accepted the connection and closed it"),
    ],
)
def test_causes_are_told_apart(error: OSError, said: str) -> None:
    assert said in why_not_connected(Address("db", 1), error)
