"""Client: the interface that users program against.

Rules: this module and `submitting` turn calls into payloads and futures; what is in flight lives in `core`. Bad
arguments fail here, at once, with a named error; nothing that cannot be sent ever reaches the scheduler.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from operator import index
from types import TracebackType
from typing import Any, Dict, List, Optional, Tuple, Type, Union

from scaler.client.core import ClientCore
from scaler.client.future import ScalerFuture
from scaler.client.info import ClusterInfo
from scaler.client.options import DEFAULTS
from scaler.client.output import OutputCallback
from scaler.client.submitting import Submitter
from scaler.compat.arguments import accepts_earlier
from scaler.compat.installation import check_installation
from scaler.exceptions import DisconnectedError, SerializeObjectError
from scaler.notebook import Link, Row, card
from scaler.payload import ObjectReference, Parts, dump_value, parts_size
from scaler.serializer import Serializer
from scaler.texts import description_of
from scaler_protocol import messages as m
from scaler_protocol.addresses import parse_address
from scaler_protocol.discovery import DiscoveryError, address_given_or_found, link_to

SHUTDOWN_TIMEOUT_SECONDS = 10.0

_shared_cores: Dict[Tuple[Any, ...], ClientCore] = {}
_shared_lock = threading.Lock()
_open_cores: weakref.WeakSet[ClientCore] = weakref.WeakSet()


class Client(Submitter):
    """A connection to a scheduler; submits tasks and returns futures.

    Parameters:
        address: of the scheduler, e.g. `tcp://127.0.0.1:2345`. By default what the environment variable SCALER_ADDRESS
            says; inside a task, the scheduler that the task came from; else the newest one of this user on this host.
        profiling: measure every task, for `ScalerFuture.profiling_info`.
        timeout_seconds: after so long without a scheduler, unfinished futures fail with DisconnectedError. Before that,
            a client that has lost its scheduler looks for it, or for its successor at the same address.
        heartbeat_interval_seconds: how often to tell the scheduler that this client lives.
        serializer: how functions, arguments and results become bytes; by default cloudpickle.
        connect_timeout_seconds: how long to wait for a scheduler at the address.
        stream_output: what tasks print comes here: True prints it, a function is called with each `TaskOutput`, in a
            thread of the client.

    Raises:
        SchedulerUnreachableError: nobody listens at the address.
        NotASchedulerError: who listens there is no Scaler scheduler.
        ProtocolVersionError: client and scheduler have no protocol version in common.
        SchedulerRefusedError: the scheduler refused for another reason.
        ValueError: the address is none; or none is given, and no scheduler is found.

    It is a context manager, may be used by many threads, and can be passed to tasks. A client that nobody has a
    reference to any more disconnects by itself once its tasks are done. In a fork of its process it is disconnected.
    """

    _identity: Optional[bytes] = None

    @accepts_earlier("Client")
    def __init__(
        self,
        address: Optional[str] = None,
        profiling: bool = False,
        timeout_seconds: float = 60.0,
        heartbeat_interval_seconds: float = 2.0,
        serializer: Optional[Serializer] = None,
        stream_output: Union[bool, OutputCallback] = False,
        connect_timeout_seconds: float = 5.0,
    ) -> None:
        check_installation()
        self._address = str(address) if address else _address_of_scheduler()
        self._options = DEFAULTS.refined(profiling=bool(profiling), stream_output=bool(stream_output))
        self._task_options = self._options.message()
        self._timeout_seconds = timeout_seconds
        self._heartbeat_interval_seconds = heartbeat_interval_seconds
        self._connect_timeout_seconds = connect_timeout_seconds
        self._serializer = serializer
        self._core = self._make_core()
        weakref.finalize(self, self._core.abandon).atexit = False
        if callable(stream_output):
            self._core.output.callback = stream_output

    def _make_core(self) -> ClientCore:
        core = ClientCore(
            self._address,
            self._serializer,
            self._timeout_seconds,
            self._connect_timeout_seconds,
            self._heartbeat_interval_seconds,
        )
        _open_cores.add(core)
        return core

    @property
    def identity(self) -> bytes:
        """Names this client among all clients, for programs that keep a table of theirs."""
        if self._identity is None:
            from scaler.compat.names import ClientID

            self._identity = ClientID.generate_client_id()
        return self._identity

    # Objects ----------------------------------------------------------------------------------------------------------

    def send_object(self, obj: Any, name: Optional[str] = None) -> ObjectReference:
        """Place an object in the cluster once, for use by many tasks.

        Parameters:
            obj: anything that can be serialised. Arrays arrive in the tasks as read-only views, without a copy.
            name: for error messages and monitors.

        Returns a reference to pass to `submit` and `map`; it is valid until `clear` or `disconnect`.
        """
        self._core.check_open()
        name = name if name is not None else type(obj).__name__
        if not isinstance(name, str):
            raise TypeError(f"the name of an object must be a str, not {type(name).__name__}")
        try:
            content = dump_value(obj, self._serializer)
        except Exception as error:
            raise SerializeObjectError(
                f"an object of type {type(obj).__name__} cannot be serialised: {description_of(error)}"
            ) from error
        parts: Parts = content if isinstance(content, list) else [content]
        object_id = self._core.send_object(parts, name, m.ObjectKind.VALUE)
        self._core.value_objects.add(object_id)
        return ObjectReference(name, parts_size(parts), object_id)

    def explain(self, future: ScalerFuture[Any], timeout_seconds: float = 10.0) -> str:
        """Say in one sentence what becomes of a future: its outcome, where it runs, or what it waits for.

        Parameters:
            future: of a task of this client.
            timeout_seconds: how long to wait for the scheduler's answer.

        Raises ValueError when the future is another client's.
        """
        if future._client._core is not self._core:
            raise ValueError("explain() tells of the futures of its own client: ask the one that submitted the task")
        return self._core.explaining.explain(self._core, future, timeout_seconds)

    def info(self, maximum_workers: int = 100, timeout_seconds: float = 10.0) -> ClusterInfo:
        """Say how large the cluster is and what it has to do, as its scheduler sees it now.

        Parameters:
            maximum_workers: list so many workers at most; all of them are counted. A scheduler lists 1000 at most.
            timeout_seconds: how long to wait for the scheduler's answer.

        Raises:
            DisconnectedError: this client is disconnected, or the scheduler does not answer.
            TypeError, ValueError: `maximum_workers` is no whole number, or below 0.
        """
        wanted = min(index(maximum_workers), (1 << 32) - 1)
        if wanted < 0:
            raise ValueError(f"maximum_workers must be at least 0, not {maximum_workers}")
        return self._core.informing.ask(self._core, self._address, wanted, timeout_seconds)

    # Ending ---------------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Cancel all unfinished tasks of this client and invalidate all its object references; it stays usable."""
        self._core.clear()

    def disconnect(self) -> None:
        """Leave the scheduler: unfinished futures are cancelled. The client cannot be used any more. Idempotent."""
        with _shared_lock:
            for key, core in list(_shared_cores.items()):
                if core is self._core:
                    del _shared_cores[key]
        self._core.close()

    def shutdown(self) -> None:
        """Stop the whole cluster, scheduler and workers, unless the scheduler is protected.

        Raises:
            ValueError: the scheduler is in protected mode.
            DisconnectedError: the scheduler did not answer.
        """
        try:
            answer = self._core.ask_shutdown(SHUTDOWN_TIMEOUT_SECONDS)
        except queue.Empty:
            raise DisconnectedError("the scheduler did not answer the request to shut down") from None
        # SCL-CLT-014
        if not answer.accepted:
            raise ValueError(f"Scheduler is in protected mode. Can't shutdown: {answer.message}")
        self.disconnect()

    def shutdown_worker(self, worker: Union[int, str], drain: bool = True) -> None:
        """Let one worker leave the cluster, unless the scheduler is protected.

        Parameters:
            worker: its session number, or its name if no other has the same.
            drain: the worker finishes what it runs, and gives back what it has not begun; otherwise it stops at once,
                and what it runs is begun anew elsewhere. Either way it is not started again where it ran.

        Returns when the worker has been asked, not when it has left.

        Raises:
            ValueError: the scheduler is in protected mode, or knows no such worker, or several.
            DisconnectedError: the scheduler did not answer.
        """
        self._core.worker_shutdowns.ask(self._core, worker, drain, SHUTDOWN_TIMEOUT_SECONDS)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.disconnect()

    # Travelling into tasks ------------------------------------------------------------------------------------------

    def __getstate__(self) -> Dict[str, Any]:
        return {
            "address": self._address,
            "options": self._options,
            "timeout_seconds": self._timeout_seconds,
            "heartbeat_interval_seconds": self._heartbeat_interval_seconds,
            "connect_timeout_seconds": self._connect_timeout_seconds,
            "serializer": self._serializer,
        }

    def __setstate__(self, state: Dict[str, Any]) -> None:
        """A client that arrives in a process shares one connection with all its like that arrived there before."""
        for name, value in state.items():
            setattr(self, f"_{name}", value)
        self._task_options = self._options.message()
        key = (self._address, type(self._serializer))
        with _shared_lock:
            core = _shared_cores.get(key)
            if core is None or core.closed_because is not None:
                core = _shared_cores[key] = self._make_core()
            self._core = core

    def __repr__(self) -> str:
        return f"<Client {self._address}, {self._state()}>"

    def _repr_html_(self) -> str:
        core = self._core
        is_local = parse_address(self._address).is_local
        rows: List[Row] = [
            ("scheduler", self._address),
            ("implementation", f"{core.welcome.implementation.name} {core.welcome.implementation.version}"),
            ("state", self._state()),
            ("slots", core.slots or ""),  # none has been heard of yet
            ("user interface", Link(link_to(core.welcome.monitor_address) if is_local else "")),
        ]
        return card("Client", rows)

    def _state(self) -> str:
        core = self._core
        if core.closed_because is not None:
            return "disconnected"
        unfinished = f"{len(core.futures)} unfinished task{'' if len(core.futures) == 1 else 's'}"
        return unfinished if core.is_connected else f"{unfinished}, looking for its scheduler"


def _address_of_scheduler() -> str:
    try:
        return address_given_or_found()
    except DiscoveryError as error:  # the first words are those of the second generation
        raise DiscoveryError(
            f"No scheduler address provided, and not running inside a worker context: {error}"
        ) from None


def _close_all() -> None:
    for core in list(_open_cores):
        core.close()


def _disown_all() -> None:
    """In a fork of this process: the connections stay the parent's."""
    global _shared_lock
    _shared_lock = threading.Lock()
    _shared_cores.clear()
    for core in list(_open_cores):
        core.disown()
    _open_cores.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
threading_register = getattr(threading, "_register_atexit", None)
if threading_register is not None:
    threading_register(_close_all)  # runs before daemon threads are frozen, unlike atexit
else:  # pragma: no cover
    import atexit

    atexit.register(_close_all)
