"""Submitting tasks from coroutines: what a client of `scaler.aio` and its views with options have in common.

    client.submit(…)                   ─┐
    client.options(retries=2).submit(…) ┴▶ LoopSubmitter ─▶ LoopShell ─▶ core

Rules: how calls become payloads is the business of `scaler.client`; here it is what is awaited.
"""

from __future__ import annotations

import asyncio
import sys
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

from scaler.aio.aio_future import TaskFuture
from scaler.aio.loop_shell import LoopSubmission
from scaler.aio.loop_streams import AnyIterable, AsyncResults, Batch, ItemSource, LoopStream, source_of
from scaler.arguments import Duration, Size
from scaler.client.client_options import Options
from scaler.client.copies import ClientOfTasks
from scaler.client.graph_submission import submit_graph
from scaler.client.mapping import calls_of_map
from scaler.client.named_calls import submit_named
from scaler.client.streams.chunk_planner import ChunkPlanner
from scaler.client.streams.chunk_sender import CallSender, ChunkSender, Sender
from scaler.client.streams.maps import checked_buffersize
from scaler.client.submission import Submission
from scaler.client.submitter import Submitter
from scaler.values.named_functions import NamedFunction
from scaler.values.payload import ObjectReference

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    from scaler.actors.actor_handle import Actor

    P = ParamSpec("P")

    StandIn = Union[TaskFuture[Any], ObjectReference]

R = TypeVar("R")

_submit: Callable[..., TaskFuture[Any]] = Submitter.submit  # type: ignore[assignment]  # with other futures


class LoopSubmitter(LoopSubmission):
    """Submits tasks with certain options to one client."""

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
        time_request: Optional[Duration] = None,
    ) -> LoopSubmitterWithOptions:
        """The same client with other options for what is submitted through it: see `scaler.Client.options`."""
        return LoopSubmitterWithOptions(
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
                time_request=time_request,
            ),
        )

    @overload
    def submit(self, fn: Callable[..., R], /, *args: Any, profiling: bool, **kwargs: Any) -> TaskFuture[R]: ...

    # A future stands for its result, and a reference for its object, which no signature of a function can say.
    @overload
    def submit(self, fn: Callable[..., R], first: StandIn, /, *args: Any, **kwargs: Any) -> TaskFuture[R]: ...

    @overload
    def submit(
        self, fn: Callable[..., R], first: Any, second: StandIn, /, *args: Any, **kwargs: Any
    ) -> TaskFuture[R]: ...

    @overload
    def submit(
        self, fn: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> TaskFuture[R]: ...

    @overload
    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> TaskFuture[R]: ...

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> TaskFuture[Any]:
        """Run `fn(*args, **kwargs)` somewhere in the cluster; returns its future at once.

        This is a plain call: `await client.submit(...)` waits for the result, and `asyncio.gather`, `asyncio.wait` and
        `asyncio.TaskGroup` take the future as any other. Arguments are as of `scaler.Client.submit`. If the scheduler
        takes no more tasks for the moment, the task waits in the client: see `wait_for_room`.

        Raises:
            WrongEventLoopError: the caller does not run in the client's event loop.

        and what `scaler.Client.submit` raises.
        """
        self._shell.check_loop()
        return _submit(self, fn, *args, **kwargs)

    def submit_verbose(
        self,
        fn: Callable[..., R],
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
        capabilities: Optional[Mapping[str, float]] = None,
        reserialize: bool = False,
    ) -> TaskFuture[R]:
        """Run `fn(*args, **kwargs)` in the cluster; `args` and `kwargs` cannot be confused with options.

        Parameters and errors: as of `scaler.Client.submit_verbose`.
        """
        self._shell.check_loop()
        future: Any = Submitter.submit_verbose(self, fn, args, kwargs, capabilities, reserialize)  # type: ignore[arg-type]
        return future  # type: ignore[no-any-return]

    def _submit_named(self, fn: NamedFunction, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        submission: Submission = self
        if "profiling" in kwargs:
            submission = self.options(profiling=kwargs.pop("profiling"))
        return submit_named(submission, fn, args, kwargs)

    def actor(self, cls: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Actor:
        """Make `cls(*args, **kwargs)` in one process of the cluster, where it stays: see `scaler.Client.actor`.

        Calls of its methods return futures to be awaited, at once.

        Raises WrongEventLoopError, and what `scaler.Client.actor` raises.
        """
        from scaler.actors.actor_handle import make_actor  # rarely needed

        self._shell.check_loop()
        return make_actor(self, cls, args, kwargs)

    def _view(self, options: Options) -> LoopSubmitterWithOptions:
        return LoopSubmitterWithOptions(self, options)

    def _for_tasks(self) -> Any:
        """What arrives in a task as a client that waits, and not in an event loop."""
        client: Any = getattr(self, "_client", self)
        return ClientOfTasks(client.__getstate__())

    async def wait_for_room(self) -> None:
        """Return as soon as the scheduler takes one more task of this client.

        A producer that awaits it before each `submit` keeps no more tasks in memory than the scheduler allows.

        Raises DisconnectedError when this client is closed.
        """
        self._shell.check_loop()
        await self._shell.await_room()

    # Many calls -----------------------------------------------------------------------------------------------------

    @overload
    async def map(
        self, fn: Callable[..., Coroutine[Any, Any, R]], *iterables: Iterable[Any], unpack: Optional[bool] = None
    ) -> List[R]: ...

    @overload
    async def map(self, fn: Callable[..., R], *iterables: Iterable[Any], unpack: Optional[bool] = None) -> List[R]: ...

    async def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], unpack: Optional[bool] = None) -> List[Any]:
        """The list of results of `fn` for each item, in order, as `scaler.Client.map`.

        Parameters:
            unpack: of a single iterable: True: each item is the arguments of a call; False: each item is one argument;
                None: True if the first item is exactly a tuple.

        Raises the exception of an item that failed, and what `submit` raises.
        """
        calls, is_unpacked = calls_of_map(iterables, unpack)
        return await self._map(fn, list(calls), is_unpacked)

    @overload
    async def starmap(
        self, fn: Callable[..., Coroutine[Any, Any, R]], iterable: Iterable[Sequence[Any]]
    ) -> List[R]: ...

    @overload
    async def starmap(self, fn: Callable[..., R], iterable: Iterable[Sequence[Any]]) -> List[R]: ...

    async def starmap(self, fn: Callable[..., Any], iterable: Iterable[Sequence[Any]]) -> List[Any]:
        """Run `fn(*item)` for each item; otherwise as `map`."""
        return await self._map(fn, [tuple(item) for item in iterable])

    async def _map(self, fn: Callable[..., Any], calls: List[Tuple[Any, ...]], is_unpacked: bool = False) -> List[Any]:
        self._shell.check_loop()
        if not calls:
            return []
        batches: List[Batch] = []
        sender = self._sender(fn, is_unpacked, keeps_results=False)
        planner = ChunkPlanner(sys.maxsize)
        stream = LoopStream(self._shell, sender, planner, ItemSource(iter(calls)), False, len(calls)).batches()
        try:
            async for batch in stream:
                batches.append(batch)
        finally:
            await stream.aclose()
        return [result for batch in sorted(batches) for result in batch.results]

    @overload
    def map_stream(
        self,
        fn: Callable[..., Coroutine[Any, Any, R]],
        *iterables: AnyIterable,
        buffersize: Optional[int] = None,
        ordered: bool = True,
    ) -> AsyncResults[R]: ...

    @overload
    def map_stream(
        self,
        fn: Callable[..., R],
        *iterables: AnyIterable,
        buffersize: Optional[int] = None,
        ordered: bool = True,
    ) -> AsyncResults[R]: ...

    def map_stream(
        self,
        fn: Callable[..., Any],
        *iterables: AnyIterable,
        buffersize: Optional[int] = None,
        ordered: bool = True,
    ) -> AsyncResults[Any]:
        """The results of `fn` for the items of iterables, or async iterables, which may be endless: for `async for`.

        Items are taken as results are asked for, so memory stays flat. Leaving the loop early cancels what is
        unfinished, and closes the source; `aclose()` waits for that.

        Parameters:
            buffersize: how many items may be taken whose results were not asked for yet; by default, as many as keep
                the cluster busy.
            ordered: False: results come as they are computed.

        Raises what `submit` raises because of the function, and invalid arguments, at the call; the exception of an
        item, or of an iterable, after the results before it.
        """
        self._shell.check_loop()
        planner = ChunkPlanner(checked_buffersize(buffersize))
        source = source_of(iterables)
        return AsyncResults(LoopStream(self._shell, self._sender(fn), planner, source, ordered))

    def _sender(self, fn: Callable[..., Any], is_unpacked: bool = False, keeps_results: bool = True) -> Sender:
        if isinstance(fn, NamedFunction):
            return CallSender(lambda *args: submit_named(self, fn, args, {}), fn.name)
        submission: LoopSubmission = self
        if self._options.profiling:  # chunks are not profiled, because their profiles would not be returned
            submission = self.options(profiling=False)
        return ChunkSender(submission, fn, is_unpacked, keeps_results)

    # Graphs ---------------------------------------------------------------------------------------------------------

    async def get(self, graph: Dict[Any, Any], keys: Sequence[Hashable]) -> Dict[Any, Any]:
        """Run a graph of tasks, as far as `keys` need it; returns their values by key, as `scaler.Client.get`.

        Raises what `scaler.Client.get` raises. The rest of what is asked for is cancelled then.
        """
        futures = self.submit_graph(graph, keys)
        try:
            if futures:
                await _first_failure(list(futures.values()))
            return {key: await future for key, future in futures.items()}
        finally:
            for future in futures.values():
                future.cancel()

    def submit_graph(self, graph: Dict[Any, Any], keys: Sequence[Hashable]) -> Dict[Any, TaskFuture[Any]]:
        """As `get`, but returns the futures of `keys` at once."""
        self._shell.check_loop()
        futures: Any = submit_graph(self, graph, keys)
        return futures  # type: ignore[no-any-return]


async def _first_failure(futures: List[TaskFuture[Any]]) -> None:
    """Wait for all futures, or for the first that fails, whose exception is raised."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_EXCEPTION)
    for future in futures:
        if future.done():
            future.result()


class LoopSubmitterWithOptions(LoopSubmitter):
    """A view of a client with other options, returned by `Client.options`: what is submitted through it has them."""

    __slots__ = ("_client", "_shell", "_serializer", "_options", "_task_options")

    def __init__(self, client: LoopSubmitter, options: Any) -> None:
        self._client = getattr(client, "_client", client)
        self._shell = client._shell
        self._serializer = client._serializer
        self._options = options
        self._task_options = options.message()

    def __repr__(self) -> str:
        return f"<{self._client!r} with other options>"
