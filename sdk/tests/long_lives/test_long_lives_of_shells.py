"""The shells of clients and workers that live for long keep nothing of tasks that have ended, of connections that were
lost, nor of processors that have died.

They run over a simulated system. What shell and core hold is counted after half of the rounds, and after all of them.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from fault_injection.agent_scenario import SchedulerOfWorker, is_as_expected, run_agent
from fault_injection.client_scenario import MODULES, OBJECT_BYTES, OBJECT_SIZE, echo
from fault_injection.peer_scenario import SchedulerOfPeers
from fault_injection.played_scheduler import LARGE, LARGE_BYTES, URL, SchedulerOfClient
from fault_injection.simulated_system import SimulatedSystem, installed
from long_lives.reachable_sizes import grown, module_sizes, sizes_of

from scaler import Client
from scaler.client.shell.client_shell import ClientShell
from scaler.client.shell.io_thread import IoThread
from scaler.worker.agent.shell.agent_shell import Agent
from scaler_protocol.host import segments

HALF = 3  # of the rounds


class _User:
    """A user thread's steps, which are taken while the I/O thread waits."""

    def __init__(self, client: Client, system: SimulatedSystem, scheduler: SchedulerOfClient) -> None:
        self._client = client
        self._system = system
        self._scheduler = scheduler
        self._futures: List[Any] = []
        self._expected: List[Any] = []
        self.counted: List[Dict[str, int]] = []
        self._steps = self._live()

    def act(self) -> bool:
        """Take the next step; returns whether there was one to take."""
        return all(future.done() for future in self._futures) and next(self._steps, None) is not None

    def _live(self) -> Iterator[bool]:
        for number in range(2 * HALF):
            yield from self._round(number)
            if number % HALF == HALF - 1:
                self.counted.append(self._sizes())
        self._client._shell._start_leaving()
        self._client._shell.mailbox.wake()
        yield True

    def _round(self, number: int) -> Iterator[bool]:
        self._submit(number, number)
        yield True
        for each in range(5):
            self._submit((number, each), (number, each))
        yield True
        reference = self._client.send_object(b"o" * OBJECT_BYTES)
        self._submit(reference, [OBJECT_SIZE])
        yield True
        del reference  # which is valid until `clear`
        self._submit(LARGE, b"L" * LARGE_BYTES)
        yield True
        self._submit(LARGE, b"L" * LARGE_BYTES)
        self._client._shell.ask_to_cancel(self._futures[-1:])
        yield True
        peer = self._scheduler.peer
        assert peer is not None
        peer.lose()
        self._submit("after the loss", "after the loss")
        yield True
        for future, expected in zip(self._futures, self._expected):
            assert future.result(0) == expected
        self._futures.clear()
        self._expected.clear()
        self._client.clear()
        yield True

    def _submit(self, argument: Any, result: Any) -> None:
        self._expected.append(result)
        self._futures.append(self._client.submit(echo, argument))

    def _sizes(self) -> Dict[str, int]:
        return {
            **sizes_of(self._client._shell, self._client._shell.io),
            **module_sizes(),
            "descriptors": len(self._system.left_open()),
        }


@pytest.mark.parametrize("is_shared", [True, False], ids=["files", "chunks"])
def test_a_client_keeps_nothing_of_what_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    directory = tmp_path / "scheduler"
    directory.mkdir()
    monkeypatch.setattr(logging.getLogger("scaler"), "disabled", True)
    system = SimulatedSystem(None)
    with installed(system, MODULES) as patch:
        patch.setattr(IoThread, "start", lambda io: None)
        patch.setattr(ClientShell, "flush", lambda shell, timeout_seconds: None)  # its user is in the I/O thread
        patch.setattr(segments, "default_parent", lambda: str(tmp_path))
        scheduler = SchedulerOfClient(system, str(directory) if is_shared else None)
        client = Client(URL, timeout_seconds=100.0, connect_timeout_seconds=20.0)
        user = _User(client, system, scheduler)
        system.actors.append(user.act)
        client._shell.io._run()
        system.actors.clear()
        del client
    assert scheduler.sessions == 2 * HALF + 1, "each round has lost its connection"
    before, after = user.counted
    assert "ClientShell.io.core.pending._unfinished" in after or len(after) > 100, "shell and core are counted"
    assert grown(before, after, 1) == {}
    assert os.listdir(tmp_path) == ["scheduler"]


@pytest.mark.parametrize("kind", ["files", "chunks", "peers"])
def test_an_agent_keeps_nothing_of_what_has_ended(tmp_path: Path, kind: str) -> None:
    counted: List[Dict[str, int]] = []
    opened: List[int] = []

    def prepare(agent: Agent, scheduler: SchedulerOfWorker) -> None:
        def count(number: int) -> None:
            counted.append({**sizes_of(agent), **module_sizes(), "descriptors": len(system.left_open())})
            opened.append(scheduler.sessions)

        loop: Any = agent._loop
        system = loop._system
        scheduler.rounds = 4 * HALF
        scheduler.on_round = count

    play = SchedulerOfPeers if kind == "peers" else SchedulerOfWorker
    run = run_agent(tmp_path, None, kind == "files", prepare, play)
    assert run.problems == [] and is_as_expected(run)
    assert opened[-1] == 2 * HALF + 1 and len(counted) == 4 * HALF, "connections were lost"
    assert len(counted[0]) > 100 and "Agent._core.objects" in str(counted[0]), "shell and core are counted"
    assert grown(counted[2 * HALF - 1], counted[-1], 1) == {}
