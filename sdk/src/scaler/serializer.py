"""The interface for custom serialisation."""

from __future__ import annotations

import abc
from typing import Any


class Serializer(metaclass=abc.ABCMeta):
    """Converts functions, arguments and results to and from bytes, in place of the default (cloudpickle).

    It travels to the workers with the functions it serialised; libraries that it uses must be installed there too.
    """

    @staticmethod
    @abc.abstractmethod
    def serialize(obj: Any) -> bytes:
        """Turn a function, an argument or a result into bytes."""

    @staticmethod
    @abc.abstractmethod
    def deserialize(payload: bytes) -> Any:
        """Turn such bytes back into the object."""
