"""The interface of a user's own serialisation."""

from __future__ import annotations

import abc
from typing import Any


class Serializer(metaclass=abc.ABCMeta):
    """How functions, arguments and results become bytes, when the default (cloudpickle) is not what you want.

    It travels to the workers with the functions it serialised; libraries it uses must be installed there too.
    """

    @staticmethod
    @abc.abstractmethod
    def serialize(obj: Any) -> bytes:
        """Turn a function, an argument or a result into bytes."""

    @staticmethod
    @abc.abstractmethod
    def deserialize(payload: bytes) -> Any:
        """Turn such bytes back into the object."""
