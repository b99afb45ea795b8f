"""The maps of a client, as methods: a list of results, streams of them, and futures as they are done.

Rules:
- Arguments are checked at the call, before anything is sent; the iterables are not, as they may be endless.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from math import inf
from typing import (
    Any,
    Callable,
    Coroutine,
    Generator,
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

from scaler.arguments import Duration, seconds
from scaler.client.mapping import calls_of_map
from scaler.client.named_calls import map_named
from scaler.client.progress_bar import Wanted
from scaler.client.streams.completions import as_completed
from scaler.client.streams.maps import checked_buffersize, length_of, run_map, stream_map
from scaler.client.streams.result_streams import started
from scaler.client.submission import Submission
from scaler.values.named_functions import NamedFunction

F = TypeVar("F", bound="Future[Any]")
R = TypeVar("R")


class Maps(Submission):
    """Runs a function for each item of iterables."""

    @overload
    def map(
        self,
        fn: Callable[..., Coroutine[Any, Any, R]],
        *iterables: Iterable[Any],
        unpack: Optional[bool] = None,
        capabilities: Optional[Mapping[str, float]] = None,
        reserialize: bool = False,
        progress: Optional[Wanted] = None,
        buffersize: None = None,
    ) -> List[R]: ...

    @overload
    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        unpack: Optional[bool] = None,
        capabilities: Optional[Mapping[str, float]] = None,
        reserialize: bool = False,
        progress: Optional[Wanted] = None,
        buffersize: None = None,
    ) -> List[R]: ...

    @overload
    def map(
        self,
        fn: Callable[..., Coroutine[Any, Any, R]],
        *iterables: Iterable[Any],
        unpack: Optional[bool] = None,
        capabilities: Optional[Mapping[str, float]] = None,
        reserialize: bool = False,
        progress: Optional[Wanted] = None,
        buffersize: int,
    ) -> Generator[R, None, None]: ...

    @overload
    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        unpack: Optional[bool] = None,
        capabilities: Optional[Mapping[str, float]] = None,
        reserialize: bool = False,
        progress: Optional[Wanted] = None,
        buffersize: int,
    ) -> Generator[R, None, None]: ...

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        unpack: Optional[bool] = None,
        capabilities: Optional[Mapping[str, float]] = None,
        reserialize: bool = False,
        progress: Optional[Wanted] = None,
        buffersize: Optional[int] = None,
    ) -> Union[List[Any], Generator[Any, None, None]]:
        """Like the builtin `map`, run by the cluster; returns the list of results, or with `buffersize` an iterator.

        The iterator takes items only as its results are asked for, so that an endless generator runs in bounded memory.
        Closing it, or losing its last reference, cancels the tasks that have not started.

        There is one difference. When the first item of a single iterable is exactly a `tuple`, every item is the
        arguments of a call, as in `starmap`; `unpack` decides it explicitly.

        Parameters:
            unpack: of a single iterable: True: each item is the arguments of a call; False: each item is one argument;
                None: True if the first item is exactly a tuple.
            capabilities: as of `options`; None: those of this client or view.
            reserialize: accepted for programs of earlier generations; `map` always serialises its function.
            progress: as of `options`; None: that of this client or view.
            buffersize: how many items may be taken whose results were not yielded yet; None: all, for a list.

        Raises:
            ArgumentTypeError: there is no iterable; or a later item is not a tuple where the first one is.

        and the exception of the first item that failed, by its order, with the item's position in a note; and what
        `submit` raises. The iterator raises these after the results of the items before; so it does with an exception
        of the iterables.

        Example:
            >>> client.map(abs, [-1, 2, -3])
            [1, 2, 3]
            >>> client.map(pow, [2, 3], [3, 2])
            [8, 9]
            >>> client.map(pow, [(2, 3), (3, 2)])
            [8, 9]
            >>> sum(client.map(abs, itertools.islice(itertools.count(), 1000), buffersize=100))
            499500
        """
        room = checked_buffersize(buffersize)
        calls, is_unpacked = calls_of_map(iterables, unpack)
        if room is None:
            return self._map(capabilities, progress, fn, list(calls), is_unpacked)
        total = length_of(iterables)
        return stream_map(
            self._for_chunks(capabilities, progress), fn, calls, is_unpacked, room, total, keeps_order=True
        )

    @overload
    def imap_unordered(
        self,
        fn: Callable[..., Coroutine[Any, Any, R]],
        *iterables: Iterable[Any],
        unpack: Optional[bool] = None,
        capabilities: Optional[Mapping[str, float]] = None,
        progress: Optional[Wanted] = None,
        buffersize: Optional[int] = None,
    ) -> Generator[R, None, None]: ...

    @overload
    def imap_unordered(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        unpack: Optional[bool] = None,
        capabilities: Optional[Mapping[str, float]] = None,
        progress: Optional[Wanted] = None,
        buffersize: Optional[int] = None,
    ) -> Generator[R, None, None]: ...

    def imap_unordered(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        unpack: Optional[bool] = None,
        capabilities: Optional[Mapping[str, float]] = None,
        progress: Optional[Wanted] = None,
        buffersize: Optional[int] = None,
    ) -> Generator[Any, None, None]:
        """As `map` with a `buffersize`, but results are yielded as they arrive, in any order.

        Parameters:
            buffersize: how many items may be taken whose results were not yielded yet; None: as many as keep all slots
                busy.
            Others as of `map`.

        Raises what `map` raises, after the results that have arrived by then.

        Example:
            >>> sorted(client.imap_unordered(abs, [-1, 2, -3]))
            [1, 2, 3]
        """
        room = checked_buffersize(buffersize)
        calls, is_unpacked = calls_of_map(iterables, unpack)
        total = length_of(iterables)
        return stream_map(
            self._for_chunks(capabilities, progress), fn, calls, is_unpacked, room, total, keeps_order=False
        )

    @overload
    def starmap(
        self,
        fn: Callable[..., Coroutine[Any, Any, R]],
        iterable: Iterable[Sequence[Any]],
        capabilities: Optional[Mapping[str, float]] = None,
        reserialize: bool = False,
        progress: Optional[Wanted] = None,
    ) -> List[R]: ...

    @overload
    def starmap(
        self,
        fn: Callable[..., R],
        iterable: Iterable[Sequence[Any]],
        capabilities: Optional[Mapping[str, float]] = None,
        reserialize: bool = False,
        progress: Optional[Wanted] = None,
    ) -> List[R]: ...

    def starmap(
        self,
        fn: Callable[..., Any],
        iterable: Iterable[Sequence[Any]],
        capabilities: Optional[Mapping[str, float]] = None,
        reserialize: bool = False,
        progress: Optional[Wanted] = None,
    ) -> List[Any]:
        """Run `fn(*item)` for each item; otherwise as `map`.

        Example:
            >>> client.starmap(pow, [(2, 3), (3, 2)])
            [8, 9]
        """
        return self._map(capabilities, progress, fn, [tuple(item) for item in iterable])

    def as_completed(
        self,
        futures: Iterable[F],
        timeout_seconds: Optional[Duration] = None,
        buffersize: Optional[int] = None,
    ) -> Generator[F, None, None]:
        """An iterator over futures as they are done, as of `concurrent.futures.as_completed`.

        With a `buffersize`, futures are taken from their iterable only as the iterator is consumed, so that a generator
        that submits each of them runs in bounded memory. They belong to the iterator then: closing it, or losing its
        last reference, cancels those that it has taken and whose tasks have not started.

        Parameters:
            futures: this client's, or any others. One that is there several times is yielded once, or with a
                `buffersize`, once for each time that it is taken after it was yielded.
            timeout_seconds: how long to wait in all, such as 30 or "5min"; None waits for ever.
            buffersize: how many futures may be taken and not yielded yet; None: all are taken first.

        Raises TimeoutError when the time is over; ArgumentTypeError for what is not a future, and what the iterable
        raises, after the futures before it.

        Example:
            >>> futures = [client.submit(abs, number) for number in (-1, 2, -3)]
            >>> sorted(future.result() for future in client.as_completed(futures))
            [1, 2, 3]
        """
        longest = None if timeout_seconds is None else seconds("timeout_seconds", timeout_seconds, -inf)
        deadline = None if longest is None else time.monotonic() + longest
        return started(as_completed(futures, deadline, checked_buffersize(buffersize)))

    def _map(
        self,
        capabilities: Optional[Mapping[str, float]],
        progress: Optional[Wanted],
        fn: Callable[..., R],
        items: List[Tuple[Any, ...]],
        is_unpacked: bool = False,
    ) -> List[R]:
        submission = self._for_chunks(capabilities, progress)
        if isinstance(fn, NamedFunction):
            return map_named(submission, fn, items)
        return run_map(submission, fn, items, is_unpacked)

    def _for_chunks(self, capabilities: Optional[Mapping[str, float]], progress: Optional[Wanted]) -> Submission:
        """This client or view, or one with these options; None leaves one as it is."""
        raise NotImplementedError
