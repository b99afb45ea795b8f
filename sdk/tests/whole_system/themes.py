"""What many histories concentrate on: few faults and features, and these often.

A bug that needs two or three rare things at once hardly ever meets them where all features are drawn alike. A theme
names what has to come together; everything else is off, so that a history is short, and reaches far into its subject.

Rules:
- Which theme a history has comes from its seed, apart from all other chance; two of five histories have none.
- A theme says nothing of what must come out: all judges are those of any history.
- A theme has found planted bugs that need more than a hundred histories without it (docs/adr/0019), or it goes.
"""

from __future__ import annotations

from random import Random
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence

THEMED_SHARE = 0.6
LATER_SHARE = 0.05
CHOICES = frozenset(
    {"users", "workers", "slots", "most_unfinished", "client_tasks_in_flight", "client_bytes_in_flight", "priority"}
    | {"delay_seconds", "prefetch_seconds", "safety_seconds", "task_seconds", "run_seconds", "looking_share"}
)
"""The settings that a theme may choose from values of its own."""


class Theme(NamedTuple):
    """What a history concentrates on.

    Parameters:
        rates: of faults and features; the others do not happen.
        choices: from which settings are drawn instead of their own, by name.
        is_insistent: users always have as many tasks as they may; when one has ended, they submit another one.
        safety_events: after as many the phase with faults ends; 0: as usual.
        has_large_steps: what users submit at once may be many batches, as in whole histories.
    """

    rates: Mapping[str, float]
    choices: Mapping[str, Sequence[Any]] = {}
    is_insistent: bool = False
    safety_events: int = 0
    has_large_steps: bool = False


THEMES: Dict[str, Theme] = {
    "tasks are sent again": Theme(
        {
            "break": 0.15,
            "restart": 0.15,
            "haste": 1.0,
            "small_limits": 0.6,
            "runs": 0.6,
            "let_go": 0.6,
            "objects": 0.5,
            "large_arguments": 0.1,
            "predecessors": 0.1,
            "uneven_runs": 0.7,
            "long_tasks": 0.3,
        },
        {
            "most_unfinished": (15, 60),
            "client_tasks_in_flight": (3, 8, 40, 1 << 20),
            "client_bytes_in_flight": (400, 3000, 3000, 1 << 28),
        },
    ),
    "turns": Theme(
        {"exact_times": 1.0, "lone_tasks": 0.5, "cancel": 0.05},
        {
            "users": (2, 2, 3),
            "workers": (1,),
            "slots": (1, 1, 2),
            "most_unfinished": (2, 4, 6, 8, 60, 60),
            "delay_seconds": (0.0005,),
            "prefetch_seconds": (0.01, 0.15),
            "task_seconds": (0.03,),
            "client_tasks_in_flight": (1 << 20,),
            "client_bytes_in_flight": (1 << 28,),
            "priority": (0,),
            "safety_seconds": (3.0,),
        },
        is_insistent=True,
        safety_events=500,
    ),
    "large batches": Theme(
        {
            "runs": 0.8,
            "uneven_runs": 0.5,
            "worker_crash": 0.05,
            "stop_worker": 0.02,
            "cancel": 0.2,
            "small_limits": 0.3,
        },
        {"most_unfinished": (60,), "client_bytes_in_flight": (400, 3000, 6000)},
    ),
    "objects of others": Theme(
        {
            "plain_peers": 1.0,
            "objects": 1.0,
            "large_objects": 1.0,
            "client_crash": 0.1,
            "maker_crash": 0.4,
            "leave": 0.05,
            "let_go": 0.3,
            "break": 0.05,
            "slow_reader": 0.3,
        },
        {"users": (2, 3), "delay_seconds": (0.01, 0.05, 0.1), "safety_seconds": (3.0,)},
        safety_events=500,
    ),
    "options of one function": Theme(
        {
            "runs": 0.7,
            "at_most_once": 0.4,
            "retries": 0.5,
            "processor_death": 0.3,
            "worker_crash": 0.1,
            "uneven_runs": 0.5,
            "deadly_tasks": 0.1,
            "early_death": 0.1,
            "break": 0.05,
            "long_tasks": 0.3,
        },
        {"workers": (2, 3), "slots": (1, 2), "most_unfinished": (5, 15), "prefetch_seconds": (0.15, 0.6, 0.6)},
    ),
    "tasks that have begun": Theme(
        {"runs": 0.5, "processor_death": 0.3, "worker_crash": 0.1, "uneven_runs": 0.7, "long_tasks": 0.3},
        {
            "workers": (2, 3),
            "slots": (1, 2),
            "most_unfinished": (5, 15),
            "prefetch_seconds": (0.6,),
            "delay_seconds": (0.0005,),
        },
    ),
    "owners of large results": Theme(
        {
            "large_results": 0.8,
            "monitors": 1.0,
            "leave": 0.03,
            "client_crash": 0.03,
            "worker_crash": 0.05,
            "drain": 0.1,
            "predecessors": 0.4,
            "let_go": 0.3,
            "break": 0.05,
            "shared_files": 0.6,
            "result_lost": 0.1,
        },
        {"looking_share": (1.0,)},
    ),
    "graphs": Theme(
        {
            "graphs": 1.0,
            "large_results": 0.4,
            "worker_crash": 0.08,
            "cancel": 0.2,
            "predecessors": 0.3,
            "clear": 0.03,
            "break": 0.05,
            "restart": 0.03,
            "stop_worker": 0.03,
            "at_most_once": 0.1,
        },
    ),
    "tenants": Theme(
        {
            "tenants": 1.0,
            "plain_peers": 0.7,
            "objects": 0.5,
            "runs": 0.4,
            "exact_times": 1.0,
            "waiting_limits": 0.5,
            "monitors": 0.3,
            "break": 0.03,
        },
        {"users": (2, 3), "workers": (1, 2, 3), "slots": (1, 1, 2), "most_unfinished": (5, 15, 60)},
        safety_events=300,
    ),
    "actors": Theme(
        {
            "actors": 1.0,
            "deadly_tasks": 0.1,
            "processor_death": 0.05,
            "worker_crash": 0.05,
            "break": 0.1,
            "restart": 0.03,
            "cancel": 0.2,
            "force": 0.3,
            "let_go": 0.2,
            "drain": 0.05,
            "blocking": 0.3,
        },
    ),
    "many batches": Theme(
        {"many_batches": 0.1, "cancel": 0.3, "force": 0.3, "predecessors": 0.2, "break": 0.03, "retries": 0.3},
        {"users": (1, 1, 2), "most_unfinished": (5,)},
    ),
    "lost results": Theme(
        {
            "large_nodes": 0.8,
            "graphs": 0.8,
            "long_tasks": 0.4,
            "large_results": 0.6,
            "worker_crash": 0.2,
            "holder_crash": 0.1,
            "processor_death": 0.05,
            "shared_files": 0.2,
            "result_lost": 0.1,
            "drain": 0.05,
            "cancel": 0.1,
            "objects": 0.5,
            "let_go": 0.5,
        },
        {"workers": (2, 3), "slots": (1, 2)},
    ),
    "code": Theme(
        {
            "code": 1.0,
            "large_objects": 0.5,
            "let_go": 0.5,
            "cancel": 0.3,
            "force": 0.5,
            "break": 0.1,
            "slow_disk": 1.0,
            "worker_disk_full": 0.1,
            "restart": 0.05,
            "haste": 1.0,
            "shared_files": 0.5,
        },
    ),
    "no room": Theme(
        {
            "objects": 0.6,
            "large_objects": 0.8,
            "large_functions": 0.5,
            "large_arguments": 0.8,
            "large_nodes": 0.4,
            "large_results": 0.9,
            "storage_lost": 0.4,
            "memory_full": 0.3,
            "shared_files": 0.2,
            "disk_full": 0.2,
        },
        {"users": (2, 3), "workers": (1, 2), "slots": (1, 2), "most_unfinished": (5, 15)},
    ),
    "cancels": Theme(
        {
            "cancel": 0.8,
            "force": 0.5,
            "cancel_all": 0.05,
            "blocking": 0.5,
            "long_tasks": 0.5,
            "break": 0.1,
            "worker_crash": 0.05,
            "one_way": 0.05,
            "pause": 0.03,
            "predecessors": 0.3,
            "endless_tasks": 0.1,
        },
    ),
}

LATER_THEMES: Dict[str, Theme] = {
    "nested tasks of tenants": Theme(
        {"tenants": 1.0, "blocking": 0.5, "nested": 1.0, "exact_times": 1.0},
        {
            "users": (3,),
            "workers": (1,),
            "slots": (1, 1, 2),
            "most_unfinished": (8, 8, 40),
            "prefetch_seconds": (0.01, 0.15),
            "task_seconds": (0.03,),
            "priority": (0, 0, 9),
        },
        safety_events=400,
    ),
    "broken links": Theme(
        {
            "resume": 1.0,
            "break": 0.1,
            "silence": 0.9,
            "partition": 0.05,
            "one_way": 0.05,
            "restart": 0.01,
            "scheduler_pause": 0.02,
            "pause": 0.02,
            "slow_reader": 0.1,
            "cancel": 0.1,
            "blocking": 0.3,
            "at_most_once": 0.5,
            "retries": 0.3,
            "large_results": 0.3,
            "large_arguments": 0.3,
            "predecessors": 0.2,
            "questions": 0.1,
            "drain": 0.02,
            "repeated_results": 0.1,
        },
        {"delay_seconds": (0.0005, 0.01, 0.05), "safety_seconds": (6.0, 20.0), "most_unfinished": (5, 15, 15)},
        safety_events=500,
    ),
    "units that come and go": Theme(
        {
            "provisioner": 1.0,
            "rests": 0.08,
            "runs": 0.3,
            "long_tasks": 0.3,
            "worker_crash": 0.01,
            "processor_death": 0.05,
            "restart": 0.02,
            "cancel": 0.1,
            "blocking": 0.2,
            "at_most_once": 0.3,
            "predecessors": 0.2,
            "large_results": 0.2,
        },
        {
            "users": (1, 1, 2),
            "workers": (0, 0, 1),
            "slots": (1, 1, 2),
            "most_unfinished": (2, 5, 15),
            "delay_seconds": (0.0005, 0.05),
            "task_seconds": (0.03, 0.5, 2.0),
            "safety_seconds": (6.0, 20.0),
        },
        safety_events=1000,
        has_large_steps=True,
    ),
    "workers of different speed": Theme(
        {
            "slow_workers": 0.3,
            "slow_functions": 0.7,
            "exact_times": 1.0,
            "runs": 1.0,
            "pause": 0.02,
            "cancel": 0.05,
            "capabilities": 0.2,
            "worker_crash": 0.01,
            "stop_worker": 0.01,
            "tenants": 0.3,
        },
        {
            "users": (2, 3),
            "workers": (2, 2, 3),
            "slots": (1, 2),
            "most_unfinished": (5, 15),
            "delay_seconds": (0.0005, 0.01),
            "task_seconds": (0.03, 0.05),
            "run_seconds": (0.03, 0.05),
            "safety_seconds": (20.0, 60.0),
        },
        safety_events=1000,
    ),
}
"""Of some histories that would have none: so those of the others are as they were, and find what they have found."""

LATER_SHARES = {
    "nested tasks of tenants": LATER_SHARE,
    "broken links": 0.08,
    "units that come and go": 0.06,
    "workers of different speed": 0.02,
}


def theme_of(seed: int) -> Optional[Theme]:
    """The theme of a seed's history, if it has one."""
    random = Random(f"theme: {seed}")
    drawn = random.random()
    if drawn < THEMED_SHARE:
        return random.choice(list(THEMES.values()))
    least = 1.0
    for name, share in LATER_SHARES.items():
        least -= share
        if drawn >= least:
            return LATER_THEMES[name]
    return None
