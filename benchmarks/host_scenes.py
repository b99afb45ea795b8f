"""What the client does in each scene, and whether the results are right."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from scaler import Client

LINKS_OF_THE_CHAIN = 5
USERS_OF_THE_BROADCAST = 8
SECONDS_OF_A_USER = 3.0


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
    graph = {"0": (make, size), **{f"user {number}": (measure, "0") for number in range(8)}}
    keys = [key for key in graph if key != "0"]
    return set(client.get(graph, keys).values()) == {(size, 0)}


def broadcast(client: Client, size: int) -> bool:
    """One large result that a node on each of many workers needs, while the others wait for it."""
    graph = {"0": (make, size), **{f"user {number}": (measure_slowly, "0") for number in range(USERS_OF_THE_BROADCAST)}}
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


def argument(client: Client, size: int) -> bool:
    """A large argument of one task."""
    return client.submit(measure, bytes(size)).result() == (size, 0)


def shared_argument(client: Client, size: int) -> bool:
    """A large argument that a task on each of many workers needs, while the others wait for it."""
    sent = client.send_object(bytes(size))
    users = [client.submit(measure_slowly, sent) for _ in range(USERS_OF_THE_BROADCAST)]
    return {each.result() for each in users} == {(size, 0)}


class Scene(NamedTuple):
    """Attributes:
    workers: the host of each.
    """

    title: str
    workers: tuple[str, ...]
    act: Callable[[Client, int], bool]

    def run(self, address: str, size: int) -> int:
        """Act as the client's program; returns its exit code."""
        with Client(address, modules=["host_scenes"]) as client:
            while client.info().slots < len(self.workers):
                client.submit(measure, b"0").result()
            return 0 if self.act(client, size) else 1


SCENES = {
    "chain": Scene(f"chain of {LINKS_OF_THE_CHAIN} results, in a graph", ("worker-1",), chain),
    "futures": Scene(f"chain of {LINKS_OF_THE_CHAIN} results, by futures", ("worker-1",), futures),
    "many-users": Scene("one result, 8 users on 2 workers", ("worker-1", "worker-2"), many_users),
    "stream": Scene("one result, 1 user on another worker", ("worker-1", "worker-2"), stream),
    "broadcast": Scene(
        f"one result, {USERS_OF_THE_BROADCAST} users on {USERS_OF_THE_BROADCAST} workers",
        tuple(f"worker-{number + 1}" for number in range(USERS_OF_THE_BROADCAST)),
        broadcast,
    ),
    "few-hosts": Scene(
        f"one result, {USERS_OF_THE_BROADCAST} users on 4 workers of each of 2 hosts",
        ("worker-1",) * 4 + ("worker-2",) * 4,
        broadcast,
    ),
    "argument": Scene("one argument", ("worker-1",), argument),
    "shared-argument": Scene(
        f"one argument, {USERS_OF_THE_BROADCAST} users on {USERS_OF_THE_BROADCAST} workers",
        tuple(f"worker-{number + 1}" for number in range(USERS_OF_THE_BROADCAST)),
        shared_argument,
    ),
}
