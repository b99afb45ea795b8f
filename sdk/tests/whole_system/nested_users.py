"""Clients in tasks: a task submits tasks of its own, and waits for them.

Rules:
- The client is its processor's: it joins with the first task that needs it, and is killed with the processor.
- A task that waits has sent BLOCKED; it continues after any outcome of the tasks that it waits for.
- Deeper tasks are more urgent.
"""

from __future__ import annotations

from typing import Callable

from whole_system.users import User

from scaler_protocol import messages as m

LOOK_SECONDS = 0.05  # between two looks whether the client is connected


class NestedUser(User):
    @property
    def is_usable(self) -> bool:
        return self.host.is_alive and self.host.ended is None

    def _on_session(self) -> None:
        """It does what its task wants, and nothing else."""

    def run_task(self, depth: int, then: Callable[[], None]) -> None:
        """Submit a task, as soon as there is a session, and go on when it has ended, or never will.

        Parameters:
            depth: of the task that submits it.
        """
        if not self.is_usable:
            then()
        elif not self.host.is_open:
            self.host.after(LOOK_SECONDS, lambda: self.run_task(depth, then))
        else:
            function = self._function()
            task = self._task(function, [], [])
            task.depth = depth + 1
            options = m.TaskOptions(priority=task.depth)
            future = self._future(task)
            future.then = lambda: self._go_on(then)
            future.is_in_hand = False
            self.host.submit_plain(future, function.object_id, options)

    def _go_on(self, then: Callable[[], None]) -> None:
        """Its task lets go of what it has sent, and goes on."""
        if not self.unfinished:
            self.let_go_of_all()
        then()
