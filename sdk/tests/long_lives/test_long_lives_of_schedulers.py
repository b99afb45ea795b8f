"""The shell of a scheduler that lives for long keeps nothing of the peers and monitors that have gone.

Each round brings clients and workers that work, send what leads to nothing, read too little, break off in the middle,
or never say Hello, and monitors that do the like; then all of them go. What the shell and the core hold is counted
after half of the rounds, and after all of them.
"""

from __future__ import annotations

from array import array
from typing import Any, Dict, List

import pytest
from long_lives.reachable_sizes import grown, module_sizes, sizes_of
from shell.faulty_system import SimulatedSystem
from shell.test_faults import Played, SimulatedMonitor, SimulatedPeer

from scaler_appliance.core.state import Settings
from scaler_appliance.shell import connections
from scaler_appliance.shell.publishing.status_publisher import MAXIMUM_MESSAGE_BYTES
from scaler_protocol import messages as m

ROUNDS = 6
STEPS_OF_A_ROUND = 12
UNREAD_BYTES = 1000
FIRST_INSTANCE = 1 << 20
WORK = 40  # units in one call: much is left to do for peers that go


class HastyPeer(SimulatedPeer):
    """Goes as soon as all that it has to say is on its way; `is_last` says that this is all."""

    is_last = False

    def step(self) -> None:
        if self.is_last:
            self.stream.to_peer.clear()
        super().step()
        if self.is_last and not self._unsent:
            self.leave()


class ManyCallers(Played):
    """A server whose peers are other ones in each round."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(SimulatedSystem(2048, 4096), monkeypatch, Settings(work_per_call=WORK))
        for name in ("CONGESTED_BYTES", "FEW_BYTES", "RELIEVED_BYTES", "STOP_READING_BYTES"):
            monkeypatch.setattr(connections, name, UNREAD_BYTES)
        self.peers.clear()
        self.worker.leave()
        self.client.leave()
        self.monitor.stream.is_left = True
        self.monitors.clear()
        self._rounds = 0

    def round(self) -> None:
        """Peers come, do something, and go; nothing is left to do then."""
        self._rounds += 1
        system = self.system
        tasks = dict.fromkeys(range(6), b"x" * 700)
        workers = [HastyPeer(system, m.Role.WORKER, {}) for _ in range(2)]
        clients = [SimulatedPeer(system, m.Role.CLIENT, dict(tasks)) for _ in range(2)]
        hasty = HastyPeer(system, m.Role.CLIENT, dict(tasks))  # does not wait for its results
        deaf = SimulatedPeer(system, m.Role.CLIENT, dict(tasks))  # does not read them
        silent = system.connect()
        foreigner = system.connect()
        foreigner.to_scheduler += b"GET / HTTP/1.1\r\n\r\n"
        self.peers = [*workers, *clients, hasty, deaf]
        deaf_monitor, rude_monitor = SimulatedMonitor(system), SimulatedMonitor(system)
        self.monitors = [SimulatedMonitor(system), SimulatedMonitor(system), deaf_monitor, rude_monitor]
        silent_monitor = system.connect(is_monitor=True)
        for number in range(STEPS_OF_A_ROUND):
            self.step()
            for peer in clients:
                self._send_what_leads_to_nothing(peer, number)
            if number == 4:
                self.peers.remove(deaf)
                self.monitors.remove(deaf_monitor)
                self.monitors.remove(rude_monitor)
                rude_monitor.stream.to_scheduler += rude_monitor.protocol.encoded(bytes(MAXIMUM_MESSAGE_BYTES + 1))
            if number == 5:
                hasty.send(m.TaskCancel(ids=array("Q", range(1000, 1500))))
                hasty.is_last = True
                workers[0].stream.to_scheduler += b"\x00\x7f a part of a message"
            if number == 6:
                stale = array("Q", [FIRST_INSTANCE, 2 * FIRST_INSTANCE]) * 150
                for _ in range(3):
                    workers[1].send(m.TaskResult(ids=stale, payload_sizes=array("I", bytes(4 * len(stale)))))
                workers[1].is_last = True
                self.peers.append(SimulatedPeer(system, m.Role.WORKER, {}))
        for peer in (hasty, workers[1]):
            assert peer.stream.is_left
            self.peers.remove(peer)
        while not all(peer.is_finished for peer in clients):
            self.step()
        for peer in (*self.peers, deaf):
            peer.leave()
        assert all(monitor.protocol.messages for monitor in self.monitors)
        assert self.publisher._subscriptions.held_bytes, "for the one that does not read"
        for monitor in (*self.monitors, deaf_monitor):
            monitor.stream.is_left = True
        silent.is_left = foreigner.is_left = silent_monitor.is_left = True
        self.peers, self.monitors = [], []
        for _ in range(40):
            self.step()
        assert not self.core.state.sessions and not self.core.has_work
        assert rude_monitor.stream.is_closed and not self.publisher._monitors

    def _send_what_leads_to_nothing(self, peer: SimulatedPeer, number: int) -> None:
        if not peer.has_session:
            return
        nothing = self._rounds * 1000 + number
        peer.send(m.TaskCancel(ids=array("Q", [nothing]), force=bool(number % 2)))
        peer.send(m.ObjectRequest(id=nothing, offset=0, length=10))
        peer.send(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=array("Q", [nothing])))
        peer.send(m.ExplanationRequest(request_id=number, task_id=nothing))
        peer.send(m.InfoRequest(request_id=number))

    def sizes(self) -> Dict[str, int]:
        server: Any = self.server
        descriptors: List[Any] = list(self.system.open_descriptors.values())
        return {**sizes_of(server, self.connections), **module_sizes(), "descriptors": len(descriptors)}


def test_a_scheduler_keeps_nothing_of_peers_and_monitors_that_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    callers = ManyCallers(monkeypatch)
    for _ in range(ROUNDS // 2):
        callers.round()
    before = callers.sizes()
    for _ in range(ROUNDS // 2):
        callers.round()
    assert grown(before, callers.sizes(), 1) == {}
