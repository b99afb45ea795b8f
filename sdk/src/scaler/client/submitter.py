"""Submitting tasks: what a client and its views with options have in common.

    client.submit(…)                   ─┐
    client.options(retries=2).submit(…) ┴▶ Submitter ─▶ shell ─▶ core

Rules:
- Keyword arguments belong to the function; options are given to `options`. The one exception is `profiling=True`, as in
  earlier generations, for functions that have no such parameter.
- A view is a few references: making one costs about as much as submitting a task, and it needs no closing.
- Tasks with plain arguments are handled in `submit` itself, with any options: its cost is paid by every task.
"""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ALL_COMPLETED, Future
from math import inf
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Coroutine,
    Dict,
    Hashable,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
    Union,
    overload,
)

from scaler import blocking, nesting
from scaler.arguments import Duration, Size, seconds
from scaler.client.client_options import Options
from scaler.client.future import ScalerFuture
from scaler.client.graph_submission import GraphFuture, run_graph, submit_graph
from scaler.client.named_calls import submit_named
from scaler.client.progress_bar import Bar, DoneAndNotDone, Wanted, checked, wait
from scaler.client.signatures import check_call
from scaler.client.streams.map_methods import Maps
from scaler.client.submission import Submission
from scaler.exceptions import ArgumentTypeError
from scaler.notebook import FuturesInOrder
from scaler.task_functions import decorated
from scaler.values.named_functions import NamedFunction
from scaler.values.payload import INLINE_BYTES, PROTOCOL, SCALAR_TYPES, ObjectReference, is_plain

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, Unpack

    from scaler.actors.actor_handle import Actor
    from scaler.client.client_options import GivenOptions
    from scaler.executor.client_executor import ClientExecutor
    from scaler.task_functions import TaskDecorator, TaskFunction

    P = ParamSpec("P")

    StandIn = Union[ScalerFuture[Any], ObjectReference]

F = TypeVar("F", bound="Future[Any]")
R = TypeVar("R")


class Submitter(Maps):
    """Submits tasks with certain options to one client."""

    _graph_future_kind = GraphFuture

    def options(
        self,
        *,
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
    ) -> SubmitterWithOptions:
        """The same client with other options for what is submitted through it.

        Options that are not given keep their values, so views can be refined further.

        Parameters:
            capabilities: what a worker must offer, such as `{"gpu": 1}`. Amounts are counted: a worker with two of
                something runs two tasks at a time that need one each. An amount of 0 (or -1) asks for the name alone.
            priority: tasks with a higher one start first, those of all clients compared; 0 by default.
            retries: how often to run the task again after the process that ran it died; 0 by default.
            timeout: stop the task when it runs longer: a number of seconds, or a text such as "30s" or "5min"; 0, the
                default, is no limit.
            memory_limit: stop the task when its process takes more memory of its own: a number of bytes, or a text
                such as "1GB"; 0 is no limit.
            at_most_once: never run the task again once a worker has it: if the worker is lost, so is the task.
            profiling: measure the task, for `ScalerFuture.profiling_info`.
            stream_output: what the task prints comes to this client.
            progress: show a bar while `map`, `starmap`, `get` and `wait` wait, in a terminal or notebook; "always":
                also where standard error leads to a file.
            time_request: how long the task may run, in seconds or as in "30min": it goes only to workers that stay so
                long, as far as they say (`--lifetime-seconds`). It is no limit, which is `timeout`; 0: not known.

        Raises ArgumentTypeError and InvalidArgumentError if an option is invalid, or two contradict each other;
        MissingPackageError if a bar is wanted and tqdm is missing.

        Example:
            >>> careful = client.options(timeout="1min", memory_limit="1GB", retries=2)
            >>> careful.submit(pow, 2, 10).result()
            1024
        """
        return SubmitterWithOptions(
            self,
            self._options.refined(
                capabilities,
                priority,
                retries,
                timeout,
                memory_limit,
                at_most_once,
                profiling,
                stream_output,
                progress,
                time_request,
            ),
        )

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> TaskFunction[P, Coroutine[Any, Any, R], R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> TaskFunction[P, R, R]: ...

    @overload
    def task(self, /, **options: Unpack[GivenOptions]) -> TaskDecorator: ...

    def task(self, function: Any = None, /, **options: Any) -> Any:
        """Decorate a function as `scaler.task` does, for this client and its options.

            @client.task(retries=2)
            def area(width, height): ...

            area.submit(3, 4).result()

        The function keeps the client alive.
        """
        return decorated(function, {**self._options.given, **options}, self)

    @overload
    def submit(self, fn: Callable[..., R], /, *args: Any, profiling: bool, **kwargs: Any) -> ScalerFuture[R]: ...

    # A future stands for its result, and a reference for its object, which no signature of a function can say.
    @overload
    def submit(self, fn: Callable[..., R], first: StandIn, /, *args: Any, **kwargs: Any) -> ScalerFuture[R]: ...

    @overload
    def submit(
        self, fn: Callable[..., R], first: Any, second: StandIn, /, *args: Any, **kwargs: Any
    ) -> ScalerFuture[R]: ...

    @overload
    def submit(
        self, fn: Callable[..., R], first: Any, second: Any, third: StandIn, /, *args: Any, **kwargs: Any
    ) -> ScalerFuture[R]: ...

    @overload
    def submit(
        self, fn: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> ScalerFuture[R]: ...

    @overload
    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> ScalerFuture[R]: ...

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ScalerFuture[Any]:
        """Run `fn(*args, **kwargs)` somewhere in the cluster.

        A NamedFunction runs on a worker that serves it, with arguments in its codec. For any other function,
        any argument may be, or contain, an ObjectReference from `send_object`; the function gets the object itself.
        Likewise a future of this client: the task waits for it, and gets its result. If that task fails, this one's
        future raises DependencyError; if it is cancelled, so is this one.
        `profiling=True` measures the task, unless the function has a parameter of that name.

        Raises:
            TypeError: the function does not take these arguments, as far as that can be known here.
            SerializeObjectError: the function or an argument cannot be serialised.
            MissingObjects: an object reference is stale.
            DisconnectedError: this client is closed, or has lost its scheduler.

        Example:
            >>> future = client.submit(pow, 2, 10)
            >>> future.result()
            1024
            >>> client.submit(pow, future, 2).result()
            1048576
        """
        shell = self._shell
        record = shell.functions.find(fn)
        if record is None:
            if isinstance(fn, NamedFunction):
                return self._submit_named(fn, args, kwargs)
            record = self._register(fn)
        is_simple = self._serializer is None and not kwargs
        for value in args:
            if type(value) not in SCALAR_TYPES:
                is_simple = is_simple and is_plain(args)
                break
        if not is_simple:
            if "profiling" in kwargs and not record.takes_profiling:
                return self.options(profiling=kwargs.pop("profiling"))._submit_checked(record, fn, args, kwargs)
            return self._submit_checked(record, fn, args, kwargs)
        if not record.fewest <= len(args) <= record.most:
            check_call(fn, args, kwargs)
        future: ScalerFuture[Any] = self._future_kind(self, record)
        options = self._task_options if nesting.priority_of_task is None else nesting.message_inside(self._options)
        payload = pickle.dumps(args, PROTOCOL) if args else b""
        if len(payload) >= INLINE_BYTES:
            return self._submit_general(record, fn, args, kwargs)
        shell.submit_plain(future, record.object_id, payload, options)
        if record.is_deleted and shell.was_refused(future):
            return self.submit(
                fn, *args
            )  # another thread has submitted the function with other captures in the meantime
        return future

    def submit_verbose(
        self,
        fn: Callable[..., R],
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
        capabilities: Optional[Mapping[str, float]] = None,
        reserialize: bool = False,
    ) -> ScalerFuture[R]:
        """Run `fn(*args, **kwargs)` in the cluster; `args` and `kwargs` cannot be confused with options.

        Parameters:
            capabilities: as of `options`; None: those of this client or view.
            reserialize: serialise the function again, because the content of a large array that it refers to has
            changed. All other changes are detected, and arguments are serialised at each call in any case.

        Raises as `submit` and `options`.

        Example:
            >>> client.submit_verbose(int, ("ff",), {"base": 16}).result()
            255
        """
        if capabilities is not None:
            return self.options(capabilities=capabilities).submit_verbose(fn, args, kwargs, None, reserialize)
        if isinstance(fn, NamedFunction):
            return self._submit_named(fn, tuple(args), dict(kwargs))
        record = (None if reserialize else self._shell.functions.find(fn)) or self._register(fn)
        return self._submit_checked(record, fn, tuple(args), dict(kwargs))

    def _submit_named(self, fn: NamedFunction, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> ScalerFuture[Any]:
        submission: Submission = self
        if "profiling" in kwargs:
            submission = self.options(profiling=kwargs.pop("profiling"))
        return submit_named(submission, fn, args, kwargs)

    def wait(
        self,
        futures: Iterable[Future[Any]],
        timeout_seconds: Optional[Duration] = None,
        return_when: str = ALL_COMPLETED,
        progress: Optional[Wanted] = None,
    ) -> DoneAndNotDone:
        """Wait for futures, as `concurrent.futures.wait` does; with a bar if one is wanted.

        Parameters:
            futures: this client's, or any others.
            timeout_seconds: how long to wait at most, such as 30 or "5min"; None waits for ever.
            return_when: ALL_COMPLETED, FIRST_COMPLETED or FIRST_EXCEPTION of `concurrent.futures`.
            progress: as of `options`; None: that of this client or view.

        Example:
            >>> done, not_done = client.wait([client.submit(abs, number) for number in (-1, -2)])
            >>> len(done), len(not_done)
            (2, 0)
        """
        futures = list(futures)
        wanted = self._options.progress if progress is None else checked(progress)
        longest = None if timeout_seconds is None else seconds("timeout_seconds", timeout_seconds, -inf)
        with blocking.announced(), Bar(wanted, len(set(futures)), "wait") as bar:
            return wait(futures, bar, longest, return_when)

    def get(
        self,
        graph: Dict[Any, Any],
        keys: Sequence[Hashable],
        block: bool = True,
        capabilities: Optional[Mapping[str, float]] = None,
        reserialize: bool = False,
        progress: Optional[Wanted] = None,
        **options: Any,
    ) -> Dict[Any, Any]:
        """Run a graph of tasks, as far as `keys` need it.

        Dask calls it for `scheduler=client`, with a graph of its own: see `dask_get`.

        Parameters:
            graph: values by key, any hashable. A tuple that begins with a callable is a task: it is called with the
                other items, where each key of the graph, also inside lists and tuples, stands for the value or result
                of that key. Every other value is data.
            keys: whose values are wanted, each once.
            block: wait for all of them; otherwise return futures.
            capabilities: as of `options`, for every task of the graph; None: those of this client or view.
            reserialize: accepted for programs of earlier generations; data is always serialised at the call.
            progress: as of `options`, counting `keys`; None: that of this client or view.
            options: of Dask's `compute`, for its graphs only.

        Returns a dictionary by key, in the order of `keys`: of the values, or of their futures.

        Raises:
            GraphKeyError: a key is not in the graph, or was given twice.
            GraphCycleError: tasks wait for each other in a circle; the second argument names its keys.

        and what `submit` raises, and when it waits, the exception of the first task that failed; a note says which one.
        The rest of what is asked for is cancelled then.

        Example:
            >>> graph = {"a": 2, "b": (pow, "a", 3), "sum": (sum, ["a", "b", 10])}
            >>> client.get(graph, ["sum", "b"])
            {'sum': 20, 'b': 8}
        """
        submitter: Submitter = self
        if capabilities is not None or progress is not None:
            submitter = self.options(capabilities=capabilities, progress=progress)
        if "dask" in sys.modules:
            from scaler.adapters.dask_order import is_dask

            if is_dask(graph):
                return submitter.dask_get(graph, keys, **options)  # type: ignore[no-any-return]
        if options:
            raise ArgumentTypeError(f"get() got an unexpected keyword argument {next(iter(options))!r}")
        return run_graph(submitter, graph, keys) if block else submit_graph(submitter, graph, keys)

    def submit_graph(self, graph: Dict[Any, Any], keys: Sequence[Hashable]) -> List[ScalerFuture[Any]]:
        """As `get` with `block=False`, but returns a list of futures in the order of `keys`.

        Example:
            >>> [future.result() for future in client.submit_graph({"a": 2, "b": (pow, "a", 3)}, ["b"])]
            [8]
        """
        return FuturesInOrder(submit_graph(self, graph, keys).values())

    asynchronous = False
    """Dask asks for it: results are returned, not awaited."""

    def dask_get(self, dsk: Any, keys: Any, **options: Any) -> Any:
        """Run a graph of Dask; a scheduler for `dask.config.set(scheduler=client.dask_get)`, or for `compute`.

        Parameters:
            dsk: an expression, a HighLevelGraph, or a dictionary.
            keys: whose values are wanted: one, or a list, which may contain lists.
            options: as of `compute`: `priority`, `retries` and `resources`, as `dask.annotate` has them, and
                `callbacks`. Others are those of other schedulers, and are ignored.

        Returns the value of one key, or a tuple of values for each list.

        Raises GraphKeyError and GraphCycleError for an invalid graph, SerializeObjectError for a node that cannot be
        serialised, and the exception of the first task that failed; a note says which one.
        """
        from scaler.adapters.dask_graphs import get, options_of

        wanted = options_of(self._options, dsk, options)
        return get(self.options(**wanted) if wanted else self, dsk, keys, options)

    def executor(
        self, initializer: Optional[Callable[..., object]] = None, initargs: Sequence[Any] = (), **options: Any
    ) -> ClientExecutor:
        """An Executor of `concurrent.futures` whose calls run through this client.

        Parameters:
            initializer: called in each process that runs calls of this executor, before the first of them.
            initargs: its arguments.
            options: as of `options`, for all calls.

        Raises as `options`, and as ClientExecutor. Its `shutdown` waits for its calls, and leaves the client as it is.

        Example:
            >>> with client.executor() as executor:
            ...     print(list(executor.map(abs, [-1, 2, -3])))
            [1, 2, 3]
        """
        from scaler.executor.client_executor import ClientExecutor  # rarely needed
        from scaler.executor.executor_state import ExecutorState

        submitter: Submitter = self.options(**options) if options else self
        return ClientExecutor(ExecutorState(submitter, submitter.submit), initializer, initargs)

    def actor(self, cls: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Actor:
        """Make `cls(*args, **kwargs)` in one process of the cluster, where it stays; its methods are called from here.

            counter = client.options(memory_limit="1GB").actor(Counter, 10)
            counter.add(5).result()

        Each call of a method returns a future at once. Calls of one client run in the order in which they are
        submitted, those of all clients one at a time. Between calls the process takes no slot; `capabilities` are in
        use as long as the actor exists; the other options hold for each call.

        The actor ends with the returned handle: after `close()`, at the end of its `with` block, or when no reference
        is left. If its process or its worker is lost, so is the actor, and each call ends with ActorLostError: no call
        runs twice, and no other instance takes its place.

        Parameters:
            cls: a class, or what else makes the instance.
            args, kwargs: as of `submit`, but futures must be done. `name="..."` labels the actor in errors, `info`
            and monitors, unless the class has a parameter of that name; it must have 1 to 100 printable characters.

        Raises:
            TypeError: the class does not take these arguments, as far as that can be known here.
            SerializeObjectError: the class or an argument cannot be serialised.
            InvalidArgumentError: an argument is a future that is not done, the option `retries` is set, or the name
            is empty, too long or not printable.
            ActorsNotSupportedError: the scheduler is too old.
            DisconnectedError: this client is closed, or has lost its scheduler.

        Example:
            >>> with client.actor(collections.Counter, "abracadabra") as letters:
            ...     print(letters.most_common(1).result())
            [('a', 5)]
        """
        from scaler.actors.actor_handle import make_actor  # rarely needed

        return make_actor(self, cls, args, kwargs)

    def _view(self, options: Options) -> SubmitterWithOptions:
        return SubmitterWithOptions(self, options)

    def _for_tasks(self) -> Any:
        """What arrives in a task as a client that waits, and not in an event loop."""
        return getattr(self, "_client", self)

    def _for_chunks(self, capabilities: Optional[Mapping[str, float]], progress: Optional[Wanted]) -> Submission:
        # Chunks are not profiled, because their profiles would not be returned.
        if capabilities is not None or progress is not None or self._options.profiling:
            return self.options(capabilities=capabilities, profiling=False, progress=progress)
        return self


class SubmitterWithOptions(Submitter):
    """A view of a client with other options, returned by `Client.options`: what is submitted through it has them.

    It is usable while the client is connected, and can be passed to tasks like the client.
    """

    __slots__ = ("_client", "_shell", "_serializer", "_options", "_task_options")

    def __init__(self, client: Submitter, options: Options) -> None:
        self._client = getattr(client, "_client", client)
        self._shell = client._shell
        self._serializer = client._serializer
        self._options = options
        self._task_options = options.message()

    def __reduce__(self) -> Tuple[Any, ...]:
        return (SubmitterWithOptions, (self._client, self._options))

    def __repr__(self) -> str:
        defaults = Options()
        given = {name: value for name, value in self._options._asdict().items() if value != getattr(defaults, name)}
        return f"<{self._client!r} with options {given}>"
