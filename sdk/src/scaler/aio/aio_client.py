"""The client of `scaler.aio`: what `scaler.Client` is to threads, for coroutines, without a thread of its own.

    async with Client() as client: await client.submit(f, x)

Rules:
- A client belongs to the event loop that it is connected in, and is used in that loop only.
- What waits is a coroutine; what only passes a command on is a plain call.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from types import TracebackType
from typing import Any, Dict, Optional, Sequence, Type, Union

from scaler.aio.aio_future import TaskFuture
from scaler.aio.loop_shell import LoopShell
from scaler.aio.loop_submitter import LoopSubmitter
from scaler.arguments import Duration, Size
from scaler.client.archives import Uploadable, source_at
from scaler.client.client import SHUTDOWN_TIMEOUT_SECONDS, ClientArguments, waiting_seconds
from scaler.client.core.handles import NOT_NUMBERED
from scaler.client.info import ClusterInfo
from scaler.client.leaving import is_program_ending_well, warn_at_the_end, warn_of_cancelled
from scaler.client.requests import (
    check_cluster_stops,
    check_worker_leaves,
    info_of,
    info_request,
    outcome_of,
    request_of_worker,
    text_of_answer,
)
from scaler.client.shell.output import OutputCallback
from scaler.compat.installation import check_installation
from scaler.exceptions import ArgumentTypeError, DisconnectedError, InvalidArgumentError
from scaler.serializer import Serializer
from scaler.values.payload import ObjectReference
from scaler_protocol import messages as m
from scaler_protocol.keys.credentials import Credentials

_open_shells: weakref.WeakSet[LoopShell] = weakref.WeakSet()


class Client(LoopSubmitter, ClientArguments):
    """A connection to a scheduler, for the coroutines of one event loop; submits tasks and returns futures.

    Parameters: as of `scaler.Client`, whose errors of arguments are raised here. `connect`, or the beginning of an
    `async with` block, connects, and raises the errors of connecting. What tasks print is shown in the event loop.

    The end of the `async with` block cancels unfinished tasks, with an UnfinishedTasksWarning, and disconnects. Passed
    to a task, the client arrives as one that is to be connected there. In a fork of its process it is disconnected.
    """

    def __init__(
        self,
        address: Optional[str] = None,
        profiling: bool = False,
        timeout_seconds: Duration = 300.0,
        heartbeat_interval_seconds: Duration = 2.0,
        serializer: Optional[Serializer] = None,
        stream_output: Union[bool, OutputCallback] = False,
        connect_timeout_seconds: Duration = 5.0,
        modules: Union[Uploadable, Sequence[Uploadable]] = (),
        key_file: Optional[Union[str, os.PathLike[str]]] = None,
        insecure: Optional[bool] = None,
        data_address: Optional[str] = None,
        direct_bytes: Optional[Size] = None,
    ) -> None:
        check_installation(stack_level=3)
        self._code_sources = self._set_up(
            address,
            profiling,
            timeout_seconds,
            heartbeat_interval_seconds,
            serializer,
            bool(stream_output),
            connect_timeout_seconds,
            modules,
            key_file,
            insecure,
            data_address,
            direct_bytes,
        )
        self._output = stream_output if callable(stream_output) else None
        self._connecting: Optional[asyncio.Task[None]] = None

    def __getattr__(self, name: str) -> Any:
        if name == "_shell":
            raise DisconnectedError(
                f"{self!r} is not connected: use it in an `async with` block, or `await client.connect()` first"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    async def connect(self) -> Client:
        """Connect to the scheduler, unless the client is connected; returns the client.

        Raises:
            SchedulerUnreachableError, NotASchedulerError, AuthenticationError, ProtocolVersionError,
            SchedulerRefusedError: as of `scaler.Client`.
            DisconnectedError: the client was disconnected before.
            WrongEventLoopError: it is connected in another event loop.
        """
        if "_shell" not in self.__dict__:
            if self._connecting is None:
                self._connecting = asyncio.ensure_future(self._connect())
            connecting = self._connecting
            try:
                await connecting
            finally:
                if self._connecting is connecting:
                    self._connecting = None
        self._shell.check_loop()
        self._shell.check_open()
        return self

    async def _connect(self) -> None:
        shell = LoopShell(
            asyncio.get_running_loop(),
            Credentials(self._address, self._key_file, self._insecure),
            self._serializer,
            self._timeout_seconds,
            self._connect_timeout_seconds,
            self._heartbeat_interval_seconds,
            self._serving,
        )
        if self._output is not None:
            shell.output.callback = self._output
        await shell.connect(self._code_sources)
        _open_shells.add(shell)
        self._shell = shell
        weakref.finalize(self, shell.abandon).atexit = False

    async def disconnect(self) -> None:
        """Leave the scheduler: unfinished futures are cancelled. The client cannot be used any more. Idempotent."""
        if "_shell" in self.__dict__:
            await self._shell.close()

    async def __aenter__(self) -> Client:
        return await self.connect()

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        cancelled = 0
        try:
            if kind is None and self._shell.closed_because is None:
                cancelled = self._shell.cancel_all()
        finally:
            await self.disconnect()
        if cancelled:
            warn_of_cancelled(cancelled)

    # Objects and code -----------------------------------------------------------------------------------------------

    async def send_object(self, obj: Any, name: Optional[str] = None) -> ObjectReference:
        """Place an object in the cluster once, for use by many tasks.

        Parameters, result and errors: as of `scaler.Client.send_object`.
        """
        self._shell.check_loop()
        return self._send_object(obj, name)

    def upload(self, *modules: Uploadable) -> None:
        """Ship Python code to the workers, for what is submitted from now on: see `scaler.Client.upload`."""
        self._shell.check_loop()
        self._shell.check_open()
        self._shell.code.upload(modules)

    def restart_processors(self) -> None:
        """Run what is submitted from now on in fresh processors: see `scaler.Client.restart_processors`."""
        self._shell.check_loop()
        self._shell.check_open()
        self._shell.code.renew()

    def clear(self) -> None:
        """Cancel all unfinished tasks of this client and invalidate all its object references; it stays usable."""
        self._shell.check_loop()
        self._shell.clear()

    # Queries --------------------------------------------------------------------------------------------------------

    async def explain(self, future: TaskFuture[Any], timeout_seconds: Duration = 10.0) -> str:
        """Describe the state of a future in one sentence: its outcome, where it runs, or what it waits for.

        Parameters and errors: as of `scaler.Client.explain`.
        """
        if not isinstance(future, TaskFuture):
            raise ArgumentTypeError(f"future must be a TaskFuture, got {type(future).__name__}")
        shell = self._shell
        if future._client._shell is not shell:
            raise InvalidArgumentError(
                "the future belongs to another client: call explain() of the client that submitted the task"
            )
        shell.check_loop()
        if not future.done() and shell.closed_because is None:
            if future.task_id == NOT_NUMBERED:
                return "the task waits in this client until the scheduler takes more tasks"
            longest = waiting_seconds(timeout_seconds)
            text = text_of_answer(await shell.ask_where(future, longest), longest)
            if text is not None and not future.done():
                return text
        return outcome_of(future)

    async def info(
        self, maximum_workers: int = 100, timeout_seconds: Duration = 10.0, maximum_actors: int = 100
    ) -> ClusterInfo:
        """The size and the load of the cluster, as its scheduler sees it now.

        Parameters and errors: as of `scaler.Client.info`.
        """
        self._shell.check_loop()
        query = info_request(maximum_workers, maximum_actors)
        longest = waiting_seconds(timeout_seconds)
        return info_of(await self._shell.ask(query, longest), self._address, longest)

    # Ending the cluster ---------------------------------------------------------------------------------------------

    async def shutdown(self) -> None:
        """Stop the whole cluster, scheduler and workers: see `scaler.Client.shutdown`."""
        self._shell.check_loop()
        check_cluster_stops(await self._shell.ask(m.ClientShutdown(), SHUTDOWN_TIMEOUT_SECONDS))
        await self.disconnect()

    async def shutdown_worker(self, worker: Union[int, str], drain: bool = True) -> None:
        """Make one worker leave the cluster: see `scaler.Client.shutdown_worker`."""
        self._shell.check_loop()
        request = request_of_worker(worker, drain)
        check_worker_leaves(await self._shell.ask(request, SHUTDOWN_TIMEOUT_SECONDS))

    # Being passed to tasks ------------------------------------------------------------------------------------------

    def __getstate__(self) -> Dict[str, Any]:
        sources = self._code_sources
        roots = self._shell.code.roots if "_shell" in self.__dict__ else [each.roots for each in sources]
        return {**super().__getstate__(), "code_roots": roots}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self._code_sources = [source_at(roots) for roots in self._set_state(state)]
        self._output = None
        self._connecting = None

    def __repr__(self) -> str:
        return f"<scaler.aio.Client {self.__dict__.get('_address', '')}, {self._state()}>"

    def _state(self) -> str:
        shell: Optional[LoopShell] = self.__dict__.get("_shell")
        return "not connected" if shell is None else shell.state()


def _close_all() -> None:
    """The program ends, and with it what it has not waited for."""
    cancelled = 0
    for shell in list(_open_shells):
        if shell.closed_because is None and is_program_ending_well():
            cancelled += len(shell.unfinished())
        shell.close_now()
    warn_at_the_end(cancelled)


def _after_fork_in_child() -> None:
    """In a fork of this process: the connections stay the parent's."""
    for shell in list(_open_shells):
        shell.after_fork_in_child()
    _open_shells.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
threading_register = getattr(threading, "_register_atexit", None)
if threading_register is not None:
    threading_register(_close_all)
else:  # pragma: no cover
    import atexit

    atexit.register(_close_all)
