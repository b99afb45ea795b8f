"""An operator's request to the scheduler: that a worker leaves.

    POST ─▶ connect as a client ─Hello─▶ Welcome ─WorkerShutdown─▶ WorkerShutdownResponse ─▶ answer

Rules:
- A connection is made for one request and closed after it.
- Every request ends within ANSWER_TIMEOUT_SECONDS, with the scheduler's answer or an ActionError.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import List, Optional

from scaler_appliance import __version__
from scaler_protocol import (
    PROTOCOL_MAJOR,
    PROTOCOL_MINOR_MAX,
    PROTOCOL_MINOR_MIN,
    MalformedMessageError,
    decode,
    encode,
)
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import AddressError, parse_address, resolve, why_not_connected
from scaler_protocol.host.interpreter import language
from scaler_protocol.host.sodium import MissingLibraryError
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.wire.zmtp import Zmtp, ZmtpError

ANSWER_TIMEOUT_SECONDS = 5.0
MAXIMUM_ANSWER_BYTES = 1 << 20
ANY_HOST = ("*", "0.0.0.0", "::")
_REQUEST_ID = 1
_READ_BYTES = 64 * 1024


class ActionError(Exception):
    """The action failed; the message says why."""


class NotAllowedError(ActionError):
    """The scheduler refuses."""


async def shut_down_worker(
    address: str, session: int, is_draining: bool, key_file: Optional[str] = None, insecure: Optional[bool] = None
) -> str:
    """Ask the scheduler to let one worker leave; returns its answer.

    Parameters:
        address: where clients connect.
        session: of the worker.
        is_draining: it finishes what it runs; otherwise it stops at once.
        key_file, insecure: see `Credentials`; the key needs the role admin or owner.

    Raises ActionError.
    """
    question = m.WorkerShutdown(request_id=_REQUEST_ID, session=session, is_draining=is_draining)
    try:
        credentials = Credentials(address, key_file, insecure, "admin")
        answer = await asyncio.wait_for(_ask(credentials, question), ANSWER_TIMEOUT_SECONDS)
    except asyncio.TimeoutError:
        raise ActionError(
            f"the scheduler at {address} did not answer within {ANSWER_TIMEOUT_SECONDS:.0f} s; its version may not"
            " support shutting down single workers"
        ) from None
    except OSError as error:
        why = why_not_connected(parse_address(address), error)
        raise ActionError(f"the scheduler cannot be asked: {why}") from error
    except (ZmtpError, MalformedMessageError, AddressError, KeyFileError, MissingLibraryError) as error:
        raise ActionError(f"the scheduler at {address or 'an unknown address'} cannot be asked: {error}") from error
    if not answer.accepted:
        raise NotAllowedError(answer.message or "the scheduler refuses")
    return answer.message


def reachable(address: str, monitor_address: str) -> str:
    """The address to connect to, for a scheduler that may listen on every interface."""
    try:
        own, monitor = parse_address(address), parse_address(monitor_address)
    except AddressError:
        return address
    if own.path or own.host not in ANY_HOST:
        return address
    host = monitor.host if not monitor.path and monitor.host not in ANY_HOST else "127.0.0.1"
    return str(own._replace(host=host))


async def _ask(credentials: Credentials, question: m.WorkerShutdown) -> m.WorkerShutdownResponse:
    address = credentials.address
    with await _connected(credentials) as stream:
        conversation = _Conversation(stream, credentials.protocol(stream, "DEALER", MAXIMUM_ANSWER_BYTES))
        await conversation.send(_hello())
        while True:
            for answer in await conversation.receive():
                if isinstance(answer, m.Welcome):
                    if answer.protected and not question.is_draining:
                        why = "it was started without --no-protected, or the key has not the role admin"
                        raise NotAllowedError(f"the scheduler is protected: {why}")
                    await conversation.send(question)
                elif isinstance(answer, m.WorkerShutdownResponse) and answer.request_id == _REQUEST_ID:
                    await conversation.send(m.DisconnectRequest(reason=m.DisconnectReason.LEAVING))
                    return answer
                elif isinstance(answer, m.Refusal):
                    raise ActionError(f"the scheduler at {address} refused: {answer.message or answer.reason!r}")


async def _connected(credentials: Credentials) -> socket.socket:
    address = parse_address(credentials.address)
    stream = credentials.local_socket(address)
    if stream is None:
        family, target = resolve(address)
        stream = socket.socket(family, socket.SOCK_STREAM)
        try:
            stream.setblocking(False)
            await asyncio.get_running_loop().sock_connect(stream, target)
        except BaseException:
            stream.close()
            raise
    return stream


def _hello() -> m.Hello:
    return m.Hello(
        major=PROTOCOL_MAJOR,
        minor_min=PROTOCOL_MINOR_MIN,
        minor_max=PROTOCOL_MINOR_MAX,
        role=m.Role.CLIENT,
        implementation=m.Implementation(
            name="scaler-appliance",
            version=__version__,
            language=language(),
        ),
        codecs=["cloudpickle"],
        host=socket.gethostname(),
        process_id=os.getpid(),
        name="scaler_ui",
    )


class _Conversation:
    """Messages over a connected socket."""

    def __init__(self, stream: socket.socket, protocol: Zmtp) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol

    async def send(self, message: m.Member) -> None:
        while not self._protocol.is_ready:
            await self._feed()
        await self._loop.sock_sendall(self._stream, b"".join(self._protocol.encode([encode(message)])))

    async def receive(self) -> List[m.Message]:
        return [decode(header) for header, *_ in await self._feed()]

    async def _feed(self) -> List[List[bytes]]:
        await self._flush()
        messages = self._protocol.feed(await self._loop.sock_recv(self._stream, _READ_BYTES))
        await self._flush()
        return messages

    async def _flush(self) -> None:
        output = self._protocol.take_output()
        if output:
            await self._loop.sock_sendall(self._stream, output)
