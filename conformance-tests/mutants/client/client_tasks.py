"""What a reference client knows of its tasks and objects."""

from __future__ import annotations

from typing import Any, Dict, List, Optional


class Task:
    """One task that the adapter was told to submit.

    Parameters:
        number: the adapter's.
        command: what it was told.
    """

    def __init__(self, number: int, command: Dict[str, Any], payload: bytes) -> None:
        self.number = number
        self.function = str(command.get("function", ""))
        self.codec = str(command.get("codec", "json"))
        self.options: Dict[str, Any] = dict(command.get("options", {}))
        self.payload = payload  # its arguments, also when they travel as an object
        self.nodes = int(command.get("nodes", 0))  # of a graph
        self.needs: List[int] = list(command.get("objects", ()))  # objects of the user, by the adapter's numbers
        self.actor = int(command.get("actor", 0))  # whose call it is, by the adapter's number
        self.results: List[int] = list(command.get("results", ()))  # tasks whose results a call needs
        self.id: Optional[int] = None  # in the present session
        self.was_sent = False
        self.is_cancelling = False

    @property
    def batch_key(self) -> Any:
        return self.function, self.codec, repr(self.options), self.actor


class Fetch:
    """A large result that is on its way."""

    def __init__(self, task: Task, object_id: int) -> None:
        self.task = task
        self.object_id = object_id
        self.content = b""
        self.size: Optional[int] = None
        self.requested = 0


def wire_options(options: Dict[str, Any]) -> Dict[str, Any]:
    """TaskOptions as the schema has them."""
    fields = {name: value for name, value in options.items() if name != "capabilities"}
    amounts: Dict[str, float] = options.get("capabilities", {})
    capabilities: List[Dict[str, Any]] = [{"name": name, "amount": amount} for name, amount in amounts.items()]
    return {**fields, "capabilities": capabilities}
