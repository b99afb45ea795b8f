"""Helpers that exist only for programs of earlier generations, which import them.

Rule: each behaves as it did there, implemented with this generation.
"""

from __future__ import annotations

import datetime
import enum
import hashlib
import logging
import os
import pickle
import socket
import sys
import time
import uuid
from types import TracebackType
from typing import Any, ClassVar, Dict, List, Optional, Sequence, Set, Tuple, Type

import cloudpickle

from scaler import nesting
from scaler.exceptions import ScalerError
from scaler.serializer import Serializer

# Defaults -----------------------------------------------------------------------------------------------------------

CAPNP_DATA_SIZE_LIMIT = 2**29 - 1
CAPNP_MESSAGE_SIZE_LIMIT = 2**64 - 1
CLEANUP_INTERVAL_SECONDS = 1
DEFAULT_CLIENT_TIMEOUT_SECONDS = 60
DEFAULT_GARBAGE_COLLECT_INTERVAL_SECONDS = 30
DEFAULT_HARD_PROCESSOR_SUSPEND = False
DEFAULT_HEARTBEAT_INTERVAL_SECONDS = 2
DEFAULT_IO_THREADS = 1
DEFAULT_LOAD_BALANCE_SECONDS = 1
DEFAULT_LOAD_BALANCE_TRIGGER_TIMES = 2
DEFAULT_LOGGING_LEVEL = "INFO"
DEFAULT_LOGGING_PATHS = ("/dev/stdout",)
DEFAULT_MAX_NUMBER_OF_TASKS_WAITING = -1
DEFAULT_MAX_TASK_CONCURRENCY = os.cpu_count() or 1
DEFAULT_NUMBER_OF_WORKER = max(1, DEFAULT_MAX_TASK_CONCURRENCY - 1)
DEFAULT_OBJECT_RETENTION_SECONDS = 60
DEFAULT_PER_WORKER_QUEUE_SIZE = 1000
DEFAULT_PROCESSOR_KILL_DELAY_SECONDS = 3
DEFAULT_TASK_TIMEOUT_SECONDS = 0
DEFAULT_TRIM_MEMORY_THRESHOLD_BYTES = 1024 * 1024 * 1024
DEFAULT_WORKER_DEATH_TIMEOUT = 5 * 60
DEFAULT_WORKER_TIMEOUT_SECONDS = 60
PROFILING_INTERVAL_SECONDS = 1
STATUS_REPORT_INTERVAL_SECONDS = 1


# Errors that are not raised any more --------------------------------------------------------------------------------


class TaskNotFoundError(ScalerError):
    """The scheduler did not know the task to cancel. Not raised: cancelling such a task has no effect here."""


class ClientCancelledException(ScalerError):
    """A client stopped itself. Not raised: futures of a client that disconnects are cancelled."""


class CapnpDeserializationError(ScalerError):
    """A message was malformed. Not raised: the scheduler closes the connection of a peer that sends one."""


# Addresses ----------------------------------------------------------------------------------------------------------


class SocketType(enum.Enum):
    """The transport of an address."""

    inproc = "inproc"
    ipc = "ipc"
    tcp = "tcp"
    tls = "tls"
    ws = "ws"
    wss = "wss"

    @staticmethod
    def allowed_types() -> Set[str]:
        return {each.value for each in SocketType}


ZMQType = SocketType


class AddressConfig(str):
    """An address with its parts; a `str`, so that it can be used wherever an address is expected."""

    type: SocketType
    host: str
    port: Optional[int]

    def __new__(cls, type: SocketType, host: str, port: Optional[int] = None) -> AddressConfig:  # noqa: A002
        if not isinstance(type, SocketType):
            raise TypeError(f"the type of an address must be a SocketType, got {type!r}")
        has_port = type not in (SocketType.inproc, SocketType.ipc)
        if has_port != (port is not None):
            raise ValueError(f"an address of type {type.value} {'needs a' if has_port else 'must not have a'} port")
        address = super().__new__(cls, f"{type.value}://{host}" + (f":{port}" if has_port else ""))
        address.type, address.host, address.port = type, host, port
        return address

    def __getnewargs__(self) -> Tuple[Any, ...]:
        return (self.type, self.host, self.port)

    @classmethod
    def from_string(cls, string: str) -> AddressConfig:
        """Raises ValueError if it is not an address."""
        kind, separator, rest = string.partition("://")
        if not separator or kind not in SocketType.allowed_types():
            raise ValueError(f"{string!r} is not an address such as tcp://127.0.0.1:12345")
        if SocketType(kind) in (SocketType.inproc, SocketType.ipc):
            return cls(SocketType(kind), rest)
        host, _, port = rest.rpartition(":")
        if not port.isdigit():
            raise ValueError(f"{string!r} has no port: cannot convert {port!r} to port number")
        return cls(SocketType(kind), host, int(port))

    def to_address(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return str.__str__(self)

    __repr__ = __str__


ZMQConfig = AddressConfig


def get_available_tcp_port(hostname: str = "127.0.0.1") -> int:
    """A currently free TCP port. `SchedulerClusterCombo(address=None)` chooses one without a race."""
    with socket.socket() as listener:
        listener.bind((hostname, 0))
        port: int = listener.getsockname()[1]
        return port


def cull_graph(graph: Dict[Any, Any], keys: List[Any]) -> Dict[Any, Any]:
    """The part of a graph that `keys` need. `Client.get` does this by itself."""
    needed: Dict[Any, Any] = {}
    open_keys = list(keys)
    while open_keys:
        key = open_keys.pop()
        if key not in needed:
            task = needed[key] = graph[key]
            if isinstance(task, tuple) and task and callable(task[0]):
                open_keys += task[1:]
    return needed


# Identifiers --------------------------------------------------------------------------------------------------------


class Identifier(bytes):
    """Bytes that identify something."""

    _kind: ClassVar[str] = ""

    @classmethod
    def _generate(cls, name: Optional[str] = None) -> Any:
        return cls("|".join(filter(None, (cls._kind, name, uuid.uuid4().hex))).encode())


class ClientID(Identifier):
    """Identifies a client: see `Client.identity`."""

    _kind = "Client"

    def __repr__(self) -> str:
        return f"ClientID({self.decode()})"

    @classmethod
    def generate_client_id(cls, name: Optional[str] = None) -> ClientID:
        made: ClientID = cls._generate(name)
        return made


class WorkerID(Identifier):
    _kind = "Worker"

    def __repr__(self) -> str:
        return f"WorkerID({self.decode()})"

    @classmethod
    def generate_worker_id(cls, name: str) -> WorkerID:
        made: WorkerID = cls._generate(name)
        return made


class TaskID(Identifier):
    def __repr__(self) -> str:
        return f"TaskID({self.hex()})"

    @staticmethod
    def generate_task_id() -> TaskID:
        return TaskID(uuid.uuid4().bytes)


class ObjectID(Identifier):
    @staticmethod
    def generate_object_id(owner: bytes = b"") -> ObjectID:
        return ObjectID(hashlib.md5(owner, usedforsecurity=False).digest() + uuid.uuid4().bytes)

    def __repr__(self) -> str:
        return f"ObjectID({self.hex()})"


# Serialisation and tasks --------------------------------------------------------------------------------------------


class DefaultSerializer(Serializer):
    """The default serialisation of `Client`, cloudpickle, as a base class."""

    @staticmethod
    def serialize(obj: Any) -> bytes:
        made: bytes = cloudpickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)
        return made

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        return cloudpickle.loads(payload)


class Processor:
    """The process that runs tasks, for programs that ask whether they are inside one."""

    @staticmethod
    def get_current_processor() -> Optional[Processor]:
        """This process inside a task; None elsewhere."""
        is_in_task = nesting.priority_of_task is not None and nesting.priority_of_task() is not None
        return Processor() if is_in_task else None

    def scheduler_address(self) -> AddressConfig:
        """The address that `Client()` connects to in this process."""
        from scaler_protocol.host.discovery import address_given_or_found

        return AddressConfig.from_string(address_given_or_found())


# Logging ------------------------------------------------------------------------------------------------------------


class LoggingLevel(enum.Enum):
    CRITICAL = logging.CRITICAL
    ERROR = logging.ERROR
    WARNING = logging.WARNING
    INFO = logging.INFO
    DEBUG = logging.DEBUG
    NOTSET = logging.NOTSET


def setup_logger(
    log_paths: Sequence[str] = ("/dev/stdout",),
    logging_config_file: Optional[str] = None,
    logging_level: str = "INFO",
) -> None:
    """Set up logging for a program, as Scaler's own programs do, but for the root logger."""
    from scaler_protocol.programs.logging_setup import setup_logging

    if not log_paths and not logging_config_file:
        return
    logger, root = setup_logging(log_paths, logging_level, logging_config_file), logging.getLogger()
    if logging_config_file is None:
        root.handlers[:] = [each for each in root.handlers if each not in _root_handlers] + logger.handlers
        _root_handlers[:] = logger.handlers
        root.setLevel(logging_level)
        logger.handlers.clear()
        logger.propagate = True


_root_handlers: List[logging.Handler] = []  # from the last call


class TimedLogger:
    """Logs the duration of an operation."""

    def __init__(self, message: str, logging_level: int = logging.INFO) -> None:
        self.message = message
        self.logging_level = logging_level
        self._began_ns = 0

    def begin(self) -> None:
        self._began_ns = time.perf_counter_ns()
        logging.log(self.logging_level, "beginning %s", self.message)  # noqa: LOG015  # users see it in their own log

    def end(self) -> None:
        took = datetime.timedelta(microseconds=(time.perf_counter_ns() - self._began_ns) // 1000)
        logging.log(self.logging_level, "completed %s in %s", self.message, took)  # noqa: LOG015


class ScopedLogger:
    """Logs the duration of its `with` block."""

    def __init__(self, message: str, logging_level: int = logging.INFO) -> None:
        self.timer = TimedLogger(message, logging_level)

    def __enter__(self) -> None:
        self.timer.begin()

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.timer.end()


# Programs that are the appliance's ----------------------------------------------------------------------------------


def run_scheduler() -> None:
    """Replace this process by `scaler_scheduler`, with its arguments."""
    from scaler.cluster.appliance import scheduler_command

    _become(scheduler_command())


def run_top() -> None:
    """Replace this process by `scaler_top`, with its arguments."""
    _become([sys.executable, "-m", "scaler_appliance.top"])


def run_ui() -> None:
    """Replace this process by `scaler_ui`, with its arguments."""
    from scaler.cluster.appliance import interface_command

    _become(interface_command())


def _become(command: Sequence[str]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(command[0], [*command, *sys.argv[1:]])
