"""The errors of the protocol binding.

Rules of this module:
- One error for each party at fault: bytes that a peer sent (`MalformedMessageError`), values that our own caller
  gave (`InvalidFieldError`). Both are `ProtocolError`, so that a caller can catch them with one name.
- Errors only: nothing here imports another module of this package.
"""

from __future__ import annotations


class ProtocolError(Exception):
    """Base of every error that this package raises on purpose."""


class MalformedMessageError(ProtocolError):
    """The bytes are not a well-formed message.

    The text says what is wrong and at which byte of the frame. The peer is at fault: refuse or disconnect it; retrying
    with the same bytes fails again.
    """


class InvalidFieldError(ProtocolError, ValueError):
    """A message object holds a value that its field cannot carry (wrong type, out of range, too large).

    The text names the message and the field. The caller is at fault: correct the value.
    """
