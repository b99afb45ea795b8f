"""Features that an implementation may lack: the file of `--config` lists them, and their cases do not apply.

Rule: only what the specification leaves optional is a feature.
"""

from __future__ import annotations

from typing import Dict

FEATURES: Dict[str, str] = {
    "processes": "runs tasks in separate processes, which may exit or crash without ending the worker",
    "force-cancel": "stops a running task when it is cancelled with force",
    "time-limit": "enforces a task's time limit",
    "memory-limit": "enforces a task's memory limit",
    "stream-output": "sends what a task prints while it runs",
    "profiling": "measures tasks that have the option profiling",
    "shared-directory": "uses the scheduler's object directory if it can read it",
    "nested": "runs tasks that use a client",
    "predecessors": "as a scheduler, lets a task wait for the results of others",
    "kept-results": "as a scheduler, leaves large results with their workers; as a worker, keeps them",
    "peer-fetch": "as a scheduler, lets workers fetch results from one another; as a worker, does so",
    "kept-arguments": "as a scheduler, lets workers fetch objects from clients; as a client, keeps them for workers",
    "actors": "as a scheduler, keeps the calls of an actor at one worker and in order; as a worker, runs them",
    "drain-requests": "as a scheduler, drains workers that ask for it; as a worker, asks for it when it is told to end",
    "resume": "goes on with a session over another connection",
    "demand": "as a scheduler, says how many slots tasks could use",
    "provisioning": "as a scheduler, serves provisioners, which start and release workers",
    "reload-keys": "as a scheduler that requires keys, reads the list of admitted keys again on SIGHUP",
    "signals": "exits cleanly on SIGTERM",
}

VARIANTS: Dict[str, str] = {
    "protected": "refuses ClientShutdown",
    "unprotected": "accepts ClientShutdown",
    "short-timeout": "ends sessions of peers that were silent for some seconds, less than half of the suite's deadline",
    "short-handshake": "closes connections with an unfinished handshake after some seconds instead of 30",
    "little-unread": "closes connections with more than 16 MiB unread instead of 1 GiB",
    "keys": "has the keys in the folder {keys}, and requires keys if it is a scheduler; see README.md",
    "no-keys": "has no keys: these arguments are appended in all other cases",
    "small-limits": "allows a client at most 64 tasks and 1 MiB in flight",
}
"""Ways to configure a scheduler; `keys` and `no-keys` are for workers, too.

`--config` has the arguments for each; cases check what the Welcome says.
"""
