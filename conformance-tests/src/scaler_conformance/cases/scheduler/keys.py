"""A scheduler that requires keys, and peers with and without an admitted one."""

from __future__ import annotations

from typing import Dict

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.curve_keys import Keys, new_keys
from scaler_conformance.playing.monitor_peers import PlayedMonitor
from scaler_conformance.playing.scheduler_peers import PlayedClient, PlayedWorker


def check_admitted_are_served(bench: RoleBench, keys: Dict[str, Keys], size: int = 100) -> None:
    """A client and a worker with admitted keys must be served."""
    client, worker = bench.client(keys=keys["client"]), bench.worker(keys=keys["worker"])
    payload = b"[" + b"1" * size + b"]"
    (task,) = client.submit_payloads([payload])
    worker.succeed(worker.expect_task(payload))
    client.expect_outcome(task, "success")


@case(covers=["SCL-SEC-015"])
def admitted_keys_are_served(bench: RoleBench) -> None:
    """A client and a worker prove their keys, and a task of a MiB reaches the worker as the client has sent it."""
    check_admitted_are_served(bench, bench.require_keys("client", "worker"), 1 << 20)


@case(covers=["SCL-SEC-015"])
def peers_without_a_key_are_not_served(bench: RoleBench) -> None:
    """A connection with the mechanism NULL is closed; its Hello is not answered, not even by a Refusal."""
    keys = bench.require_keys("client", "worker")
    client = bench.raw_client()
    client.hello()
    client.raw.expect_closed("the end of a connection with the mechanism NULL")
    check(not client.waiting(), "no answer to a Hello without a key", client.waiting())
    check_admitted_are_served(bench, keys)


@case(covers=["SCL-SEC-015"])
def passwords_are_not_served(bench: RoleBench) -> None:
    """A connection with the mechanism PLAIN is closed; its Hello is not answered, not even by a Refusal."""
    keys = bench.require_keys("client", "worker")
    connection = bench.connection()
    client = bench.conversation_over(connection)
    connection.greet_as(b"PLAIN")
    connection.command(b"HELLO", b"\x05owner\x05owner")
    connection.ready()
    client.hello()
    connection.expect_closed("the end of a connection with the mechanism PLAIN")
    check(not client.waiting(), "no answer to a Hello without a key", client.waiting())
    check_admitted_are_served(bench, keys)


@case(covers=["SCL-SEC-015"])
def unknown_keys_are_not_served(bench: RoleBench) -> None:
    """The connection of a peer whose key is not admitted is ended before a message is read from it."""
    keys = bench.require_keys("client", "worker")
    unknown = bench.unregistered(keys=new_keys())
    unknown.hello()
    unknown.send_frames(b"no message")
    unknown.expect_turned_away("a key that is not admitted")
    check_admitted_are_served(bench, keys)


@case(covers=["SCL-SEC-016"])
def keys_have_a_role(bench: RoleBench) -> None:
    """The Hello of a peer whose key is for another role is refused with notAllowed."""
    keys = bench.require_keys("client", "worker", "monitor")
    for role, make in (("worker", PlayedClient), ("monitor", PlayedClient), ("client", PlayedWorker)):
        peer = bench.unregistered(make=make, keys=keys[role])
        peer.hello()
        peer.expect_refusal("notAllowed", f"the Hello of a {make.role} with a key for a {role}")
        peer.cut()
    check_admitted_are_served(bench, keys)


@case(covers=["SCL-SEC-016"])
def keys_of_clients_stop_nothing(bench: RoleBench) -> None:
    """A ClientShutdown and a WorkerShutdown of a peer with a client's key are answered with accepted = false."""
    keys = bench.require_keys("client", "worker")
    client, worker = bench.client(keys=keys["client"]), bench.worker(keys=keys["worker"])
    client.send("ClientShutdown")
    check(not client.expect("ClientShutdownResponse").accepted, "accepted = false for a ClientShutdown", "true")
    client.send("WorkerShutdown", requestId=1, session=worker.number)
    check(not client.expect("WorkerShutdownResponse").accepted, "accepted = false for a WorkerShutdown", "true")
    client.submit()
    worker.succeed(worker.expect_task())
    client.expect_outcome(1, "success")


@case(covers=["SCL-SEC-016"])
def tasks_need_a_clients_key(bench: RoleBench) -> None:
    """A Task of a peer with an administrator's key is refused with notAllowed, and reaches no worker."""
    keys = bench.require_keys("admin", "client", "worker")
    worker = bench.worker(keys=keys["worker"])
    admin = bench.unregistered(keys=keys["admin"])
    admin.hello()
    if admin.expect("Welcome", "Refusal").type == "Welcome":
        admin.submit()
        admin.expect_refusal("notAllowed", "a Task of a peer with an administrator's key")
    worker.expect_none("Task")
    client = bench.client(keys=keys["client"])
    client.submit()
    worker.succeed(worker.expect_task())
    client.expect_outcome(1, "success")


@case(covers=["SCL-SEC-019"], features=["reload-keys"])
def revoked_keys_end_their_sessions(bench: RoleBench) -> None:
    """The connection of a peer whose key is revoked is ended, others are served, and the key is not served again."""
    keys = bench.require_keys("client", "worker")
    revoked = bench.worker(keys=keys["worker"])
    renewed = {**keys, "worker": new_keys()}
    bench.admit_only(renewed)
    revoked.expect_end("a key that was revoked")
    check_admitted_are_served(bench, renewed)
    again = bench.unregistered(make=PlayedWorker, keys=keys["worker"])
    again.hello()
    again.expect_turned_away("a key that was revoked")


@case(covers=["SCL-MON-009"])
def scheduler_with_keys_is_not_called_insecure(bench: RoleBench) -> None:
    """A scheduler that requires keys publishes a status without isInsecure."""
    keys = bench.require_keys("client", "monitor")
    client = bench.client(keys=keys["client"])
    address = client.welcome.monitorAddress
    bench.need(address, "an address for monitors")
    monitor: PlayedMonitor = bench.monitor(address, keys["monitor"] if address.startswith("tcp://") else None)
    monitor.subscribe(b"status")
    status = monitor.expect_snapshot()
    check(not status.isInsecure, "isInsecure = false, since keys are required", status)
