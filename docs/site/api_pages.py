"""The pages of the API: which classes and functions each has. Their text is in their docstrings.

Rule: a test checks that every public name of `scaler` is on one of them.
"""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple


class ApiPage(NamedTuple):
    """A page of the API."""

    name: str
    title: str
    introduction: str
    objects: Sequence[Tuple[str, str, Sequence[str]]]
    """Directives of autodoc, each with its object and its options."""

    @property
    def text(self) -> str:
        """In reStructuredText, the language of docstrings."""
        lines = [self.title, "=" * len(self.title), "", self.introduction, ""]
        for directive, name, options in self.objects:
            lines += [f".. {directive}:: {name}", *(f"   :{option}" for option in options), ""]
        return "\n".join(lines)


def _whole(name: str, *inherited_from: str) -> Tuple[str, str, Sequence[str]]:
    """A class with its public members, and those that it inherits, except from the classes named."""
    options = ["members:"]
    if inherited_from:
        options.append(f"inherited-members: {', '.join(inherited_from)}")
    return "autoclass", name, options


API_PAGES: List[ApiPage] = [
    ApiPage(
        "client",
        "Client",
        "A connection to a scheduler, and what it returns. :doc:`../client` shows it with examples.",
        [
            _whole("scaler.Client", "object"),
            _whole("scaler.client.SubmitterWithOptions"),
            _whole("scaler.client.ClusterInfo"),
            _whole("scaler.client.WorkerInfo"),
            _whole("scaler.client.TaskOutput", "tuple"),
            _whole("scaler.ObjectReference"),
            _whole("scaler.NamedFunction"),
            _whole("scaler.Serializer"),
        ],
    ),
    ApiPage(
        "futures",
        "Futures",
        "What `submit` returns. All methods of `concurrent.futures.Future` exist, too.",
        [_whole("scaler.ScalerFuture", "Future"), _whole("scaler.client.ProfileResult")],
    ),
    ApiPage(
        "aio",
        "Client for asyncio",
        "The same client for coroutines, without a thread. :doc:`../../how-to/asyncio` shows it with examples.",
        [_whole("scaler.aio.Client", "object"), _whole("scaler.aio.TaskFuture", "Future")],
    ),
    ApiPage(
        "executor",
        "Executor",
        "A `concurrent.futures.Executor`. :doc:`../../how-to/executor` shows it with examples.",
        [_whole("scaler.ScalerExecutor", "object")],
    ),
    ApiPage(
        "tasks",
        "Decorated functions, state of a process",
        "Functions that are called here and submitted to a cluster, and what a process of a worker keeps.",
        [
            ("autofunction", "scaler.task", ()),
            ("autoclass", "scaler.task_functions.TaskFunction", ("members: map, starmap, options",)),
            ("autodata", "scaler.worker_state", ("no-value:",)),
        ],
    ),
    ApiPage(
        "actors",
        "Actors",
        "Instances that stay in one process. :doc:`../actors` shows them with examples.",
        [_whole("scaler.Actor"), _whole("scaler.actors.actor_handle.ActorMethod")],
    ),
    ApiPage(
        "cluster",
        "Local clusters",
        "A scheduler and a worker as processes of a program. :doc:`../../cluster` describes what they start.",
        [
            _whole("scaler.SchedulerClusterCombo"),
            _whole("scaler.Scheduler", "object"),
            _whole("scaler.Cluster", "object"),
        ],
    ),
    ApiPage(
        "exceptions",
        "Exceptions",
        "The classes of `scaler.exceptions`. :doc:`../errors` has the cause of each, and what to do.",
        [("automodule", "scaler.exceptions", ("members:", "show-inheritance:"))],
    ),
]
