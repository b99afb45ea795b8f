"""Changed handshakes for both ends of CURVE: whatever a peer sends raises ZmtpError, or nothing, and opens nothing.

    python handshake_fuzzing.py --inputs 1000000 --seed 1 --library libsodium.so      JSON out

    honest client ◀──▶ honest server, up to a step ──▶ one unit of bytes is changed ──▶ the end under test
                                                                                        └─ and then the honest rest

Rules:
- An input follows from its number alone, so that a failure can be repeated: `--seed N --inputs 1`.
- The honest ends are real, and so is all arithmetic. Keys come from a small pool, and the box of two keys that were
  met before is kept: most of the time goes into what was changed.
- A peer without a key can change what it likes. One with a key can seal what it likes: units of the last step are
  sealed garbage.
- For a library that was built with AddressSanitizer, run with LD_PRELOAD=libasan.so and PYTHONMALLOC=malloc: then each
  object of Python that libsodium reads or fills is guarded as well.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from functools import lru_cache
from typing import Callable, Dict, List, Optional, Set, Tuple

from scaler_protocol.host.sodium import Sodium, load_sodium
from scaler_protocol.wire.curve import Box, KeyPair
from scaler_protocol.wire.secure_zmtp import ClientSecurity, SecureZmtp, ServerSecurity
from scaler_protocol.wire.zmtp import Zmtp, ZmtpError

POOL = 6
LIMIT_BYTES = 1 << 16
MOST_OUTPUT_BYTES = 4096
MESSAGES = [[b"a message"], [b"of two", b"frames"], [b"x" * 300, b""], [b"large" * 500]]
STEPS = ("greeting", "first command", "second command", "message", "sealed garbage")
_LARGE_SIZES = (0, 1, 255, 256, 65535, 65536, 65537, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1)

Mutation = Callable[[random.Random, bytes, List[bytes]], bytes]


class FuzzArithmetic:
    """See `scaler_protocol.wire.curve.Arithmetic`: a library's, with keys from a pool and numbers from a seed."""

    def __init__(self, sodium: Sodium) -> None:
        self.generator = random.Random(0)
        self._pool = [sodium.new_keys() for _ in range(POOL)]
        self.box: Callable[[bytes, bytes], Box] = lru_cache(maxsize=1000)(sodium.box)

    def random(self, size_bytes: int) -> bytes:
        return self.generator.randbytes(size_bytes)

    def new_keys(self) -> KeyPair:
        return self.generator.choice(self._pool)


def flip_bits(generator: random.Random, unit: bytes, others: List[bytes]) -> bytes:
    changed = bytearray(unit)
    for _ in range(generator.choice((1, 1, 1, 2, 8))):
        changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
    return bytes(changed)


def set_bytes(generator: random.Random, unit: bytes, others: List[bytes]) -> bytes:
    at, size = generator.randrange(len(unit)), generator.choice((1, 2, 8, 16, 32))
    value = generator.choice((bytes(size), b"\xff" * size, generator.randbytes(size)))
    return unit[:at] + value + unit[at + size :]


def cut_short(generator: random.Random, unit: bytes, others: List[bytes]) -> bytes:
    return unit[: generator.randrange(len(unit))]


def lengthen(generator: random.Random, unit: bytes, others: List[bytes]) -> bytes:
    return unit + generator.randbytes(generator.choice((1, 16, 100, 1000)))


def repeat(generator: random.Random, unit: bytes, others: List[bytes]) -> bytes:
    return unit * 2


def replace(generator: random.Random, unit: bytes, others: List[bytes]) -> bytes:
    return generator.choice(others)


def splice(generator: random.Random, unit: bytes, others: List[bytes]) -> bytes:
    other = generator.choice(others)
    return unit[: generator.randrange(len(unit))] + other[generator.randrange(len(other)) :]


def change_size(generator: random.Random, unit: bytes, others: List[bytes]) -> bytes:
    size = generator.choice((generator.randrange(512), *_LARGE_SIZES))
    flags = unit[0] & ~2
    body = unit[9 if unit[0] & 2 else 2 :]
    if size < 256 and generator.random() < 0.5:
        return bytes((flags, size)) + body
    return bytes((flags | 2,)) + size.to_bytes(8, "big") + body


def resize(generator: random.Random, unit: bytes, others: List[bytes]) -> bytes:
    """A body that is longer or shorter, and a header that fits it."""
    body = (unit[9 if unit[0] & 2 else 2 :] + generator.randbytes(300))[: generator.randrange(len(unit) + 300)]
    if len(body) < 256:
        return bytes((unit[0] & ~2, len(body))) + body
    return bytes((unit[0] | 2,)) + len(body).to_bytes(8, "big") + body


def make_up(generator: random.Random, unit: bytes, others: List[bytes]) -> bytes:
    return generator.randbytes(generator.choice((1, 2, 9, 64, 202, 300)))


MUTATIONS: Tuple[Mutation, ...] = (
    flip_bits, set_bytes, cut_short, lengthen, repeat, replace, splice, change_size, resize, make_up,
)  # fmt: skip


class HandshakeFuzzer:
    """Parameters:
    sodium: whose functions are called; by default those of this process.
    """

    def __init__(self, sodium: Optional[Sodium] = None) -> None:
        library = sodium or load_sodium()
        self._arithmetic = FuzzArithmetic(library)
        self._server_keys, self._client_keys, self._admitted = (library.new_keys() for _ in range(3))
        self.outcomes: Counter[str] = Counter()
        self._honest: Set[Tuple[bytes, ...]] = {tuple(frames) for frames in MESSAGES}
        self._others = self._units_of_others()

    def _ends(self) -> Tuple[SecureZmtp, SecureZmtp]:
        known = self._client_keys.public

        def admit(key: bytes) -> Optional[str]:
            return None if key == known else "this key is not admitted"

        client = ClientSecurity(self._arithmetic, self._client_keys, self._server_keys.public)
        server = ServerSecurity(self._arithmetic, [self._admitted, self._server_keys], admit)
        return SecureZmtp(client, "DEALER", LIMIT_BYTES), SecureZmtp(server, "ROUTER", LIMIT_BYTES)

    def _units_of_others(self) -> List[bytes]:
        """What was sent on another connection, in both directions."""
        client, server = self._ends()
        units = []
        while not (client.is_ready and server.is_ready):
            for sender, receiver in ((client, server), (server, client)):
                unit = sender.take_output()
                if unit:
                    units.append(unit)
                    receiver.feed(unit)
        return [*units, *(b"".join(map(bytes, client.encode(frames))) for frames in MESSAGES)]

    def run(self, number: int) -> None:
        """Make one input, and feed it to the end that it is for.

        Raises AssertionError, or what an end has raised besides ZmtpError.
        """
        generator = self._arithmetic.generator = random.Random(number)
        step = generator.choices(range(len(STEPS)), (1, 4, 4, 2, 2))[0]
        client, server = self._ends()
        target, peer = (client, server) if generator.random() < 0.5 else (server, client)
        for _ in range(min(step, 3)):
            self._pass_on(peer, target)
            self._pass_on(target, peer)
        unit = self._unit(generator, step, peer)
        honest = unit
        if unit and step != len(STEPS) - 1:
            unit = generator.choice(MUTATIONS)(generator, unit, self._others)
        try:
            received = self._feed_in_pieces(generator, target, unit)
            for _ in range(3):
                self._pass_on(target, peer)
                received += self._pass_on(peer, target)
            outcome = "went on" if target.is_ready else "waits"
        except ZmtpError as error:
            received, outcome = [], type(error).__name__
        self.outcomes[f"{STEPS[step]}: {outcome}"] += 1
        self._check(target, server, received, step)
        if step in (1, 2) and target.is_ready:
            assert _body(unit) == _body(honest), "a changed command completed the handshake"

    def _unit(self, generator: random.Random, step: int, peer: SecureZmtp) -> bytes:
        """What the honest peer would send in a step."""
        if step < 3:
            return peer.take_output()
        if step == 3 or peer._sealed is None:
            return b"".join(map(bytes, peer.encode(generator.choice(MESSAGES)))) if peer.is_ready else b""
        content = generator.choice((b"", generator.randbytes(generator.randrange(70)), b"\4PING\0\0x", b"\5READY"))
        return bytes(peer._sealed.seal(generator.randrange(4), content))

    def _pass_on(self, sender: Zmtp, receiver: Zmtp) -> List[List[bytes]]:
        """Deliver what an end has to say; the honest one may well end the connection."""
        data = sender.take_output()
        return receiver.feed(data) if data else []

    def _feed_in_pieces(self, generator: random.Random, target: Zmtp, unit: bytes) -> List[List[bytes]]:
        received: List[List[bytes]] = []
        while unit:
            size = len(unit) if generator.random() < 0.7 else 1 + generator.randrange(len(unit))
            received += target.feed(unit[:size])
            unit = unit[size:]
        return received

    def _check(self, target: SecureZmtp, server: SecureZmtp, received: List[List[bytes]], step: int) -> None:
        assert server.peer_key in (b"", self._client_keys.public), "a key that was not proved"
        assert len(target.take_output()) <= MOST_OUTPUT_BYTES, "more output than any handshake needs"
        if step < len(STEPS) - 1:
            assert all(tuple(frames) in self._honest for frames in received), "a message that was not sent"


def _body(unit: bytes) -> bytes:
    """Of the first frame in a unit, whose header may have either form."""
    start = 9 if unit[0] & 2 else 2
    return unit[start : start + int.from_bytes(unit[1:start], "big")]


def load_library(path: str) -> Sodium:
    """libsodium from a file."""
    from scaler_protocol.host.sodium_functions import ffi

    return Sodium(ffi, ffi.dlopen(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=1_000_000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first one (default: %(default)s)")
    parser.add_argument("--library", help="libsodium, such as one with AddressSanitizer (default: as programs find it)")
    options = parser.parse_args()
    fuzzer = HandshakeFuzzer(load_library(options.library) if options.library else None)
    began = time.process_time()
    for number in range(options.seed, options.seed + options.inputs):
        try:
            fuzzer.run(number)
        except BaseException:
            print(json.dumps({"failed": number}), flush=True)
            raise
    figures: Dict[str, object] = {"inputs": options.inputs, "seed": options.seed}
    figures["processor_seconds"] = round(time.process_time() - began, 1)
    print(json.dumps({**figures, "outcomes": dict(sorted(fuzzer.outcomes.items()))}), flush=True)


if __name__ == "__main__":
    main()
