"""Features that an implementation may lack and say so, in the file of `--config`: its cases do not apply then.

Rule: only what the specification leaves free stands here. What it demands of everybody is no feature.
"""

from __future__ import annotations

from typing import Dict

FEATURES: Dict[str, str] = {
    "processes": "runs tasks in processes of their own, which may end or crash without the worker",
    "force-cancel": "stops a task that runs when a cancel says so",
    "time-limit": "enforces a task's time limit",
    "memory-limit": "enforces a task's memory limit",
    "stream-output": "sends what a task prints while it runs",
    "profiling": "measures each task when asked to",
    "shared-directory": "uses the scheduler's object directory when it sees it",
    "nested": "has tasks that use a client",
    "predecessors": "scheduler: lets a task wait for the results of others",
    "signals": "ends properly on SIGTERM",
}

VARIANTS: Dict[str, str] = {
    "protected": "refuses ClientShutdown",
    "unprotected": "obeys ClientShutdown",
    "short-timeout": "ends sessions of peers that were silent for some seconds; less than half of the suite's deadline",
    "short-handshake": "closes connections that do not finish their handshake within some seconds, not 30",
    "little-unread": "closes the connection of who leaves 16 MiB unread, not 1 GiB",
    "small-limits": "lets a client have at most 64 tasks and 1 MiB in flight",
}
"""Ways to configure a scheduler. `--config` says which arguments have it start so; cases look at what Welcome says."""
