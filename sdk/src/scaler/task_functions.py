"""Functions that are decorated as tasks.

    @scaler.task(retries=2)
    def area(width, height): ...

    area(3, 4)                       a plain call: runs here
    area.submit(3, 4).result()       runs in the cluster
    area.map([1, 2], [3, 4])

Rules:
- This module imports no client: a worker that imports a user's module with decorated functions stays light.
- A task function is pickled as the function itself would be: by name if its module can be imported, else by value.
  Its client is not pickled: inside a task, the current client is that of the task.
- Options are those of `Client.options`, and are checked when the function is decorated.
"""

from __future__ import annotations

import copyreg
import functools
import types
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, overload

from scaler import current_client, nesting
from scaler.exceptions import ArgumentTypeError
from scaler.values.pickling import is_found_by_name, reduce_with

if TYPE_CHECKING:
    from typing import Coroutine, Generic, Type, TypeVar, Union

    from typing_extensions import Concatenate, ParamSpec, Unpack

    from scaler.client.client_options import GivenOptions
    from scaler.client.future import ScalerFuture
    from scaler.values.payload import ObjectReference

    P = ParamSpec("P")
    Q = ParamSpec("Q")
    C = TypeVar("C")  # what a call returns
    R = TypeVar("R")  # what a task returns: of a coroutine, its result
    S = TypeVar("S")

    StandIn = Union[ScalerFuture[Any], ObjectReference]
else:
    P = C = R = None  # Python 3.9 has no ParamSpec

    class Generic:
        def __class_getitem__(cls, parameters):
            return cls


class TaskFunction(Generic[P, C, R]):
    """A function that can be called here, and submitted to a cluster; made by `task` and `Client.task`.

    Attributes:
        function: as it was before it was decorated.
    """

    __name__: str
    _is_task_function = True  # for modules that cannot import this one

    def __init__(self, function: Callable[P, C], options: Mapping[str, Any], client: Optional[Any] = None) -> None:
        if not callable(function):
            raise ArgumentTypeError(f"only a function can be a task, not {type(function).__name__}")
        functools.update_wrapper(self, function)
        self.function = function
        self._options: Dict[str, Any] = dict(options)
        self._client = client  # a view with the options; None: the current client

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> C:
        return self.function(*args, **kwargs)

    # A future stands for its result, and a reference for its object, which no signature of a function can say.
    @overload
    def submit(self, first: StandIn, /, *args: Any, **kwargs: Any) -> ScalerFuture[R]: ...

    @overload
    def submit(self, first: Any, second: StandIn, /, *args: Any, **kwargs: Any) -> ScalerFuture[R]: ...

    @overload
    def submit(self, first: Any, second: Any, third: StandIn, /, *args: Any, **kwargs: Any) -> ScalerFuture[R]: ...

    @overload
    def submit(self, /, *args: P.args, **kwargs: P.kwargs) -> ScalerFuture[R]: ...

    def submit(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the function in the cluster, with these arguments; otherwise as `Client.submit`.

        All keyword arguments are the function's.
        """
        submitter, function = self._submitter(), self._to_send()
        if "profiling" in kwargs:  # which `submit` may take for an option
            return submitter.submit_verbose(function, args, kwargs)
        return submitter.submit(function, *args, **kwargs)

    def map(self, *iterables: Iterable[Any], unpack: Optional[bool] = None) -> List[R]:
        """Run the function for each item in the cluster; as `Client.map`."""
        results: List[R] = self._submitter().map(self._to_send(), *iterables, unpack=unpack)
        return results

    def starmap(self, iterable: Iterable[Sequence[Any]]) -> List[R]:
        """Run the function with the arguments in each item; as `Client.starmap`."""
        results: List[R] = self._submitter().starmap(self._to_send(), iterable)
        return results

    def options(self, **options: Unpack[GivenOptions]) -> TaskFunction[P, C, R]:
        """The same function with other options; those that are not given keep their values.

        Parameters and errors are those of `Client.options`.
        """
        _check(options)
        client = None if self._client is None else self._client.options(**options)
        return TaskFunction(self.function, {**self._options, **options}, client)

    def _submitter(self) -> Any:
        if self._client is not None:
            return self._client
        client = current_client.current()
        return client.options(**self._options) if self._options else client

    def _to_send(self) -> Callable[..., Any]:
        """What is submitted: itself if a worker finds it by its name, else the function."""
        return self if is_found_by_name(self) else self.function

    # As a method, it is bound as a function is.
    @overload
    def __get__(self, instance: None, owner: Type[Any]) -> TaskFunction[P, C, R]: ...

    @overload
    def __get__(
        self: TaskFunction[Concatenate[S, Q], C, R], instance: S, owner: Type[Any]
    ) -> TaskFunction[Q, C, R]: ...

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self
        return TaskFunction(types.MethodType(self.function, instance), self._options, self._client)

    def __repr__(self) -> str:
        given = f" with options {self._options}" if self._options else ""
        return f"<task {getattr(self, '__qualname__', repr(self.function))}{given}>"

    def __getstate__(self) -> Dict[str, Any]:
        return {**vars(self), "_client": None}

    def __reduce_ex__(self, protocol: Any) -> Any:
        if isinstance(self.function, types.MethodType):
            return _bound, (self.function.__self__, self.function.__func__, self._options)
        # As pickle itself does with functions; cloudpickle uses `_reduce`.
        return getattr(self, "__qualname__", None) or _by_value(self)


def _bound(instance: Any, function: Callable[..., Any], options: Mapping[str, Any]) -> TaskFunction[Any, Any, Any]:
    return TaskFunction(types.MethodType(function, instance), options)


def _reduce(function: TaskFunction[Any, Any, Any]) -> Any:
    """For cloudpickle: by value if the function cannot be imported elsewhere."""
    if is_found_by_name(function) or isinstance(function.function, types.MethodType):
        return function.__reduce_ex__(5)
    return _by_value(function)


def _by_value(function: TaskFunction[Any, Any, Any]) -> Any:
    return copyreg.__newobj__, (TaskFunction,), function.__getstate__()  # type: ignore[attr-defined]  # it is there


reduce_with(TaskFunction, _reduce)


def _check(options: Mapping[str, Any]) -> None:
    """Raises ArgumentTypeError and InvalidArgumentError if an option is invalid."""
    if options and nesting.priority_of_task is None:  # in a worker's process, they were checked by the client
        from scaler.client.client_options import DEFAULTS

        DEFAULTS.refined(**options)


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> TaskFunction[P, Coroutine[Any, Any, R], R]: ...


@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R, R]: ...


@overload
def task(**options: Unpack[GivenOptions]) -> TaskDecorator: ...


def task(function: Any = None, /, **options: Any) -> Any:
    """Decorate a function, so that it can be submitted: `function.submit(...)`, `.map(...)`, `.options(...)`.

        @scaler.task
        def area(width, height): ...

        @scaler.task(retries=2, capabilities={"gpu": 1})
        def train(model): ...

    A plain call runs here, as before. `submit` uses the client of the innermost `with Client(...)` block; without one,
    `Client()` as it finds its scheduler, once for the process. `Client.task` decorates for one client.

    Parameters:
        options: as of `Client.options`.

    Raises ArgumentTypeError and InvalidArgumentError if an option is invalid.
    """
    return decorated(function, options, None)


class TaskDecorator:
    """What `task(...)` returns: decorates a function with options."""

    def __init__(self, options: Mapping[str, Any], client: Optional[Any]) -> None:
        self._options = options
        self._client = client

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskFunction[P, Coroutine[Any, Any, R], R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R, R]: ...

    def __call__(self, function: Any, /) -> Any:
        if isinstance(function, TaskFunction):
            options: Dict[str, Any] = {**function._options, **self._options}
            view = self._client.options(**options) if self._client is not None else None
            return TaskFunction(function.function, options, view)
        view = self._client.options(**self._options) if self._client is not None else None
        return TaskFunction(function, self._options, view)


def decorated(function: Optional[Callable[..., Any]], options: Mapping[str, Any], client: Optional[Any]) -> Any:
    """A task function, or a decorator if no function was given.

    Parameters:
        client: to submit to; None: the current one.
    """
    _check(options)
    decorator = TaskDecorator(options, client)
    return decorator if function is None else decorator(function)
