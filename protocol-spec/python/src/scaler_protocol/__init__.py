"""The protocol between Scaler's client, scheduler and worker, in Python: message classes and their codec.

    from scaler_protocol import decode, encode, messages

    frame = encode(messages.Heartbeat(sequence=7))
    assert decode(frame) == messages.Heartbeat(sequence=7)

Rules of this package: pure Python, nothing beyond the standard library, no threads. The message classes are generated
from the schema (`tools/generate.py`); the schema is the contract, this package is one reading.

    wire/       bytes and messages: the codec, the generated messages, ZMTP        no I/O
    session/    sessions of peers, ids, fetching objects                           no I/O
    host/       addresses, sockets, shared memory, spilled files, discovery
    programs/   the option table, logging and start-up of command-line programs
    keys/       files of keys, the list of those that a scheduler admits, and the command that makes them
    recording/  recordings of cores: the file, what writes it, repeating it

Imports go down: `session` imports `wire`, `host` imports `wire`, `programs` imports `host`, `keys` imports
`wire`, `host` and `programs`, `recording` imports none.
An implementation of a peer needs only the first two.
"""

from __future__ import annotations

from scaler_protocol.session.ids import MAXIMUM_SESSION
from scaler_protocol.versions import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN
from scaler_protocol.wire import messages
from scaler_protocol.wire.codec import decode, decode_struct, encode, encode_struct
from scaler_protocol.wire.errors import InvalidFieldError, MalformedMessageError, ProtocolError

__version__ = "1.0.0"

MAXIMUM_HEADER_BYTES = 64 * 1024 * 1024
"""The limit of a message's first frame, because all peers wait while a scheduler decodes it. That of a graph of a
million tasks with one predecessor each has 28 MB and takes about 20 ms; the worst case takes two seconds."""

__all__ = [
    "MAXIMUM_HEADER_BYTES",
    "MAXIMUM_SESSION",
    "PROTOCOL_MAJOR",
    "PROTOCOL_MINOR_MAX",
    "PROTOCOL_MINOR_MIN",
    "InvalidFieldError",
    "MalformedMessageError",
    "ProtocolError",
    "__version__",
    "decode",
    "decode_struct",
    "encode",
    "encode_struct",
    "messages",
]
