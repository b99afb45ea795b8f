"""A provisioner of another kind: what it says of its units is true or not, and it lets any of them go at any time.

Rule: it comes and goes, names units twice, units that left long ago and units that never were, and asks for more than
there are.
"""

from __future__ import annotations

from typing import Any

from simulation.peers import Peer
from simulation.provisioning_world import UNITS

from scaler_protocol import messages as m
from scaler_protocol.session.features import PROVISIONING


class Provisioner(Peer):
    """A client with the feature."""

    role = m.Role.CLIENT

    def hello(self) -> m.Hello:
        hello = super().hello()
        hello.features = [PROVISIONING]
        hello.host, hello.process_id = "provisioners", 9
        return hello

    def on_joined(self) -> None:
        self._sequence = 0

    def on_session_ended(self) -> None:
        """Its units go on."""

    def on_demand(self, message: m.Demand, payload: bytes) -> None:
        assert message.units_sequence <= self._sequence, "a Demand counts Units that were not sent"
        for each in message.demands:
            assert each.slots_missing <= each.slots_wanted

    def on_release(self, message: m.Release, payload: bytes) -> None:
        """Whether the right ones go is judged when it is sent."""

    def on_task_echo(self, message: m.TaskEcho, payload: bytes) -> None:
        """Its credit has changed, of which it uses none."""

    def on_fetched(self, object_id: int, content: Any) -> None:
        raise AssertionError("it asks for no objects")

    def act(self) -> None:
        """Something that a provisioner may do."""
        chance = self.world.provisioning.random
        names = [f"unit {chance.randrange(UNITS + 2)}" for _ in range(chance.choice((0, 1, 3, 8)))]
        if not self.session:
            return
        if chance.random() < 0.05:
            self.send(m.DisconnectRequest())
            self.end_session()
            self.greet()
        elif chance.random() < 0.5:
            self._sequence += 1
            states = [chance.choice(list(m.UnitState)) for _ in names]
            units = [m.Unit(unit=name, pool="p", state=state, slots=2) for name, state in zip(names, states)]
            self.send(m.Units(units=units, sequence=self._sequence, notes=["a note"]))
        else:
            self.send(self.world.provisioning.new_request(names))
