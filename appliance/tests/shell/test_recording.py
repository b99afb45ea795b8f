"""A recording holds everything that reached the core, and a replay decides the same again."""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, List

import faulty_scheduler
import pytest
from scheduler_harness import hello, task
from scheduler_process import DEADLINE_SECONDS, SchedulerProcess

from scaler_appliance.core.effects import Effect, Send
from scaler_appliance.core.monitoring.state_tables import state_tables
from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_appliance.core.tasks.acceptance import Acceptance
from scaler_appliance.shell.core_inputs import EXIT_BROKEN_INVARIANT, BrokenInvariantError, CoreInputs, InputKind
from scaler_appliance.shell.replay_program import main
from scaler_appliance.shell.scheduler_recording import SchedulerRecorder, arguments_of
from scaler_appliance.shell.scheduler_replay import SchedulerReplay
from scaler_protocol import encode
from scaler_protocol import messages as m
from scaler_protocol.recording.file_recorder import DIGEST_SECONDS, FLUSH_SECONDS
from scaler_protocol.recording.recording_file import (
    Digest,
    Header,
    RecordedInput,
    Recording,
    RecordingError,
    header_bytes,
)
from scaler_protocol.recording.replay_command import EXIT_DIVERGED, EXIT_UNREADABLE
from scaler_protocol.recording.replaying import DivergedError

CLIENT, WORKER = b"client", b"worker"
BEGAN, BEGAN_UNIX = 1000.0, 1_600_000_000.0


class Recorded:
    """A core with a recorder, and a client and a worker that speak to it."""

    def __init__(self, path: Path, has_payloads: bool = False, limit_bytes: int = 0, **settings: Any) -> None:
        self.settings = Settings(scheduler_id=bytes(range(16)), **settings)
        self.core = SchedulerCore(self.settings)
        self.recorder = SchedulerRecorder(str(path), self.settings, BEGAN, BEGAN_UNIX, has_payloads, limit_bytes)
        self.inputs = CoreInputs(self.core, Counter(), self.recorder)
        self.now = BEGAN
        self.effects: List[Effect] = []

    def say(self, peer: bytes, message: m.Member, *payload: bytes) -> None:
        self.inputs.frames(self.now, peer, [encode(message), *payload])

    def tick(self, seconds: float = 0.01) -> List[Effect]:
        self.now += seconds
        effects = self.inputs.tick(self.now)
        self.effects += effects
        return effects

    def work(self, tasks: int = 3) -> None:
        """Both join, and some tasks are run."""
        self.say(CLIENT, hello(m.Role.CLIENT))
        self.say(WORKER, hello(m.Role.WORKER, slots=1, queue_size=1000))
        self.tick()
        for task_id in range(tasks):
            self.say(CLIENT, *task([task_id]))
            sent = [each.message for each in self.tick(0.5) if isinstance(each, Send)]
            for message in sent:
                if isinstance(message, m.Task):
                    report = m.TaskResult(ids=message.ids, payload_sizes=message.payload_sizes)
                    self.say(WORKER, report, bytes(sum(message.payload_sizes)))
        self.tick()


def read(path: Path) -> Recording:
    return Recording(io.BytesIO(path.read_bytes()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recording"


@pytest.mark.parametrize("has_payloads", [False, True])
def test_a_replay_leads_to_the_same_state_and_effects(path: Path, has_payloads: bool) -> None:
    recorded = Recorded(path, has_payloads)
    recorded.work()
    recorded.say(CLIENT, *task([10, 11]))
    recorded.inputs.call(InputKind.CONGESTION, recorded.now, CLIENT, True)
    recorded.inputs.call(InputKind.SUBSCRIPTIONS, recorded.now, True, True)
    recorded.inputs.call(InputKind.TAKE_STATUS, recorded.now, True)
    recorded.tick()
    recorded.inputs.call(InputKind.PEER_GONE, recorded.now, WORKER)
    recorded.tick()
    recorded.recorder.close()

    replay = SchedulerReplay(read(path), checks_invariants=True)
    replay.run()

    assert state_tables(replay.core.state) == state_tables(recorded.core.state)
    assert replay.effects == len(recorded.effects) and replay.digests > 1
    assert len(replay.core.state.ready) == 2


def end_of_process(recorded: Recorded) -> None:
    """What the system does at its end, and nothing else."""
    os.close(recorded.recorder._file._descriptor)


def test_a_recording_that_another_process_writes_is_left_to_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "recording"
    first = Recorded(path)
    second = Recorded(path)
    for each in (first, second):
        each.work()
        each.recorder.close()
    names = ["recording", f"recording.{os.getpid()}"]
    assert sorted(os.listdir(tmp_path)) == names
    assert all(list(read(tmp_path / name).records()) for name in names)
    assert f"another process is recording to {path}" in caplog.text
    Recorded(path).recorder.close()
    assert (tmp_path / "recording.previous").exists(), "once it has ended, it is one of before"


def test_the_recording_of_a_process_that_was_killed_outlives_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    killed = Recorded(path)
    killed.work()
    killed.recorder.on_effects(killed.now + FLUSH_SECONDS, [])
    before = path.read_bytes()
    end_of_process(killed)
    Recorded(path).recorder.close()
    assert (tmp_path / "recording.previous").read_bytes() == before != path.read_bytes()


def test_payloads_are_recorded_only_when_asked_for(tmp_path: Path) -> None:
    secret = b"this must not be readable"
    for has_payloads in (False, True):
        recorded = Recorded(tmp_path / "recording", has_payloads)
        recorded.say(CLIENT, hello(m.Role.CLIENT))
        recorded.say(CLIENT, task([1])[0], secret)
        recorded.recorder.close()
        recording = read(tmp_path / "recording")
        inputs = [entry for _, entry in recording.records() if isinstance(entry, RecordedInput)]
        assert arguments_of(recording, inputs[-1])[1][1] == (secret if has_payloads else bytes(len(secret)))


def test_a_replay_stops_at_a_time_or_an_event(path: Path) -> None:
    recorded = Recorded(path)
    recorded.work()
    recorded.recorder.close()

    first = SchedulerReplay(read(path))
    first.run(last_number=3)
    assert first.last_input is not None and first.last_input.number == 3 and len(first.core.state.sessions) == 2
    second = SchedulerReplay(read(path))
    second.run(until=BEGAN + 0.3)
    assert second.last_input is not None and BEGAN <= second.last_input.time <= BEGAN + 0.3
    assert second.core.state.finished == [0] * 8


def test_what_is_cut_off_or_damaged_ends_the_recording(path: Path) -> None:
    recorded = Recorded(path)
    for _ in range(3):
        recorded.work(1)
        recorded.tick(2.0)
    recorded.recorder.close()
    content = path.read_bytes()
    whole = len(list(read(path).records()))

    for damaged in (content[:-1], content[:-2] + b"xx", content + b"\x01"):
        recording = Recording(io.BytesIO(damaged))
        found = len(list(recording.records()))
        assert recording.is_cut and 0 < found <= whole
    for other in (b"", b"something else", content[:30], content[:25] + b"\xff" * 40):
        with pytest.raises(RecordingError):
            Recording(io.BytesIO(other))


def test_a_recording_that_is_as_large_as_it_may_be_says_so_and_ends(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = Recorded(path, limit_bytes=4000)
    for _ in range(100):
        recorded.tick(2.0)
        recorded.work(1)
    assert path.stat().st_size <= 4000 and "has reached its limit of 4000 bytes" in caplog.text
    assert recorded.recorder.keep() is None, "it does not show what comes now"
    SchedulerReplay(read(path)).run()


def test_a_full_disk_ends_the_recording_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = Recorded(path)

    def fail(descriptor: int, content: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("scaler_protocol.recording.file_recorder.os.write", fail)
    recorded.tick(2.0)
    recorded.tick(2.0)
    recorded.recorder.close()
    assert caplog.text.count("ends here: No space left on device") == 1


def test_a_core_that_decides_otherwise_is_found(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    recorded = Recorded(path)
    recorded.work()
    recorded.recorder.close()

    monkeypatch.setattr(Acceptance, "_text_of_full", lambda self, *about: "full")
    monkeypatch.setattr(Acceptance, "_room", lambda self, wanted: 0)
    with pytest.raises(DivergedError, match="effects instead of"):
        SchedulerReplay(read(path)).run()
    assert main([str(path)]) == EXIT_DIVERGED


def test_a_broken_invariant_breaks_at_the_same_input_again(
    monkeypatch: pytest.MonkeyPatch, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accept = Acceptance._accept

    def fail(self: Acceptance, client: Any, message: m.Task, payload: bytes, has_memory: bool = True) -> None:
        assert message.ids[0] != 7, "broken"
        accept(self, client, message, payload, has_memory)

    recorded = Recorded(path)
    recorded.work()
    monkeypatch.setattr(Acceptance, "_accept", fail)
    with pytest.raises(BrokenInvariantError, match=r"FRAMES \(636c69656e74\): AssertionError: broken"):
        recorded.say(CLIENT, *task([7]))
    kept = recorded.recorder.keep()

    assert kept == f"{path}.failed" and not path.exists()
    count = len([entry for _, entry in read(Path(kept)).records() if isinstance(entry, RecordedInput)])
    monkeypatch.undo()
    assert main([kept]) == 0
    monkeypatch.setattr(Acceptance, "_accept", fail)
    assert main([kept]) == EXIT_BROKEN_INVARIANT
    error = capsys.readouterr().err
    assert "AssertionError: broken" in error and f"at input {count}: the core failed at FRAMES" in error
    assert main([kept, "--event", str(count - 1)]) == 0


def test_the_program_prints_the_state_and_the_inputs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = Recorded(path)
    recorded.work()
    recorded.say(CLIENT, *task([10, 11]))
    recorded.tick()
    recorded.recorder.close()

    assert main([str(path), "--check"]) == 0
    text = capsys.readouterr().out
    assert "clients: 1\n" in text and "dispatches: 1\n" in text and "636c69656e74" in text
    assert main([str(path), "--json", "--until", "0.3"]) == 0
    tables = json.loads(capsys.readouterr().out)
    assert tables["scheduler"][0]["succeeded"] == 0 and tables["replay"]["seconds"] <= 0.3
    assert main([str(path), "--json", "--until", "2030-01-01T00:00:00Z"]) == 0
    assert json.loads(capsys.readouterr().out)["scheduler"][0]["succeeded"] == 3
    assert main([str(path), "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "FRAMES" in lines[0] and "636c69656e74 Hello" in lines[0] and "TICK" in lines[2]
    assert any("Task of 2 from id 10" in line for line in lines)


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("something else")
    assert main([str(tmp_path / "text")]) == EXIT_UNREADABLE
    assert main([str(tmp_path / "missing")]) == EXIT_UNREADABLE
    assert "not a recording" in capsys.readouterr().err
    (tmp_path / "other").write_bytes(header_bytes(Header("1", {}, 0.0, 0.0, False, "worker")))
    assert main([str(tmp_path / "other")]) == EXIT_UNREADABLE
    assert "this is a recording of a worker" in capsys.readouterr().err


def test_digests_are_recorded_periodically(path: Path) -> None:
    recorded = Recorded(path)
    for _ in range(20):
        recorded.work(1)
    recorded.recorder.close()
    times = [time for time, entry in read(path).records() if isinstance(entry, Digest)]
    assert len(times) > 5 and all(later - earlier >= DIGEST_SECONDS for earlier, later in zip(times, times[1:]))


def test_a_real_scheduler_records_until_it_breaks(start: Any, tmp_path: Path) -> None:
    path = tmp_path / "recording"
    script = (faulty_scheduler.__file__, str(tmp_path / "marker"))
    scheduler: SchedulerProcess = start("--record", str(path), script=script)
    worker, client = scheduler.worker(), scheduler.client()
    for task_id in range(faulty_scheduler.REPORTS_BEFORE_THE_FAULT + 1):
        client.submit(task_id)
        worker.finish(worker.take_task_ids())

    assert scheduler.process.wait(DEADLINE_SECONDS) == EXIT_BROKEN_INVARIANT
    assert f"scaler_scheduler replay {path}.failed" in scheduler.output()
    replay = SchedulerReplay(read(tmp_path / "recording.failed"), checks_invariants=True)
    replay.run()
    assert replay.last_input is not None and replay.last_input.kind == InputKind.FRAMES
    assert replay.digests and sum(replay.core.state.finished) == faulty_scheduler.REPORTS_BEFORE_THE_FAULT + 1
