"""What a task can ask for besides its function and arguments.

Rules:
- Options are values: equal ones are equal however they were made, and share one wire message, so that tasks of equal
  options share batches.
- An invalid option fails here, where it is written, with an error that names it, and never reaches the scheduler.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, inf, isfinite
from typing import TYPE_CHECKING, Any, Dict, Mapping, NamedTuple, Optional, Tuple

from scaler.arguments import Duration, Size, seconds, size_in_bytes, whole
from scaler.client.progress_bar import Wanted, checked
from scaler.exceptions import ArgumentTypeError, InvalidArgumentError
from scaler_protocol import messages as m

if TYPE_CHECKING:
    from typing_extensions import TypedDict

ANY_AMOUNT = -1
"""The amount that the second generation writes for a capability that is not counted."""

_PRIORITY_LIMIT = 1 << 31
_RETRIES_LIMIT = 1 << 16
_SECONDS_LIMIT = (1 << 63) / 1000  # of a number of milliseconds


if TYPE_CHECKING:

    class GivenOptions(TypedDict, total=False):
        """The keyword arguments of `Client.options`."""

        capabilities: Optional[Mapping[str, float]]
        priority: Optional[int]
        retries: Optional[int]
        timeout: Optional[Duration]
        memory_limit: Optional[Size]
        at_most_once: Optional[bool]
        profiling: Optional[bool]
        stream_output: Optional[bool]
        progress: Optional[Wanted]
        time_request: Optional[Duration]


class Options(NamedTuple):
    """The options of a task; `Client.options` explains them."""

    capabilities: Tuple[Tuple[str, float], ...] = ()  # sorted by name
    priority: int = 0
    retries: int = 0
    timeout: float = 0.0  # seconds; 0: none
    memory_limit: int = 0  # bytes; 0: none
    at_most_once: bool = False
    profiling: bool = False
    stream_output: bool = False
    progress: Wanted = False  # used by this client only: does not travel
    time_request: float = 0.0  # seconds; 0: not known
    actor: bool = False  # the task is a call of an actor; no option of users

    def refined(
        self,
        capabilities: Optional[Mapping[str, float]] = None,
        priority: Optional[int] = None,
        retries: Optional[int] = None,
        timeout: Optional[Duration] = None,
        memory_limit: Optional[Size] = None,
        at_most_once: Optional[bool] = None,
        profiling: Optional[bool] = None,
        stream_output: Optional[bool] = None,
        progress: Optional[Wanted] = None,
        time_request: Optional[Duration] = None,
    ) -> Options:
        """These options with some changed; None leaves one as it is.

        Raises ArgumentTypeError and InvalidArgumentError if an option is invalid.
        """
        changed = Options(
            self.capabilities if capabilities is None else _checked_capabilities(capabilities),
            self.priority if priority is None else whole("priority", priority, -_PRIORITY_LIMIT, _PRIORITY_LIMIT),
            self.retries if retries is None else whole("retries", retries, 0, _RETRIES_LIMIT),
            self.timeout if timeout is None else seconds("timeout", timeout, below=_SECONDS_LIMIT),
            self.memory_limit if memory_limit is None else size_in_bytes("memory_limit", memory_limit),
            self.at_most_once if at_most_once is None else _switch("at_most_once", at_most_once),
            self.profiling if profiling is None else _switch("profiling", profiling),
            self.stream_output if stream_output is None else _switch("stream_output", stream_output),
            self.progress if progress is None else checked(progress),
            self.time_request if time_request is None else seconds("time_request", time_request, below=_SECONDS_LIMIT),
            self.actor,
        )
        if changed.at_most_once and changed.retries:
            raise InvalidArgumentError("retries and at_most_once contradict each other: give one of them")
        return changed

    @property
    def given(self) -> Dict[str, Any]:
        """Those that are not the defaults, as keyword arguments of `Client.options`."""
        changed = {name: value for name, value in self._asdict().items() if value != DEFAULTS._asdict()[name]}
        if "capabilities" in changed:
            changed["capabilities"] = dict(self.capabilities)
        return changed

    def message(self) -> Optional[m.TaskOptions]:
        """The message that travels with a batch, the same object for equal options; None if all are defaults."""
        travelling = self._replace(progress=False) if self.progress else self
        return _message(travelling) if travelling != DEFAULTS else None


DEFAULTS = Options()


@lru_cache(maxsize=1024)
def _message(options: Options) -> m.TaskOptions:
    return m.TaskOptions(
        priority=options.priority,
        capabilities=[m.Capability(name=name, amount=amount) for name, amount in options.capabilities],
        retries=options.retries,
        time_limit_milliseconds=ceil(options.timeout * 1000),
        memory_limit_bytes=options.memory_limit,
        profiling=options.profiling,
        at_most_once=options.at_most_once,
        stream_output=options.stream_output,
        time_request_milliseconds=ceil(options.time_request * 1000),
        actor=options.actor,
    )


def _checked_capabilities(capabilities: Mapping[Any, Any]) -> Tuple[Tuple[str, float], ...]:
    if not isinstance(capabilities, Mapping):
        raise ArgumentTypeError(f"capabilities must be a dict such as {{'gpu': 1}}, not {type(capabilities).__name__}")
    checked = []
    for name, amount in capabilities.items():
        if not isinstance(name, str) or not name:
            raise ArgumentTypeError(
                f"capabilities: the name {name!r} must be a non-empty str; write them as {{'gpu': 1}}"
            )
        if isinstance(amount, bool) or not isinstance(amount, (int, float)):
            raise ArgumentTypeError(
                f"capabilities: the amount of {name!r} must be a number, not {type(amount).__name__}"
            )
        if amount == ANY_AMOUNT:
            amount = 0
        try:
            number = float(amount)
        except OverflowError:
            number = inf
        if not isfinite(number) or number < 0:
            raise InvalidArgumentError(f"capabilities: the amount of {name!r} must be finite and >= 0, got {amount}")
        checked.append((name, number))
    return tuple(sorted(checked))


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ArgumentTypeError(f"{name} must be True or False, not {type(value).__name__}")
    return value
