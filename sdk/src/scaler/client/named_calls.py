"""Submitting functions that workers serve by name.

Rules:
- The payload consists of the encoded arguments only, so that a worker in any language can read it.
- A function's name travels with each batch; nothing is registered, and nothing has to be released.
- `map` makes one task per item, because chunks are specific to Python.
"""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION
from typing import Any, Callable, Dict, List, Tuple

from scaler import blocking
from scaler.client.core.commands import SubmitTask
from scaler.client.functions import FunctionRecord
from scaler.client.future import ScalerFuture
from scaler.client.future_arguments import is_future
from scaler.client.mapping import add_note
from scaler.client.progress_bar import Bar, wait
from scaler.client.submission import Submission
from scaler.exceptions import ArgumentTypeError, SerializeObjectError
from scaler.values.named_functions import NamedFunction
from scaler.values.payload import INLINE_BYTES
from scaler.values.texts import description_of


def submit_named(
    client: Submission, function: NamedFunction, args: Tuple[Any, ...], kwargs: Dict[str, Any]
) -> ScalerFuture[Any]:
    """Run a function on a worker that serves it.

    Raises:
        TypeError: there are keyword arguments.
        SerializeObjectError: the codec cannot represent an argument.
    """
    if kwargs:
        names = ", ".join(kwargs)
        raise ArgumentTypeError(f"{function.name} is called by name, and takes no keyword arguments: {names}")
    if any(map(is_future, args)):
        raise ArgumentTypeError(
            f"{function.name} is called by name, and takes no futures as arguments: pass their result()"
        )
    try:
        payload = function.neutral_codec.dump_arguments(args)
    except Exception as error:
        raise SerializeObjectError(
            f"an argument of {function.name} cannot be written in codec {function.codec!r}: {description_of(error)}"
        ) from error
    shell = client._shell
    future: ScalerFuture[Any] = client._future_kind(client, FunctionRecord(0, function.name, b"", False))
    future._named = function
    options = client._travelling_options()
    if len(payload) >= INLINE_BYTES:  # SCL-COD-006: an empty payload, and the arguments as an object
        shell.submit_with_objects(SubmitTask(future, function, b"", options), [payload], codec=function.codec)
    else:
        shell.check_open()
        shell.submit_plain(future, function, payload, options)
    return future


def map_named(client: Submission, function: Callable[..., Any], items: List[Tuple[Any, ...]]) -> List[Any]:
    """Run `function(*item)` for each item; returns the results in order."""
    assert isinstance(function, NamedFunction)
    futures: List[ScalerFuture[Any]] = []
    results: List[Any] = []
    try:
        try:
            for item in items:
                futures.append(submit_named(client, function, item, {}))
        except SerializeObjectError as error:
            add_note(error, f"(item {len(futures)} of map)")
            raise
        with blocking.announced(), Bar(client._options.progress, len(futures), function.name) as bar:
            if bar.is_shown:
                wait(futures, bar, return_when=FIRST_EXCEPTION)
            for future in futures:
                try:
                    results.append(future.result())
                except Exception as error:
                    add_note(error, f"(raised by item {len(results)} of map)")
                    raise
    finally:
        for future in futures[len(results) :]:
            future.cancel(0.0, force=False)
    return results
