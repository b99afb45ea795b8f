"""Whatever peers say: a replay of the recording decides what the recorded core decided."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, List

import pytest
import scheduler_harness
from adversarial.history import History
from simulation.monitors import Monitor

from scaler_appliance.core.effects import Effect
from scaler_appliance.core.monitoring.state_tables import state_tables
from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_appliance.shell.core_inputs import CoreInputs, InputKind
from scaler_appliance.shell.scheduler_recording import SchedulerRecorder
from scaler_appliance.shell.scheduler_replay import SchedulerReplay
from scaler_protocol import encode
from scaler_protocol.recording import file_recorder
from scaler_protocol.recording.recording_file import Recording

_CALLS = {
    "on_peer_gone": InputKind.PEER_GONE,
    "on_congestion": InputKind.CONGESTION,
    "on_object_unreadable": InputKind.OBJECT_UNREADABLE,
    "on_object_spilled": InputKind.OBJECT_SPILLED,
    "on_object_spill_failed": InputKind.OBJECT_SPILL_FAILED,
    "shut_down": InputKind.SHUT_DOWN,
}


class RecordedCore:
    """A core as tests use it, whose inputs are recorded on the way."""

    def __init__(self, settings: Settings, path: Path) -> None:
        self.core = SchedulerCore(settings)
        self.recorder = SchedulerRecorder(str(path), settings, 0.0, 0.0, has_payloads=False, limit_bytes=0)
        self.inputs = CoreInputs(self.core, Counter(), self.recorder)
        self.effects: List[Effect] = []
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        if name in _CALLS:
            return lambda now, *arguments: self.inputs.call(_CALLS[name], now, *arguments)
        return getattr(self.core, name)

    def on_message(self, now: float, peer: bytes, message: Any, payload: bytes = b"") -> None:
        self.inputs.frames(now, peer, [encode(message), payload] if payload else [encode(message)])

    def on_peer_error(self, now: float, peer: bytes, error: object) -> None:
        self.inputs.frames(now, peer, [b"no message"])

    def tick(self, now: float) -> None:
        self.effects += self.inputs.tick(now)

    def take_effects(self) -> List[Effect]:
        effects, self.effects = self.effects, []
        self.count += len(effects)
        return effects


@pytest.mark.parametrize("seed", range(8))
def test_a_replay_of_adversarial_peers_decides_the_same(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "recording"
    monkeypatch.setattr(scheduler_harness, "SchedulerCore", lambda settings: RecordedCore(settings, path))
    monkeypatch.setattr(file_recorder, "DIGEST_SECONDS", 0.0)  # every decision is compared
    monkeypatch.setattr(Monitor, "look", lambda self, core, now: None)  # monitors are not what is replayed here
    history = History(seed)
    history.go()
    recorded: Any = history.core
    recorded.recorder.close()

    with open(path, "rb") as file:
        replay = SchedulerReplay(Recording(file))
        replay.run()

    assert state_tables(replay.core.state) == state_tables(recorded.core.state)
    assert replay.effects == recorded.count and replay.digests > 20
