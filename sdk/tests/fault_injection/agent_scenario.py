"""A small life of a worker's agent over a simulated system: tasks, objects, dying processors, and leaving."""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import pickle
import shutil
import tempfile
from array import array
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Type

from fault_injection.played_processors import LARGE_BYTES, PlayedForkServer
from fault_injection.played_scheduler import CHUNK_BYTES, URL, PeerOfScheduler, PlayedScheduler
from fault_injection.simulated_loop import SimulatedLoop
from fault_injection.simulated_sockets import FakeSocket
from fault_injection.simulated_system import Fault, SimulatedSystem, StuckError, installed

from scaler.data_serving import data_connections, data_dialer, rounds
from scaler.values import payload as payloads
from scaler.worker import frame_reader, resident_memory
from scaler.worker.agent.shell import (
    agent_shell,
    code_folders,
    process_statistics,
    processor_handle,
    scheduler_connection,
    worker_files,
)
from scaler.worker.agent.shell.agent_shell import Agent
from scaler.worker.exit_codes import EXIT_OK
from scaler.worker.fork_server import fork_server_client
from scaler.worker.fork_server.fork_server_client import ForkServerClient
from scaler.worker.progress_page import ProgressPage
from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol import decode_struct
from scaler_protocol import messages as m
from scaler_protocol.host import addresses, connection, segments, spill
from scaler_protocol.host.segments import object_name
from scaler_protocol.session.ids import object_id_of

MODULES = (
    agent_shell,
    code_folders,
    data_connections,
    data_dialer,
    process_statistics,
    processor_handle,
    rounds,
    scheduler_connection,
    worker_files,
    fork_server_client,
    frame_reader,
    resident_memory,
    connection,
    addresses,
    segments,
    spill,
)
ANY_DATA_ADDRESS = "tcp://*:0"
OBJECT_BYTES = 200_000
LONG_BYTES = 700_000

STAGES: Tuple[Dict[str, Tuple[Any, ...]], ...] = (
    {"one": (1,)},
    {"two": (2,), "three": (3,), "long": (b"x" * LONG_BYTES,)},
    {"object": ("needs the object",)},
    {"large": ("large",)},
    {"dies once": ("die", 2)},
    {"dies": ("die", 0)},
    {"hangs": ("hang",)},
    {"last": (9,)},
)
EXPECTED: Dict[str, Any] = {
    "one": 1,
    "two": 2,
    "three": 3,
    "long": b"x" * LONG_BYTES,
    "object": [OBJECT_BYTES],
    "large": f"{LARGE_BYTES} bytes",
    "dies once": "die",
    "dies": m.FailureKind.PROCESSOR_DIED,
    "hangs": m.FailureKind.TIME_LIMIT,
    "last": 9,
}


class SchedulerOfWorker(PlayedScheduler):
    """Sends a worker one stage of tasks after the other, in one or more rounds; after the last, it asks it to leave.

    Each round has a function and an object of its own. Every other one begins with the loss of the connection.

    Attributes:
        storage: where the object is if the worker does not share the directory.
        results: large ones that are fetched.
        rounds: how many there are to be.
        on_round: called when one is over, with its number.
    """

    def __init__(self, system: SimulatedSystem, directory: Optional[str]) -> None:
        super().__init__(system, directory)
        self.storage = m.ObjectStorage.REMOTE
        self.rounds = 1
        self.on_round: Callable[[int], None] = lambda number: None
        self._round = 0
        self.outcomes: Dict[str, Any] = {}
        self.problems: List[str] = []
        self._names: Dict[int, str] = {}  # of instances of the current session
        self._next_instance = 1
        self.results: Dict[int, bytearray] = {}
        self._sizes: Dict[int, int] = {}
        self._function = self._object = 0

    def on_opened(self) -> None:
        self._names.clear()
        self.results.clear()
        self._begin_round()

    def _begin_round(self) -> None:
        assert self.peer is not None
        self._function = object_id_of(77, 2 * self._round + 1)
        self._object = object_id_of(77, 2 * self._round + 2)
        content = payloads.join(payloads.dump_function(len, None))
        self._announce(self._function, len(content), m.ObjectStorage.INLINE, m.ObjectKind.FUNCTION, bytes(content))
        storage = self.storage
        if self._directory:
            storage = m.ObjectStorage.SHARED
            with open(os.path.join(self._directory, object_name(self._object)), "wb") as file:
                file.write(bytes(OBJECT_BYTES))
        self._announce(self._object, OBJECT_BYTES, storage, m.ObjectKind.VALUE)
        self._send_stage()

    def _announce(self, object_id: int, size: int, storage: int, kind: int, content: bytes = b"") -> None:
        assert self.peer is not None
        message = m.ObjectInstruction(
            action=m.ObjectAction.CREATE,
            ids=array("Q", [object_id]),
            sizes=array("Q", [size]),
            storages=bytes([storage]),
            kinds=bytes([kind]),
        )
        self.peer.send(message, content)

    def _send_stage(self) -> None:
        assert self.peer is not None
        for stage in STAGES:
            missing = [name for name in stage if name not in self.outcomes]
            for name in missing:
                if name not in self._names.values():
                    self._send_task(name, stage[name])
            if missing:
                return
        self._round += 1
        self.on_round(self._round)
        if self._round < self.rounds:
            self._end_round()
            return
        self.peer.send(m.DisconnectRequest(reason=m.DisconnectReason.SHUTDOWN, message="enough"))

    def _end_round(self) -> None:
        assert self.peer is not None
        self.problems += [f"{name}: {each!r}" for name, each in self.outcomes.items() if each != EXPECTED[name]]
        self.outcomes.clear()
        self._sizes.clear()
        if self._round % 2:
            self.peer.lose()
            return
        deletion = m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=array("Q", [self._function, self._object]))
        self.peer.send(deletion)
        self._names.clear()
        self.results.clear()
        self._begin_round()

    def _send_task(self, name: str, arguments: Tuple[Any, ...]) -> None:
        assert self.peer is not None
        instance, self._next_instance = self._next_instance, self._next_instance + 1
        self._names[instance] = name
        content = pickle.dumps(arguments, 5)
        needed = [self._object] if name == "object" else []
        message = m.Task(
            ids=array("Q", [instance]),
            payload_sizes=array("I", [len(content)]),
            function=self._function,
            codec="cloudpickle",
            options=m.TaskOptions(
                retries=3 if name == "dies once" else 0,
                time_limit_milliseconds=100 if name == "hangs" else 0,
                memory_limit_bytes=1 << 40 if name == "hangs" else 0,
            ),
            dependency_counts=array("H", [len(needed)] if needed else []),
            dependencies=array("Q", needed),
        )
        self.peer.send(message, content)

    def on_other(self, peer: PeerOfScheduler, message: Any, payload: bytes) -> None:
        if peer is not self.peer:
            return
        if isinstance(message, m.TaskResult):
            self._on_result(message, payload)
        elif isinstance(message, m.ObjectRequest):
            part = bytes(OBJECT_BYTES)[message.offset : message.offset + message.length]
            peer.send(m.ObjectResponse(id=message.id, offset=message.offset, size=OBJECT_BYTES), part)
        elif isinstance(message, m.ObjectInstruction):
            self.on_announced(peer, message)
        elif isinstance(message, m.ObjectResponse):
            self._on_response(peer, message, payload)

    def on_announced(self, peer: PeerOfScheduler, message: m.ObjectInstruction) -> None:
        """The worker has made large results."""
        for object_id, size, storage in zip(message.ids, message.sizes, message.storages):
            self._sizes[object_id] = size
            if storage != m.ObjectStorage.SHARED:
                self.results[object_id] = bytearray()
                self.fetch(peer, object_id)

    def fetch(self, peer: PeerOfScheduler, object_id: int) -> None:
        """Request a part of a large result."""
        peer.send(m.ObjectRequest(id=object_id, offset=len(self.results[object_id]), length=CHUNK_BYTES))

    def _on_response(self, peer: PeerOfScheduler, message: m.ObjectResponse, payload: bytes) -> None:
        if message.status != m.ObjectResponseStatus.OK:
            self.on_missing(message.id)
            return
        self.results[message.id] += payload
        if len(self.results[message.id]) < message.size:
            self.fetch(peer, message.id)
        else:
            self.on_fetched(message.id)

    def on_missing(self, object_id: int) -> None:
        """A large result is lost: the worker runs the task again."""

    def on_fetched(self, object_id: int) -> None:
        """All of a large result has come."""

    def _on_result(self, message: m.TaskResult, payload: bytes) -> None:
        for position, instance in enumerate(message.ids):
            size = message.payload_sizes[position]
            content, payload = payload[:size], payload[size:]
            name = self._names.get(instance, "")
            if not name or name in self.outcomes:
                self.problems.append(f"an outcome of unknown instance {instance} ({name})")
                continue
            if message.statuses and message.statuses[position] != m.TaskStatus.SUCCESS:
                self.outcomes[name] = decode_struct(m.Failure, content).kind
            elif message.objects and message.objects[position]:
                self.on_large(name, message.objects[position])
            else:
                self.outcomes[name] = pickle.loads(content)
        self._send_stage()

    def on_large(self, name: str, object_id: int) -> None:
        """The result of a task is an object."""
        self.outcomes[name] = self._large(object_id)

    def _large(self, object_id: int) -> str:
        if object_id in self.results:
            return f"{len(self.results[object_id])} bytes"
        path = os.path.join(self._directory, object_name(object_id))
        size = os.path.getsize(path)
        os.unlink(path)
        return f"{size} bytes"


class AgentRun(NamedTuple):
    """The outcome of one run.

    Parameters:
        exit_code: None if there was no agent.
        problems: what is wrong whatever the fault was.
    """

    system: SimulatedSystem
    sessions: int
    outcomes: Dict[str, Any]
    exit_code: Optional[int]
    problems: List[str]


def run_agent(
    folder: Path,
    fault: Optional[Fault] = None,
    is_shared: bool = True,
    prepare: Callable[[Agent, SchedulerOfWorker], None] = lambda agent, scheduler: None,
    play: Type[SchedulerOfWorker] = SchedulerOfWorker,
) -> AgentRun:
    """Run the scenario once.

    Parameters:
        prepare: called before the agent runs.
        play: a scheduler; if it is of another class, the worker has a data address.
    """
    parent = tempfile.mkdtemp(dir=folder)
    directory = os.path.join(parent, "scheduler")
    os.mkdir(directory)
    system = SimulatedSystem(fault)
    exit_code: Optional[int] = None
    problems: List[str] = []
    logger = logging.getLogger("scaler")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    scheduler = play(system, directory if is_shared else None)
    try:
        with installed(system, MODULES) as patch:
            for module in (segments, worker_files):
                patch.setattr(module, "default_parent", lambda: parent, raising=False)
            patch.setattr(tempfile, "gettempdir", lambda: parent)
            page = ProgressPage()
            control = FakeSocket(system)
            fork_server = PlayedForkServer(system, control, page.entry)
            client = ForkServerClient(control)  # type: ignore[arg-type]  # as far as it is used
            data_address = "off" if play is SchedulerOfWorker else ANY_DATA_ADDRESS
            settings = WorkerSettings(address=URL, slots=2, names=("one", "two"), data_address=data_address)
            with contextlib.closing(client):
                agent = Agent(settings, client, page, SimulatedLoop(system))  # type: ignore[arg-type]  # as far as it is used
                prepare(agent, scheduler)
                exit_code = agent.run()
            del agent
            for pattern in fork_server.patterns:
                for path in glob.glob(pattern):
                    shutil.rmtree(path, ignore_errors=True)
                    with contextlib.suppress(OSError):
                        os.unlink(path)
        if not fork_server.has_ended:
            problems.append("the fork server still runs")
    except StuckError as error:
        problems.append(f"stuck: {error}")
    except (OSError, MemoryError) as error:
        problems.append(f"not started: {error!r}")
    finally:
        logger.setLevel(level)
    problems += scheduler.problems
    problems += [f"left open: {each!r}" for each in system.left_open()]
    problems += [f"left behind: {name}" for name in os.listdir(parent) if name != "scheduler"]
    left = [name for name in os.listdir(directory) if name.startswith("new-")]
    problems += [f"left behind in the scheduler's directory: {name}" for name in left]
    shutil.rmtree(parent)
    return AgentRun(system, scheduler.sessions, scheduler.outcomes, exit_code, problems)


def is_as_expected(run: AgentRun) -> bool:
    """Whether all tasks had the right outcomes, and the worker ended as asked."""
    return run.outcomes == EXPECTED and run.exit_code == EXIT_OK
