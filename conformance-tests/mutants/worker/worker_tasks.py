"""The tasks of the reference worker, and their outcomes."""

from __future__ import annotations

from typing import List, Optional

from mutants.worker.conformance_functions import Execution
from scaler_conformance.codec.schema_codec import Message


class Task:
    """One task that the worker holds."""

    def __init__(self, message: Message, index: int, payload: bytes, dependencies: List[int]) -> None:
        self.batch = message
        self.id: int = message.ids[index]
        self.name: str = message.functionName
        self.function: int = message.function
        self.codec: str = message.codec
        self.options = message.options
        self.payload = payload
        self.dependencies = dependencies
        self.attempt: int = message.attempt or 1
        self.execution: Optional[Execution] = None  # while it runs
        self.began = 0.0
        self.cancels = 0  # answers owed once its outcome is known

    @property
    def needs(self) -> List[int]:
        return [each for each in (self.function, *self.dependencies) if each]


class Outcome:
    """The outcome of a task that has not been sent yet."""

    def __init__(self, task: Task, status: int, payload: bytes) -> None:
        self.task = task
        self.status = status
        self.payload = payload
        self.object = 0
        self.seconds = 0.0
