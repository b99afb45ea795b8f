"""What the client does in each scene, and whether the results are right."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Dict, NamedTuple, Tuple

from scaler import Client

LINKS_OF_THE_CHAIN = 5
USERS = 8
USERS_OF_THE_BROADCAST = 16
SECONDS_OF_A_USER = 3.0
TASKS_WITH_ARGUMENTS, SECONDS_OF_WORK = 16, 0.3


def make(size: int) -> bytes:
    """A large result."""
    return bytes(size)


def pass_on(data: bytes) -> bytes:
    """Another one of the same size, one byte of which says how often it was passed on."""
    return bytes([data[0] + 1]) + data[1:]


def measure(data: bytes) -> tuple[int, int]:
    """Its size, and its first byte."""
    return len(data), data[0]


def chain(client: Client, size: int) -> bool:
    """Nodes that each need the large result of the one before."""
    graph = {"0": (make, size), **{str(number): (pass_on, str(number - 1)) for number in range(1, LINKS_OF_THE_CHAIN)}}
    graph["end"] = (measure, str(LINKS_OF_THE_CHAIN - 1))
    return bool(client.get(graph, ["end"])["end"] == (size, LINKS_OF_THE_CHAIN - 1))


def futures(client: Client, size: int) -> bool:
    """The same with futures, which the client holds."""
    held = [client.submit(make, size)]
    for _ in range(1, LINKS_OF_THE_CHAIN):
        held.append(client.submit(pass_on, held[-1]))
    is_right = client.submit(measure, held[-1]).result() == (size, LINKS_OF_THE_CHAIN - 1)
    client.wait(held)
    return is_right


def many_users(client: Client, size: int) -> bool:
    """One large result that many nodes on all workers need."""
    graph = {"0": (make, size), **{f"user {number}": (measure, "0") for number in range(USERS)}}
    keys = [key for key in graph if key != "0"]
    return set(client.get(graph, keys).values()) == {(size, 0)}


def broadcast(client: Client, size: int, users: int = USERS) -> bool:
    """One large result that a node on each of many workers needs, while the others wait for it."""
    graph = {"0": (make_block, size), **{f"user {number}": (measure_block_slowly, "0") for number in range(users)}}
    keys = [key for key in graph if key != "0"]
    return set(client.get(graph, keys).values()) == {(size, 0)}


def measure_slowly(data: bytes) -> tuple[int, int]:
    """The same as `measure`, but it keeps its slot for a while, so that the nodes of a graph spread."""
    time.sleep(SECONDS_OF_A_USER)
    return measure(data)


class Block:
    """Bytes that a task maps, and does not copy: so what tasks do takes no time from a stream."""

    def __init__(self, content: bytes | bytearray | memoryview) -> None:
        self.content = content

    def __reduce_ex__(self, protocol: Any) -> tuple[type[Block], tuple[pickle.PickleBuffer]]:
        return Block, (pickle.PickleBuffer(self.content),)


def make_block(size: int) -> Block:
    """A large result."""
    return Block(bytearray(size))


def measure_block(block: Block) -> tuple[int, int]:
    """Its size, and its first byte."""
    return len(block.content), block.content[0]


def measure_block_slowly(block: Block) -> tuple[int, int]:
    """The same, but it keeps its slot for a while."""
    time.sleep(SECONDS_OF_A_USER)
    return measure_block(block)


def stream(client: Client, size: int) -> bool:
    """One result for one user on another worker: the maker is busy with another node."""
    graph = {"0": (make_block, size), "busy": (measure_block_slowly, "0"), "user": (measure_block, "0")}
    return set(client.get(graph, ["busy", "user"]).values()) == {(size, 0)}


def streams(client: Client, size: int, pairs: int) -> bool:
    """A result from each of some workers for one user on another worker each, at the same time."""
    graph: Dict[str, Tuple[Any, ...]] = {}
    for number in range(pairs):
        made = f"made {number}"
        graph[made] = (make_block, size + number)
        graph[f"busy {number}"] = (measure_block_slowly, made)
    for number in range(pairs):
        graph[f"user {number}"] = (measure_block, f"made {number}")
    users = [f"user {number}" for number in range(pairs)]
    found = client.get(graph, [*users, *(f"busy {number}" for number in range(pairs))])
    return [found[user] for user in users] == [(size + number, 0) for number in range(pairs)]


def argument(client: Client, size: int) -> bool:
    """A large argument of one task."""
    return client.submit(measure, bytes(size)).result() == (size, 0)


def argument_stream(client: Client, size: int) -> bool:
    """The same, of which the task makes no copy."""
    return client.submit(measure_block, Block(bytearray(size))).result() == (size, 0)


def shared_argument(client: Client, size: int) -> bool:
    """A large argument that a task on each of many workers needs, while the others wait for it."""
    sent = client.send_object(bytes(size))
    users = [client.submit(measure_slowly, sent) for _ in range(USERS)]
    return {each.result() for each in users} == {(size, 0)}


def used_again(client: Client, size: int) -> bool:
    """A large result that the client has, and that a task on each of many workers needs."""
    made = client.submit(make, size)
    client.wait([made])
    users = [client.submit(measure_slowly, made) for _ in range(USERS)]
    return {each.result() for each in users} == {(size, 0)}


def work_on(data: bytes) -> int:
    """A task that takes a little longer than its argument."""
    time.sleep(SECONDS_OF_WORK)
    return len(data)


def many_arguments(client: Client, size: int) -> bool:
    """Tasks with a large argument each, one after the other on one slot."""
    futures = [client.submit(work_on, bytes(size)) for _ in range(TASKS_WITH_ARGUMENTS)]
    return [each.result() for each in futures] == [size] * TASKS_WITH_ARGUMENTS


class Scene(NamedTuple):
    """Attributes:
    workers: the host of each.
    link: arguments of tc for the links of these hosts; empty: they have no limit.
    client: its host.
    megabytes: the size of its data, if that is part of the scene; 0: as requested.
    """

    title: str
    workers: tuple[str, ...]
    act: Callable[[Client, int], bool]
    link: str = ""
    client: str = "client"
    megabytes: int = 0

    def run(self, address: str, size: int) -> int:
        """Act as the client's program; returns its exit code."""
        with Client(address, modules=["host_scenes"]) as client:
            while client.info().slots < len(self.workers):
                client.submit(measure, b"0").result()
            return 0 if self.act(client, size) else 1


def workers(count: int) -> tuple[str, ...]:
    """So many workers, on a host each."""
    return tuple(f"worker-{number + 1}" for number in range(count))


LIMITED_MBIT_PER_SECOND = 200
LIMITED = f"tbf rate {LIMITED_MBIT_PER_SECOND}mbit burst 256kb latency 50ms"
FAST_LIMITED = "tbf rate 800mbit burst 1mb latency 50ms"
BESIDE = "a client on the scheduler's host"
SHARERS = f"{USERS} users on {USERS} workers"

SCENES = {
    "chain": Scene(f"chain of {LINKS_OF_THE_CHAIN} results, in a graph", workers(1), chain),
    "futures": Scene(f"chain of {LINKS_OF_THE_CHAIN} results, by futures", workers(1), futures),
    "many-users": Scene(f"one result, {USERS} users on 2 workers", workers(2), many_users),
    "stream": Scene("one result, 1 user on another worker", workers(2), stream),
    "broadcast": Scene(
        f"one result, {USERS_OF_THE_BROADCAST} users on {USERS_OF_THE_BROADCAST} workers",
        workers(USERS_OF_THE_BROADCAST),
        partial(broadcast, users=USERS_OF_THE_BROADCAST),
    ),
    "few-hosts": Scene(
        f"one result, {USERS} users on 4 workers of each of 2 hosts",
        ("worker-1",) * 4 + ("worker-2",) * 4,
        broadcast,
    ),
    "argument": Scene("one argument", workers(1), argument),
    "argument-stream": Scene("one argument, which its task maps", workers(1), argument_stream),
    "shared-argument": Scene(f"one argument, {SHARERS}", workers(USERS), shared_argument),
    "beside": Scene(f"{BESIDE}: one argument, {SHARERS}", workers(USERS), shared_argument, client="scheduler"),
    "used-again": Scene(f"one result that the client has, {SHARERS}", workers(USERS), used_again),
    "arguments-beside": Scene(
        f"{BESIDE}: {TASKS_WITH_ARGUMENTS} tasks of {SECONDS_OF_WORK} s, an argument of 20 MB each, 800 Mbit/s",
        workers(1),
        many_arguments,
        FAST_LIMITED,
        client="scheduler",
        megabytes=20,
    ),
    **{
        f"{number}-streams": Scene(
            f"{number} × 2 hosts with a stream between them, links of {LIMITED_MBIT_PER_SECOND} Mbit/s",
            workers(2 * number),
            partial(streams, pairs=number),
            LIMITED,
        )
        for number in (1, 2, 4)
    },
}
