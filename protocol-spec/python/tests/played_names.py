"""A name server, played by a test: what a name stands for, and when that is known."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from typing import Any, Callable, Dict, List, Sequence

import pytest

Answer = Callable[[], Sequence[str]]


def play_names(monkeypatch: pytest.MonkeyPatch) -> Dict[str, Answer]:
    """Names, and functions that return their hosts; they may wait. Other names are as they are."""
    known: Dict[str, Answer] = {}
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *arguments: Any, **keywords: Any) -> List[Any]:
        if host not in known:
            return list(real(host, port, *arguments, **keywords))
        if keywords.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "not a number")
        hosts = known[host]()
        families = [socket.AF_INET6 if ":" in each else socket.AF_INET for each in hosts]
        targets = [(each, port, 0, 0) if ":" in each else (each, port) for each in hosts]
        return [(family, socket.SOCK_STREAM, 6, "", target) for family, target in zip(families, targets)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return known


def no_such_name() -> Sequence[str]:
    """What a name server answers at once, while that of a busy network may need longer."""
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def silent_name_server(stack: ExitStack) -> Answer:
    """It answers when the test is over."""
    is_over = threading.Event()
    stack.callback(is_over.set)

    def answer() -> Sequence[str]:
        is_over.wait()
        return []

    return answer
