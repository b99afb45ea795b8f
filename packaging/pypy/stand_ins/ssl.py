"""Stands where Python's `ssl` would: libraries of `scaler_ui` mention it when they are imported, but none of our
programs speaks TLS, and OpenSSL would be a fifth of the file.

Rule: what is mentioned is there, and says that there is no TLS when it is used.
"""

from __future__ import annotations

import enum
from typing import Any, NoReturn


class SSLError(OSError):
    """What `except` clauses name; nothing raises it."""


class SSLWantReadError(SSLError):
    pass


class SSLWantWriteError(SSLError):
    pass


class SSLEOFError(SSLError):
    pass


class SSLZeroReturnError(SSLError):
    pass


class SSLSyscallError(SSLError):
    pass


class CertificateError(SSLError):
    pass


class VerifyMode(enum.IntEnum):
    CERT_NONE = 0
    CERT_OPTIONAL = 1
    CERT_REQUIRED = 2


class Purpose(enum.Enum):
    SERVER_AUTH = "server"
    CLIENT_AUTH = "client"


class TLSVersion(enum.IntEnum):
    TLSv1_2 = 771
    TLSv1_3 = 772


CERT_NONE, CERT_OPTIONAL, CERT_REQUIRED = VerifyMode
PROTOCOL_TLS, PROTOCOL_TLS_CLIENT, PROTOCOL_TLS_SERVER = 2, 16, 17
OP_NO_COMPRESSION = OP_IGNORE_UNEXPECTED_EOF = OP_NO_SSLv2 = OP_NO_SSLv3 = 0
HAS_SNI = HAS_ALPN = False


class SSLContext:
    """Cannot be made."""

    def __init__(self, *_: Any, **__: Any) -> None:
        create_default_context()


class MemoryBIO(SSLContext):
    pass


class SSLObject(SSLContext):
    pass


class SSLSocket(SSLContext):
    pass


def create_default_context(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError(
        "this file of Scaler has no TLS: put a proxy in front, or install scaler-appliance by pip"
    )
