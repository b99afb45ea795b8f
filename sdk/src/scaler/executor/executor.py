"""ScalerExecutor: a cluster of its own, or one that exists, for everything that takes an Executor.

ScalerExecutor(n_workers=4)   ─▶ a cluster on this machine, until the executor is shut down
ScalerExecutor("tcp://…")     ─▶ a client of its own, to a cluster that exists
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Optional, Sequence, Union

from scaler.arguments import whole
from scaler.client.client import Client
from scaler.cluster import SchedulerClusterCombo
from scaler.exceptions import InvalidArgumentError
from scaler.executor.client_executor import ClientExecutor
from scaler.executor.executor_state import ExecutorState


class ScalerExecutor(ClientExecutor):
    """An Executor whose calls run on the workers of a cluster.

    Parameters:
        address: of the scheduler of a cluster. By default, the executor starts a cluster on this machine, and stops it
            when it is shut down. A number stands for `n_workers`, which is the first argument of other executors.
        n_workers: how many calls the cluster that it starts runs at once; by default one less than there are usable
            CPUs.
        initializer: called in each process that runs calls, before the first of them. If it raises, the executor is
            broken: calls fail with InitializerError, which is a BrokenExecutor.
        initargs: its arguments.
        max_workers: another name for `n_workers`.

    `Client.executor` makes one for a client that exists, with options.

    Raises:
        InvalidArgumentError, ArgumentTypeError: an argument is invalid.
        SerializeObjectError: `initargs` cannot be serialised.

    and what `Client` and `SchedulerClusterCombo` raise.

    Example:
        >>> with ScalerExecutor(address) as executor:
        ...     print(executor.submit(pow, 2, 10).result())
        1024
    """

    def __init__(
        self,
        address: Union[str, int, None] = None,
        n_workers: Optional[int] = None,
        initializer: Optional[Callable[..., object]] = None,
        initargs: Sequence[Any] = (),
        *,
        max_workers: Optional[int] = None,
    ) -> None:
        if isinstance(address, int):
            address, n_workers = None, address if n_workers is None else n_workers
        name = "n_workers" if max_workers is None else "max_workers"
        slots = n_workers if max_workers is None else max_workers
        if slots is not None and whole(name, slots, -sys.maxsize) < 1:
            raise InvalidArgumentError(f"{name} must be greater than 0, got {slots}")
        if slots is not None and address is not None:
            raise InvalidArgumentError(f"{name} is of a cluster that the executor starts, and address of another one")
        cluster = SchedulerClusterCombo(n_workers=slots, logging_level="WARNING") if address is None else None
        client: Optional[Client] = None

        def close() -> None:
            if client is not None:
                client.disconnect()
            if cluster is not None:
                cluster.shutdown()

        try:
            client = Client(address if cluster is None else cluster.get_address())
            state = ExecutorState(client, client.submit, close)
        except BaseException:
            close()
            raise
        try:
            super().__init__(state, initializer, initargs)
        except BaseException:
            state.shut_down(waits=True, cancels=True)
            raise
        self._slots = None if cluster is None else cluster.cluster.slots

    @property
    def _max_workers(self) -> int:  # type: ignore[override]  # a constant of that class
        return self._slots or super()._max_workers
