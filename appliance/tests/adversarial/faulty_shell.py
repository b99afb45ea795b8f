"""What the shell around the core would answer, when files and disks do what they like."""

from __future__ import annotations

from typing import List

from adversarial.values import Values
from scheduler_harness import Harness

from scaler_appliance.core.effects import SpillObject, Stop, StoreChunk

WHY = "no space left on device"


class Shell:
    """Takes the effects from the harness, and tells the core what came of them.

    Parameters:
        harness: whose effects these are.
        values: decides what goes wrong.
    """

    def __init__(self, harness: Harness, values: Values) -> None:
        self._harness = harness
        self._values = values
        self._spilling: List[int] = []
        self.stops = 0  # how often the core said that it ends

    def perform(self) -> None:
        """Everything that the core has asked for; copies to the disk take their time."""
        harness, values = self._harness, self._values
        effects, harness.effects = harness.effects, []
        for effect in effects:
            if isinstance(effect, StoreChunk):
                self._store(effect)
            elif isinstance(effect, SpillObject):
                self._spilling.append(effect.object_id)
            elif isinstance(effect, Stop):
                self.stops += 1
            harness.state.check_invariants()
        while self._spilling and values.chance(0.5):
            self._finish_spill(self._spilling.pop(0))
            harness.state.check_invariants()

    def _store(self, chunk: StoreChunk) -> None:
        """Where it should be there may be no room, and nowhere else either."""
        core, now, values = self._harness.core, self._harness.now, self._values
        if values.chance(0.1):
            core.on_object_unreadable(now, chunk.object_id, WHY, values.chance(0.5))
        elif not chunk.offset and values.chance(0.2):
            if chunk.on_disk:
                core.on_object_spill_failed(now, chunk.object_id, WHY)
            else:
                core.on_object_spilled(now, chunk.object_id)

    def _finish_spill(self, object_id: int) -> None:
        core, now, choice = self._harness.core, self._harness.now, self._values.random.random()
        if choice < 0.1:
            core.on_object_unreadable(now, object_id)
        elif choice < 0.4:
            core.on_object_spill_failed(now, object_id, WHY)
        else:
            core.on_object_spilled(now, object_id)
