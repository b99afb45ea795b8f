"""Every setting of a worker, with its default: filled in from the command line, and used by the agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of one worker. Durations in seconds, sizes in bytes."""

    address: str
    slots: int
    names: Tuple[str, ...] = ()
    heartbeat_interval_seconds: float = 2
    task_timeout_seconds: float = 0
    garbage_collect_interval_seconds: float = 30
    trim_memory_threshold_bytes: int = 1024 * 1024 * 1024
    object_retention_seconds: float = 3600
    death_timeout_seconds: float = 300
    per_worker_queue_size: int = 1000
    event_loop: str = "builtin"
    key_file: Optional[str] = None
    insecure: bool = False  # connect without a key
    exit_when_stdin_closes: bool = False
    functions: Tuple[Tuple[str, str], ...] = ()  # served by name: pairs of a name and MODULE:FUNCTION
    only_named: bool = False  # functions are served, and nothing that clients send is unpickled
    capabilities: Tuple[Tuple[str, float], ...] = ()  # of the host, that is of all its slots together
    data_address: str = "tcp://*:0"  # where other workers fetch objects; see `data_address`
    drain_timeout_seconds: float = 25
    idle_timeout_seconds: float = 0  # 0: it stays, tasks or not
    end_of_life: Optional[float] = None  # when the program has to have ended, by the monotonic clock
    drain_file: Optional[str] = None
    drain_url: Optional[str] = None  # asked for notice: see `notice_address`
    drain_url_headers: Tuple[Tuple[str, str], ...] = ()
    drain_url_text: str = ""  # which an answer must have
    drain_signal: Optional[str] = None  # such as SIGUSR1
    unit: Optional[str] = None  # its id at the provisioner that has started it
    record: Optional[str] = None  # the file that everything is written to that reaches the agent
    record_payloads: bool = False
    record_limit_bytes: int = 1 << 30
