"""The earlier systems that Scaler continues: scaler 1.x, opengris-scaler 2.x, scaled."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Callable

from engines import Engine


class ScalerOneEngine(Engine):
    """scaler 1.x from PyPI: its map takes tuples of arguments."""

    title = "scaler 1.x"
    distribution = "scaler"

    def __init__(self) -> None:
        self._cluster: Any = None
        self._client: Any = None

    def start(self, workers: int) -> None:
        scaler = importlib.import_module("scaler")
        self._cluster = scaler.SchedulerClusterCombo(n_workers=workers)
        self._client = scaler.Client(address=self._cluster.get_address())

    def stop(self) -> None:
        self._client.disconnect()
        self._cluster.shutdown()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._client.submit(function, *arguments)

    def map(self, function: Callable[..., Any], items: Sequence[Any], style: str) -> list[Any]:
        return list(self._client.map(function, [(item,) for item in items]))

    def send_object(self, value: Any) -> Any:
        return self._client.send_object(value)

    def version(self) -> str:
        return metadata.version(self.distribution)


class ScalerTwoEngine(ScalerOneEngine):
    """opengris-scaler 2.x: its map is the builtin's."""

    title = "opengris-scaler 2.x"
    distribution = "opengris-scaler"

    def map(self, function: Callable[..., Any], items: Sequence[Any], style: str) -> list[Any]:
        return list(self._client.map(function, items))


class ScaledEngine(ScalerOneEngine):
    """scaled: it wants an address, and has no objects that are sent once."""

    title = "scaled"
    distribution = "scaled"
    sends_objects = False

    def start(self, workers: int) -> None:
        scaled = importlib.import_module("scaled")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
        self._cluster = scaled.SchedulerClusterCombo(address=address, n_workers=workers)
        self._client = scaled.Client(address=address)

    def send_object(self, value: Any) -> Any:
        return value
