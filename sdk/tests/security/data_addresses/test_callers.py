"""Callers at the data address of a worker get bytes only with a ticket of the scheduler, and the key that it is for.

    scheduler ── ticket ──▶ a worker that holds an object ◀── callers of another user of the host
                    └─────▶ a played worker, which is served all the time

Rule: a caller that is turned away leaves the ticket, and the place, to whom they belong.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from typing import Any, Iterator, List

import pytest
from security.attackers.another_user import AnotherUser
from security.data_addresses.crowds import Flood, Idlers
from security.data_addresses.played_workers import Caller, Callers, DataDoor, PlayedWorker, secured, wire_to
from security.data_addresses.scene import Scene
from security.keyed_peer import tenant_key
from security.test_attackers import CHANGES, OPENINGS
from security.test_nothing_is_decoded import spoil

from scaler_protocol import messages as m
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.wire.curve import KeyPair
from scaler_protocol.wire.zmtp import GREETING_BYTES, Zmtp, ZmtpError, greeting

UNKNOWN, FOREIGN, EXPIRED = (
    m.RefusalReason.TICKET_UNKNOWN,
    m.RefusalReason.TICKET_FOREIGN,
    m.RefusalReason.TICKET_EXPIRED,
)
COMING, STAYING = 300, 100  # of idle callers that come, so many at least are connected still


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("scene"))
    yield made
    made.close()


@pytest.fixture
def is_not_decoded(scene: Scene) -> Iterator[None]:
    """Nothing of what is sent in the test is decoded."""
    before = scene.decoded.read_text()
    yield
    assert scene.decoded.read_text() == before
    scene.fetch()
    assert scene.decoded.read_text() != before, "what an honest worker says is"


def refusal_of(another_user: AnotherUser, scene: Scene, keys: KeyPair, door: DataDoor) -> m.RefusalReason:
    """Why a caller of the other user is refused, after which it hears no more."""
    holder = scene.holder

    def attack() -> int:
        with Caller(holder, keys, door) as caller:
            answer, payload = caller.ask()
            assert isinstance(answer, m.Refusal) and not payload, f"was told {answer}"
            assert caller.is_closed()
            return int(answer.reason)

    return m.RefusalReason(another_user.runs(attack))


def test_who_has_a_ticket_gets_the_object_for_comparison(scene: Scene) -> None:
    scene.fetch()


# Without a handshake ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("is_not_decoded")
def test_other_openings_close_the_connection(scene: Scene, another_user: AnotherUser) -> None:
    """Among them callers without a key, with mechanisms NULL and PLAIN, and with a key for another worker."""
    holder, door, sodium = scene.holder, scene.door(scene.ticket().secret), load_sodium()
    elsewhere = holder._replace(key=sodium.new_keys().public)
    message = b"".join(b"\0" + bytes((len(frame),)) + frame for frame in door.first_message())

    def attack() -> None:
        for opening in OPENINGS.values():
            with wire_to(holder, door) as wire:
                wire.send((opening or greeting(b"CURVE")) + message * 3)
                assert wire.is_closed()
                assert b"READY" not in wire.heard
        for other in (
            Zmtp("DEALER", 1 << 20),
            secured(elsewhere, sodium.new_keys()),
        ):
            with wire_to(holder, door) as wire, pytest.raises((OSError, ZmtpError)):
                wire.shake_hands(other)

    another_user.runs(attack)


@pytest.mark.usefixtures("is_not_decoded")
def test_a_handshake_that_was_changed_or_cut_closes_the_connection(scene: Scene, another_user: AnotherUser) -> None:
    """Also one with the right key, and a valid ticket; what follows a handshake is sealed, and was changed, too."""
    holder, keys, door = scene.holder, scene.fetcher.key.keys, scene.door(scene.ticket().secret)

    def attack() -> None:
        for command, change in CHANGES.values():
            with wire_to(holder, door) as wire:
                spoil(wire, command, change)
                protocol = secured(holder, keys)
                with suppress(OSError, ZmtpError):
                    wire.shake_hands(protocol)
                    wire.say_hello(protocol)
                assert wire.is_closed()
        for count in (10, GREETING_BYTES, GREETING_BYTES + 100, GREETING_BYTES + 302):
            with wire_to(holder, door) as wire:
                protocol = secured(holder, keys)
                sent = protocol.take_output()
                protocol.feed(greeting(b"CURVE", True))
                sent += protocol.take_output()
                wire.send((sent + bytes(200))[:count])
                wire.send_end()
                assert wire.is_closed()

    another_user.runs(attack)


@pytest.mark.usefixtures("is_not_decoded")
def test_a_recorded_connection_is_of_no_use(scene: Scene, another_user: AnotherUser) -> None:
    holder, keys, door = scene.holder, scene.fetcher.key.keys, scene.door(scene.ticket().secret)
    with Caller(holder, keys, DataDoor(b"")) as caller:  # it has not said anything yet, so the ticket is valid
        sent = b"".join(caller.wire.sent)

        def attack() -> None:
            with wire_to(holder, door) as wire:
                wire.send(sent)
                assert wire.is_closed()
                assert b"READY" not in wire.heard

        another_user.runs(attack)


# With a key ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["client", "worker", "monitor", "admin", "provisioner", "owner", "none"])
def test_a_ticket_is_of_no_use_with_another_key(scene: Scene, another_user: AnotherUser, role: str) -> None:
    """Of each role, of another tenant, and one that is not admitted."""
    keys = load_sodium().new_keys()
    if role != "none":
        tenant = {"worker": "bob", "client": "alice", "owner": "default"}.get(role, "*")
        keys = tenant_key(scene.scheduler, role, tenant).keys
    ticket = scene.ticket()
    assert refusal_of(another_user, scene, keys, scene.door(ticket.secret)) == FOREIGN
    with Caller(scene.holder, scene.fetcher.key.keys, scene.door(ticket.secret)) as caller:
        assert caller.ask()[1], "it is still there for the worker that it is for"


def test_a_ticket_is_not_made_up_nor_used_again(scene: Scene, another_user: AnotherUser) -> None:
    holder, keys = scene.holder, scene.fetcher.key.keys
    used, valid = scene.door(scene.ticket().secret), scene.ticket().secret
    with Caller(holder, keys, used) as caller:
        assert caller.ask()[1]
        assert refusal_of(another_user, scene, keys, used) == FOREIGN, "of another connection"
        assert caller.ask()[1], "the connection that has used it goes on"
    doors = [used, *map(scene.door, (os.urandom(32), b"", valid[:31], valid + b"\0"))]

    def attack() -> List[int]:
        callers = [Caller(holder, keys, door) for door in doors]
        for caller in callers:
            caller.say()
        answers: List[Any] = [caller.answer()[0] for caller in callers]
        assert all(caller.is_closed() for caller in callers)
        return [int(answer.reason) for answer in answers]

    assert set(another_user.runs(attack)) == {UNKNOWN}


def test_a_ticket_opens_no_other_object(scene: Scene, another_user: AnotherUser) -> None:
    for other in (1, 1 << 40, -scene.object_id):
        door = scene.door_of(scene.object_id + other, scene.ticket().secret)
        assert refusal_of(another_user, scene, scene.fetcher.key.keys, door) == FOREIGN


@pytest.mark.parametrize("is_used", [False, True])
def test_a_ticket_is_of_no_use_when_its_key_is_revoked_or_has_expired(
    scene: Scene, another_user: AnotherUser, is_used: bool
) -> None:
    """Neither one that was not used before, nor one that was."""
    scene.drop()
    names = [f"{each}-{is_used}" for each in ("revoked", "expires")]
    holder = scene.holder
    with ExitStack() as stack:
        peers = [stack.enter_context(scene.new_fetcher(name)) for name in names]
        for peer in peers:
            assert peer.announced() == scene.object_id
        doors = [scene.door(peer.ticket(scene.object_id).secret) for peer in peers]
        start = another_user.starts(Callers, holder, [peer.key.keys for peer in peers], doors)
        callers = stack.enter_context(start)
        if is_used:
            assert all(payload for _, payload in callers.ask())
        expires = int(time.time()) + 2
        scene.scheduler.keys.revoke(names[0])
        scene.scheduler.expire(expires, names[1])
        assert all(peer.is_closed() for peer in peers)
        assert time.time() >= expires
        scene.fetch()  # what the scheduler has told the holder before this is known there
        for answer, payload in callers.ask():
            assert isinstance(answer, m.Refusal) and answer.reason == EXPIRED and not payload


def test_a_worker_of_another_tenant_gets_no_ticket(scene: Scene, another_user: AnotherUser) -> None:
    for tenant in ("bob", "default"):
        key = tenant_key(scene.scheduler, "worker", tenant)
        with another_user.starts(PlayedWorker, scene.scheduler.address, key) as worker:
            answers = [worker.ticket(each) for each in (scene.object_id, scene.object_id + 7)]
        assert [each.id for each in answers] == [scene.object_id, scene.object_id + 7]
        assert not any(each.holder or each.secret or each.address or each.key for each in answers)


# In numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_keys", [False, True])
def test_workers_are_served_beside_callers_that_do_nothing(
    scene: Scene, another_user: AnotherUser, has_keys: bool
) -> None:
    with another_user.starts(Idlers, scene.holder, scene.door(b"none"), COMING, has_keys) as idlers:
        scene.fetch()
        assert STAYING < idlers.count() < COMING, "some have made room, and the others are still there"


def test_workers_are_served_beside_a_flood_of_handshakes(scene: Scene, another_user: AnotherUser) -> None:
    """From the same address as these workers."""
    with another_user.starts(Flood, scene.holder, scene.door(os.urandom(32))) as flood:
        flood.wait_until_came(20)
        scene.fetch()
