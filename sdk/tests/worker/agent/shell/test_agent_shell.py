"""The agent's shell alone, with effects that come too late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List

from scaler.worker.agent.core.effects import Deliver, KillProcessor, StopProcessor
from scaler.worker.agent.shell.agent_shell import Agent
from scaler.worker.progress_page import ProgressPage
from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol.programs.event_loop import BuiltinLoop


def test_what_is_for_a_processor_that_died_in_the_same_round_is_dropped() -> None:
    killed: List[int] = []
    fork_server: Any = SimpleNamespace(remove_at_end=lambda path: None, kill=killed.append)
    loop = BuiltinLoop()
    try:
        agent = Agent(WorkerSettings(address="tcp://127.0.0.1:1", slots=1), fork_server, ProgressPage(), loop)
        agent._core.effects += [StopProcessor(7), Deliver(7, [b"frame"]), KillProcessor(7, wants_stack=False)]
        agent._turn()
        assert killed == [7] and not agent._core.effects
    finally:
        loop.close()
