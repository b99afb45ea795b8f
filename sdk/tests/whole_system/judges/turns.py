"""What other clients get while tasks of a client wait.

    messages with tasks, clients that come ──▶ claim of each client that waits ──▶ whether the message was due

Rules:
- A turn is a fixed amount of work, and ends with a message. So before a client's next task, any other client gets less
  than a turn, and one message more; and the same once more for each time that it came when none of its tasks waited.
- That counts once only until a third client has got a task, and not after a whole turn of its own until then.
- Nodes of graphs and tasks with predecessors may wait unseen: a client with none that is seen may have come.
- Work is counted by the shortest mean that a worker reported for the function, which is never more than the scheduler
  estimates. So what seems to be one turn may be several, but not the other way round.
"""

from __future__ import annotations

from typing import Dict, Set


class Passing:
    """What another client got since a claim was met last.

    Attributes:
        turn_microseconds: of its turn, as far as it is known.
        comings: further turns that it may have, because it came.
        since_others_microseconds: what it got since a third client did, or more if it has come since.
    """

    def __init__(self) -> None:
        self.turn_microseconds = 0.0
        self.comings = 0
        self.since_others_microseconds = 0.0


class Claim:
    """The tasks of one class that wait for one client.

    Parameters:
        turn_microseconds: the work of a turn.

    Attributes:
        passings: of other clients, by session.
    """

    def __init__(self, turn_microseconds: float) -> None:
        self.keys: Set[int] = set()
        self.fresh_keys: Set[int] = set()
        self.passings: Dict[int, Passing] = {}
        self._turn_microseconds = turn_microseconds

    def on_came(self, client: int) -> None:
        """Another client of which no task waited may have the next turn."""
        passing = self.passings.setdefault(client, Passing())
        if passing.since_others_microseconds < self._turn_microseconds:
            passing.comings += 1
            passing.since_others_microseconds = self._turn_microseconds

    def on_large(self, client: int) -> None:
        """Another client gets large tasks, and it may have been its turn, or that of such tasks."""
        for other, each in self.passings.items():
            if other != client:
                each.since_others_microseconds = 0.0

    def on_passed(self, client: int, microseconds: float) -> bool:
        """Another client gets tasks in one message; returns whether it may."""
        self.on_large(client)
        passing = self.passings.setdefault(client, Passing())
        may_have = True
        if passing.turn_microseconds >= self._turn_microseconds:
            may_have = passing.comings > 0
            passing.comings -= 1
            passing.turn_microseconds = 0.0
        passing.turn_microseconds += microseconds
        passing.since_others_microseconds += microseconds
        return may_have
