"""The named errors of the protocol binding.

Rules of this module:
- One error per kind of blame: bytes that a peer sent (`MalformedMessageError`), values that our own caller
  gave (`InvalidFieldError`). All of them are `ProtocolError`, so that a caller can guard with one name.
- Errors only: nothing here imports another module of this package.
"""

from __future__ import annotations


class ProtocolError(Exception):
    """Base of every error that this package raises on purpose."""


class MalformedMessageError(ProtocolError):
    """The bytes are no well-formed message.

    The text says what is wrong and at which byte of the frame. It is the peer's fault: refuse or drop the
    peer, never retry with the same bytes.
    """


class InvalidFieldError(ProtocolError, ValueError):
    """A message object holds a value that its field cannot carry (wrong type, out of range, too large).

    The text names the message and the field. It is the caller's fault: correct the value.
    """
