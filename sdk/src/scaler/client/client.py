"""Client: the interface that users program against.

Rules: this module and `submission` turn calls into payloads and futures; what is in flight lives in `shell` and `core`.
Invalid arguments fail here, at once, with a named error; what cannot be sent never reaches the scheduler.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from types import ModuleType, TracebackType
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type, Union

from scaler import current_client, nesting
from scaler.arguments import Duration, Size, seconds
from scaler.client.archives import CodeSource, Root, Uploadable, source_at
from scaler.client.client_options import DEFAULTS
from scaler.client.future import ScalerFuture
from scaler.client.info import ClusterInfo
from scaler.client.leaving import is_program_ending_well, warn_at_the_end, warn_of_cancelled
from scaler.client.requests import explain, info, info_request, shut_down_cluster, shut_down_worker
from scaler.client.shell.client_shell import ClientShell
from scaler.client.shell.left_locks import HeldTurns
from scaler.client.shell.output import OutputCallback
from scaler.client.submitter import Submitter
from scaler.compat.earlier_arguments import accepts_earlier
from scaler.compat.installation import check_installation
from scaler.data_serving.serving_options import serving_options
from scaler.exceptions import (
    ArgumentTypeError,
    InvalidAddressError,
    InvalidArgumentError,
    ScalerError,
    SchedulerNotFoundError,
)
from scaler.nesting import SYNCHRONOUS
from scaler.notebook import Link, Row, card
from scaler.serializer import Serializer
from scaler.values.payload import ObjectReference
from scaler_protocol.host.addresses import AddressError, parse_addresses
from scaler_protocol.host.discovery import DiscoveryError, address_given_or_found, link_to
from scaler_protocol.keys.credentials import Credentials

SHUTDOWN_TIMEOUT_SECONDS = 10.0
MINIMUM_INTERVAL_SECONDS = 0.001  # the protocol counts in milliseconds
MAXIMUM_SECONDS = 1e6  # for waits: far below what the system can represent
LEAVE_TIMEOUT_SECONDS = 1.0

_shared_shells: Dict[Tuple[Any, ...], ClientShell] = {}
_shared_lock = threading.Lock()
_open_shells: weakref.WeakSet[ClientShell] = weakref.WeakSet()


class ClientArguments:
    """The arguments of a client: `Client` explains them."""

    def _set_up(
        self,
        address: Optional[str],
        profiling: bool,
        timeout_seconds: Duration,
        heartbeat_interval_seconds: Duration,
        serializer: Optional[Serializer],
        streams_output: bool,
        connect_timeout_seconds: Duration,
        modules: Union[Uploadable, Sequence[Uploadable]],
        key_file: Optional[Union[str, os.PathLike[str]]],
        insecure: Optional[bool],
        data_address: Optional[str],
        direct_bytes: Optional[Size],
    ) -> List[CodeSource]:
        """Check all of them; returns the code to ship."""
        if isinstance(modules, (str, os.PathLike, ModuleType)):
            modules = [modules]
        code_sources = [CodeSource(each) for each in modules]
        self._address = _checked_address(address) if address else _address_found()
        self._options = DEFAULTS.refined(profiling=bool(profiling), stream_output=streams_output)
        self._task_options = self._options.message()
        self._timeout_seconds = seconds("timeout_seconds", timeout_seconds)
        self._heartbeat_interval_seconds = seconds(
            "heartbeat_interval_seconds", heartbeat_interval_seconds, MINIMUM_INTERVAL_SECONDS, MAXIMUM_SECONDS
        )
        self._connect_timeout_seconds = seconds(
            "connect_timeout_seconds", connect_timeout_seconds, below=MAXIMUM_SECONDS
        )
        self._serializer = _checked_serializer(serializer)
        named = os.fspath(key_file) if key_file is not None else None
        self._key_file = os.path.abspath(named) if named else named  # copies may be in other folders
        self._insecure = insecure
        self._serving = serving_options(data_address, direct_bytes)
        return code_sources

    def __getstate__(self) -> Dict[str, Any]:
        """What a copy of the client needs."""
        return {
            "address": self._address,
            "options": self._options,
            "timeout_seconds": self._timeout_seconds,
            "heartbeat_interval_seconds": self._heartbeat_interval_seconds,
            "connect_timeout_seconds": self._connect_timeout_seconds,
            "serializer": self._serializer,
            "key_file": self._key_file,
            "insecure": self._insecure,
            "serving": self._serving.elsewhere(),
        }

    def _set_state(self, state: Dict[str, Any]) -> List[Sequence[Root]]:
        """Take over the state of another client; returns where the code is that it ships."""
        state = dict(state)
        code_roots: List[Sequence[Root]] = state.pop("code_roots", [])
        for name, value in state.items():
            setattr(self, f"_{name}", value)
        self._task_options = self._options.message()
        # Inside a task, a client has the task's code.
        return code_roots if nesting.code is None else []


class Client(Submitter, ClientArguments):
    """A connection to a scheduler; submits tasks and returns futures.

    Parameters:
        address: of the scheduler, e.g. `tcp://127.0.0.1:2345`. By default what the environment variable SCALER_ADDRESS
            says; inside a task, the scheduler that the task came from; else the newest one of this user on this host.
        profiling: measure every task, for `ScalerFuture.profiling_info`.
        timeout_seconds: after this long without a scheduler, unfinished futures fail with DisconnectedError. Until
            then, a client that has lost its scheduler, or does not hear it, tries to reconnect, to it or to its
            successor at the address.
        heartbeat_interval_seconds: how often to send a heartbeat to the scheduler.
        serializer: how functions, arguments and results become bytes; by default cloudpickle.
        connect_timeout_seconds: how long to wait for a scheduler at the address.
        stream_output: what tasks print comes here: True prints it, a function is called with each `TaskOutput`, in a
            thread of the client.
        modules: Python code that workers import as it is here, given as names of modules and packages, paths, or
            modules; see `upload`.
        key_file: with the key of this client (`scaler keys new --role client`). By default, that of the environment
            variable SCALER_KEY_FILE, or of a scheduler that the same user has started.
        insecure: connect to a scheduler that was started with --insecure, without a key; by default, as the environment
            variable SCALER_INSECURE says.
        data_address: where workers fetch large arguments from this client; by default what the environment variable
            SCALER_DATA_ADDRESS says, else `tcp://*:0`: any free port of the interface with which it reaches the
            scheduler. "off": the scheduler fetches them from the client, and workers from it. Nothing listens if the
            scheduler is on this host.
        direct_bytes: objects of at least this size are fetched by workers, and not by the scheduler; 1 MiB by default.

    Durations are a number of seconds or a text such as "30s", "250ms" or "5min".

    Raises:
        InvalidAddressError: the address is malformed.
        SchedulerNotFoundError: no address was given and no scheduler was found.
        SchedulerUnreachableError: the address cannot be connected to.
        NotASchedulerError: the program that listens there is not a Scaler scheduler.
        AuthenticationError: there is no key for the scheduler, it does not admit the key, or it cannot prove its own.
        ProtocolVersionError: client and scheduler have no protocol version in common.
        SchedulerRefusedError: the scheduler refused for another reason.
        InvalidArgumentError, ArgumentTypeError: another argument is invalid.
        ModuleUploadError: one of `modules` cannot be found here, or cannot be shipped.

    It is a context manager: the end of the `with` block cancels unfinished tasks, with an UnfinishedTasksWarning. It
    may be used by many threads, and can be passed to tasks. A client without any reference left disconnects by itself
    once its tasks are done. In a fork of its process it is disconnected.

    Example:
        >>> with Client(address) as client:
        ...     print(client.submit(pow, 2, 10).result())
        1024
    """

    _identity: Optional[bytes] = None

    @accepts_earlier("Client")
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
        check_installation()
        code_sources = self._set_up(
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
        try:
            self._shell = self._make_shell(code_sources)
        except ScalerError as error:
            raise error.with_traceback(None) from error.__cause__  # our frames would hide what it says
        weakref.finalize(self, self._shell.abandon).atexit = False
        if callable(stream_output):
            self._shell.output.callback = stream_output

    @classmethod
    def synchronous(
        cls,
        profiling: bool = False,
        serializer: Optional[Serializer] = None,
        stream_output: Union[bool, OutputCallback] = False,
        modules: Union[Uploadable, Sequence[Uploadable]] = (),
    ) -> Client:
        """A client without a cluster, for debugging and tests: a task runs in the calling thread, when it is submitted.

        Arguments and results are pickled as in a cluster, and errors are the same. Futures are done when they are
        returned, and breakpoints in tasks work. Tasks are not stopped: `timeout`, `memory_limit`, `retries` and
        `capabilities` are checked and have no effect. `Client("synchronous")` is the same.

        Parameters:
            Those of `Client`.

        Raises InvalidArgumentError, ArgumentTypeError and ModuleUploadError as `Client`.

        Example:
            >>> with Client.synchronous() as client:
            ...     print(client.submit(pow, 2, 10).result())
            1024
        """
        return cls(
            SYNCHRONOUS, profiling=profiling, serializer=serializer, stream_output=stream_output, modules=modules
        )

    def _make_shell(self, code_sources: Sequence[CodeSource]) -> ClientShell:
        if self._address == SYNCHRONOUS:
            # Only here, because few programs need it.
            from scaler.synchronous.synchronous_shell import SynchronousShell

            shell: ClientShell = SynchronousShell(self._serializer, code_sources)
        else:
            shell = ClientShell(
                Credentials(self._address, self._key_file, self._insecure),
                self._serializer,
                self._timeout_seconds,
                self._connect_timeout_seconds,
                self._heartbeat_interval_seconds,
                code_sources,
                self._serving,
            )
        _open_shells.add(shell)
        return shell

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

        Example:
            >>> table = client.send_object(list(range(1000)), name="table")
            >>> client.submit(sum, table).result()
            499500
        """
        return self._send_object(obj, name)

    def explain(self, future: ScalerFuture[Any], timeout_seconds: Duration = 10.0) -> str:
        """Describe the state of a future in one sentence: its outcome, where it runs, or what it waits for.

        Parameters:
            future: of a task of this client.
            timeout_seconds: how long to wait for the scheduler's answer, such as 10 or "500ms".

        Raises InvalidArgumentError if the future belongs to another client.

        Example:
            >>> future = client.options(capabilities={"gpu": 1}).submit(abs, -1)
            >>> client.explain(future)
            'the task waits because no connected worker offers gpu=1 (no worker has any gpu): start one that does'
            >>> future.cancel()
            True
        """
        if not isinstance(future, ScalerFuture):
            raise ArgumentTypeError(f"future must be a ScalerFuture, got {type(future).__name__}")
        if future._client._shell is not self._shell:
            raise InvalidArgumentError(
                "the future belongs to another client: call explain() of the client that submitted the task"
            )
        return explain(self._shell, future, waiting_seconds(timeout_seconds))

    def info(
        self, maximum_workers: int = 100, timeout_seconds: Duration = 10.0, maximum_actors: int = 100
    ) -> ClusterInfo:
        """The size and the load of the cluster, as its scheduler sees it now.

        Parameters:
            maximum_workers: how many workers to list at most; all of them are counted. A scheduler lists 1000 at most.
            timeout_seconds: how long to wait for the scheduler's answer, such as 10 or "500ms".
            maximum_actors: how many actors to list at most, likewise.

        Raises:
            DisconnectedError: this client is disconnected, or the scheduler does not answer.
            ArgumentTypeError, InvalidArgumentError: a maximum is not a whole number, or below 0.

        Example:
            >>> info = client.info()
            >>> info.worker_count, info.slots
            (1, 2)
        """
        query = info_request(maximum_workers, maximum_actors)
        return info(self._shell, self._address, query, waiting_seconds(timeout_seconds))

    # Code -----------------------------------------------------------------------------------------------------------

    def upload(self, *modules: Uploadable) -> None:
        """Ship Python code to the workers, once to each, for what is submitted through this client from now on.

        Tasks import it instead of what their worker has installed under the same names. What was uploaded before stays,
        and is shipped again if it has changed; `upload()` without arguments does only that.

        Parameters:
            modules: names of modules or packages, as `import` finds them here; paths of Python files, of packages, or
            of folders that contain them; or imported modules. All files of a package are shipped, except compiled and
            hidden ones, caches and virtual environments.

        Raises:
            ModuleUploadError: there is no such code; or it cannot be shipped, because a part of it is compiled for
                this machine, or it is too large.
            TypeError: one of `modules` is something else.
        """
        self._shell.check_open()
        self._shell.code.upload(modules)

    def restart_processors(self) -> None:
        """Run what is submitted through this client from now on in processors that have not run any task before.

        Use it for changes that reloading cannot reach: an extension module that was rebuilt, a package that was
        upgraded, or state that earlier tasks left in memory. Running tasks and other clients are not disturbed.
        Processors that are no longer needed exit when they are idle. What a worker's `--preload` imported stays as it
        is.

        Raises DisconnectedError when this client is disconnected.
        """
        self._shell.check_open()
        self._shell.code.renew()

    # Ending ---------------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Cancel all unfinished tasks of this client and invalidate all its object references; it stays usable."""
        self._shell.clear()

    def disconnect(self) -> None:
        """Leave the scheduler: unfinished futures are cancelled. The client cannot be used any more. Idempotent."""
        for key, shell in list(_shared_shells.items()):
            if shell is self._shell:
                _shared_shells.pop(key, None)
        self._shell.close()

    def shutdown(self) -> None:
        """Stop the whole cluster, scheduler and workers, unless the scheduler is protected.

        Raises:
            ShutdownRefusedError: the scheduler is in protected mode.
            DisconnectedError: the scheduler did not answer.
        """
        shut_down_cluster(self._shell, SHUTDOWN_TIMEOUT_SECONDS)
        self.disconnect()

    def shutdown_worker(self, worker: Union[int, str], drain: bool = True) -> None:
        """Make one worker leave the cluster.

        Parameters:
            worker: its session number, or its name if no other has the same.
            drain: the worker finishes its running tasks and gives back those that have not started; otherwise it stops
            at once, and its running tasks run again elsewhere, unless the scheduler is protected. Either way it is not
            restarted.

        Returns when the worker has been asked, not when it has left.

        Raises:
            ShutdownRefusedError: the scheduler is in protected mode, and the worker is to stop at once; or it knows no
                such worker, or several.
            InvalidArgumentError, ArgumentTypeError: the worker is neither a session number nor a name.
            DisconnectedError: the scheduler did not answer.
        """
        shut_down_worker(self._shell, worker, drain, SHUTDOWN_TIMEOUT_SECONDS)

    @property
    def is_open(self) -> bool:
        """Whether the client has not been disconnected, and has not ended for another reason."""
        return self._shell.closed_because is None

    def __enter__(self) -> Client:
        current_client.enter(self)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        cancelled = 0
        current_client.leave(self)
        try:
            if kind is None:
                cancelled = self._shell.cancel_unfinished(LEAVE_TIMEOUT_SECONDS)
        finally:
            self.disconnect()
        if cancelled:
            warn_of_cancelled(cancelled)

    # Being passed to tasks ------------------------------------------------------------------------------------------

    def __getstate__(self) -> Dict[str, Any]:
        return {**super().__getstate__(), "code_roots": self._shell.code.roots}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        """All copies of a client that arrive in one process share one connection."""
        code_roots = self._set_state(state)
        identity = self._address, self._key_file, self._insecure
        key = (*identity, type(self._serializer), *(tuple(roots) for roots in code_roots))
        with _shared_lock:
            shell = _shared_shells.get(key)
            if shell is None or shell.closed_because is not None:
                shell = _shared_shells[key] = self._make_shell([source_at(roots) for roots in code_roots])
            self._shell = shell

    def __repr__(self) -> str:
        return f"<Client {self._address}, {self._state()}>"

    def _repr_html_(self) -> str:
        shell = self._shell
        is_local = self._address != SYNCHRONOUS and parse_addresses(self._address)[0].is_local
        rows: List[Row] = [
            ("scheduler", self._address),
            ("implementation", f"{shell.welcome.implementation.name} {shell.welcome.implementation.version}"),
            ("state", self._state()),
            ("slots", shell.slots or ""),  # empty until the first heartbeat
            ("user interface", Link(link_to(shell.welcome.monitor_address) if is_local else "")),
        ]
        return card("Client", rows)

    def _state(self) -> str:
        return self._shell.state()


def waiting_seconds(timeout_seconds: Duration) -> float:
    """How long to wait for an answer of the scheduler."""
    return seconds("timeout_seconds", timeout_seconds, below=MAXIMUM_SECONDS)


def _checked_serializer(serializer: Optional[Serializer]) -> Optional[Serializer]:
    for name in ("serialize", "deserialize") if serializer is not None else ():
        if not callable(getattr(serializer, name, None)):
            raise ArgumentTypeError(f"serializer must have a method {name}(), but {type(serializer).__name__} does not")
    return serializer


def _checked_address(address: str) -> str:
    if not isinstance(address, str):
        raise ArgumentTypeError(f"address must be a str such as 'tcp://127.0.0.1:2345', got {type(address).__name__}")
    if address == SYNCHRONOUS:
        return SYNCHRONOUS
    try:
        places = parse_addresses(address)
    except AddressError as error:
        raise InvalidAddressError(str(error)) from None
    from_any_folder = tuple(each.from_any_folder() for each in places)
    return str(address) if from_any_folder == places else ",".join(map(str, from_any_folder))


def _address_found() -> str:
    if nesting.this_thread.is_in_synchronous_task:
        return SYNCHRONOUS
    try:
        return _checked_address(address_given_or_found())
    except DiscoveryError as error:
        # The first words are those of the second generation.
        raise SchedulerNotFoundError(
            f"No scheduler address provided, and not running inside a worker context: {error}"
        ) from None


def _close_all() -> None:
    """The program ends, and with it what it has not waited for."""
    cancelled = 0
    deadline = time.monotonic() + LEAVE_TIMEOUT_SECONDS  # for all of them together
    shells = list(_open_shells)
    try:
        for shell in shells if is_program_ending_well() else ():
            cancelled += shell.cancel_unfinished(max(0.0, deadline - time.monotonic()))
    finally:
        for shell in shells:
            shell.start_closing()
        for shell in shells:
            shell.close()
    warn_at_the_end(cancelled)


def _after_fork_in_child() -> None:
    """In a fork of this process: the connections stay the parent's."""
    global _shared_lock
    _shared_lock = threading.Lock()
    _shared_shells.clear()
    for shell in list(_open_shells):
        shell.after_fork_in_child()
    _open_shells.clear()


if hasattr(os, "register_at_fork"):
    _held_turns = HeldTurns()
    os.register_at_fork(
        before=lambda: _held_turns.hold([shell.io.turn_lock for shell in list(_open_shells)]),
        after_in_parent=_held_turns.release,
        after_in_child=_after_fork_in_child,
    )
threading_register = getattr(threading, "_register_atexit", None)
if threading_register is not None:
    threading_register(_close_all)  # runs before daemon threads are frozen, unlike atexit
else:  # pragma: no cover
    import atexit

    atexit.register(_close_all)
