"""Whatever happens to a whole system: replays of its agents' and clients' recordings decide what the cores decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, List, NamedTuple, Type

import pytest
from whole_system import client_host, worker_host
from whole_system.simulated_world import Plan
from whole_system.system import simulate

from scaler.client.shell import client_recording
from scaler.client.shell.client_recording import RecordedClientCore
from scaler.client.shell.client_replay import ClientReplay
from scaler.worker.agent.shell.agent_recording import RecordedAgentCore, header_of
from scaler.worker.agent.shell.agent_replay import AgentReplay
from scaler_protocol.recording import file_recorder
from scaler_protocol.recording.file_recorder import FileRecorder
from scaler_protocol.recording.recording_file import Header, Recording
from scaler_protocol.recording.replaying import Replay


class Recorded(NamedTuple):
    """A core of a simulated system, and what repeats it."""

    core: Any
    recorder: FileRecorder
    replay: Type[Replay]


class Recorders:
    """Makes recorded cores where hosts would make cores."""

    def __init__(self, folder: Path, has_payloads: bool) -> None:
        self._folder = folder
        self._has_payloads = has_payloads
        self.made: List[Recorded] = []

    def _add(self, header: Header, make: Callable[[FileRecorder], Any], replay: Type[Replay]) -> Any:
        header = header._replace(has_payloads=self._has_payloads)
        recorder = FileRecorder(str(self._folder / f"{len(self.made)}"), header, 0)
        core = make(recorder)
        self.made.append(Recorded(core, recorder, replay))
        return core

    def agent_core(self, settings: Any, identity: Any, *others: Any) -> Any:
        header = header_of(settings, identity)
        make: Any = RecordedAgentCore
        return self._add(header, lambda recorder: make(settings, identity, *others, recorder), AgentReplay)

    def client_core(self, welcome: Any, numbers: Any, direct_bytes: int) -> Any:
        header = client_recording.header_of(welcome, "", direct_bytes)
        make = RecordedClientCore
        return self._add(header, lambda recorder: make(welcome, numbers, recorder, direct_bytes), ClientReplay)


@pytest.mark.parametrize("seed", range(8))
def test_a_replay_of_a_simulated_system_decides_the_same(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_recorder, "DIGEST_SECONDS", -1.0)  # every decision is compared
    recorders = Recorders(tmp_path, has_payloads=bool(seed % 2))
    monkeypatch.setattr(worker_host, "AgentCore", recorders.agent_core)
    monkeypatch.setattr(client_host, "ClientCore", recorders.client_core)
    simulate(Plan(seed))

    assert {recorded.replay for recorded in recorders.made} == {AgentReplay, ClientReplay}
    for recorded in recorders.made:
        recorded.recorder.close()
        with open(recorded.recorder.path, "rb") as file:
            replay: Any = recorded.replay(Recording(file))
            replay.run()
        assert replay.effects >= replay.digests and bool(replay.effects) == bool(replay.digests)
        if isinstance(replay, ClientReplay):
            assert list(replay.core.futures) == list(recorded.core.futures)
            assert replay.core.next_task_id == recorded.core.next_task_id
        else:
            assert replay.core.objects.places() == recorded.core.objects.places()
            assert replay.core.session.number == recorded.core.session.number
        assert replay.tables()
