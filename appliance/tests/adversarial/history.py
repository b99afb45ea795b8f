"""One seed, one history: what adversarial peers say to the core, and what may come of it.

Rules:
- All chance comes from the seed: a history can be repeated exactly.
- After each event the core's invariants are checked. A message ends at most the session of who said it, unless it is a
  shutdown that the scheduler allows; time ends only those that were silent.
- In the end, once the adversarial peers have left, the control client's tasks end and no state remains. Or the
  scheduler is shut down in the midst of it, and stops once.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import Counter as CounterType
from typing import Deque, Dict, List, NamedTuple, Set, Tuple, Type

from adversarial.adversarial_peers import AdversarialPeer, Said
from adversarial.control_client import ControlClient
from adversarial.faulty_shell import Shell
from adversarial.values import Values
from scheduler_harness import Harness
from simulation.monitors import Monitor

from scaler_appliance.core.effects import PeerError
from scaler_appliance.core.peers.scheduler_shutdown import GRACE_SECONDS
from scaler_protocol import messages as m

STEPS = 300
MOST_ADVERSARIAL_PEERS = 8
STEP_SECONDS = 0.02
LEAPS_SECONDS = (0.0, 1.0, 1.0, 5.0, 20.0, 70.0)
LAST_MESSAGES = 12  # shown of a history that failed

Kinds = CounterType[Tuple[m.Role, Type[object]]]


class Summary(NamedTuple):
    """What a history was made of: messages by role and type, of peers that had a session."""

    said: Kinds
    sessions: int


class History:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.said: Kinds = Counter()
        self.events: Deque[object] = deque(maxlen=LAST_MESSAGES)
        self.harness = Harness(
            client_tasks_in_flight=random.choice((0, 5, 100, 1 << 20)),
            client_bytes_in_flight=random.choice((0, 50, 100_000)),
            max_number_of_tasks_waiting=random.choice((-1, -1, 0, 10)),
            maximum_attempts=random.choice((1, 2, 4)),
            per_worker_queue_size=random.choice((1, 1000)),
            maximum_object_bytes=random.choice((100, 1 << 40)),
            object_memory_limit_bytes=random.choice((0, 1000, 1 << 20)),
            chunk_bytes=random.choice((10, 1000)),
            inline_bytes=random.choice((64, 1000)),
            protected=random.random() < 0.7,
        )
        self.core = self.harness.core
        self.values = Values(random)
        self.shell = Shell(self.harness, self.values)
        self.monitor = Monitor(seed)
        self.control_client = ControlClient(self.harness, self.values)
        self.adversaries: List[AdversarialPeer] = []

    def go(self) -> Summary:
        for _ in range(STEPS):
            self.step()
            if self.shell.stops:
                break
        if self.control_client.is_served and self.random.random() < 0.9:
            self.all_leave()
        else:
            self.shut_down()
        return Summary(self.said, self.core.state.last_session)

    def step(self) -> None:
        """One thing happens."""
        choice = self.random.random()
        if len(self.adversaries) < 2 or (choice < 0.02 and len(self.adversaries) < MOST_ADVERSARIAL_PEERS):
            self.adversaries.append(AdversarialPeer(self.harness, self.values))
            return
        adversary = self.random.choice(self.adversaries)
        if choice < 0.07:
            self.misfortune(adversary)
        elif choice < 0.08:
            self.deliver(adversary, adversary.hello())
        elif choice < 0.1:
            self.control_client.act()
        elif choice < 0.3:
            is_leap = self.random.random() < 0.1
            self.pass_time(self.random.choice(LEAPS_SECONDS) if is_leap else STEP_SECONDS)
        elif adversary.session or self.random.random() < 0.3:
            self.deliver(adversary, adversary.say())
        else:
            self.deliver(adversary, adversary.hello())

    # Events ---------------------------------------------------------------------------------------------------------

    def deliver(self, adversary: AdversarialPeer, said: Said) -> None:
        """Deliver one message, which must not end the session of another peer."""
        message, payload = said
        self.events.append((adversary.peer.name, message, payload))
        if adversary.session:
            self.said[adversary.role, type(message)] += 1
        before = self.sessions()
        self.harness.deliver(adversary.peer.name, message, payload)
        if not isinstance(message, m.ClientShutdown) or self.core.state.settings.protected:
            self.check_lost(before, {adversary.peer.name})

    def misfortune(self, adversary: AdversarialPeer) -> None:
        """What befalls a peer without a word of its own."""
        name, now, before = adversary.peer.name, self.harness.now, self.sessions()
        choice = self.random.random()
        if choice < 0.2:
            self.events.append((name, "is gone"))
            self.core.on_peer_gone(now, name)
        elif choice < 0.25:
            self.events.append((name, "sends bytes that are no message"))
            self.core.on_peer_error(now, name, PeerError(m.RefusalReason.MALFORMED, "these are no message"))
        else:
            is_congested = choice < 0.6
            self.events.append((name, "leaves much unread" if is_congested else "has read"))
            self.core.on_congestion(now, name, is_congested)
        self.core.state.check_invariants()
        self.check_lost(before, {name})

    def pass_time(self, seconds: float) -> None:
        """The scheduler decides, the shell answers, and some peers do."""
        self.events.append(f"{seconds} s pass")
        harness = self.harness
        harness.now += seconds
        self.control_client.say_that_it_is_there()
        before, silent = self.sessions(), self.silent()
        harness.tick()
        self.check_lost(before, silent)
        before = self.sessions()
        self.shell.perform()
        self.check_lost(before, set())
        self.control_client.read()
        for adversary in self.adversaries:
            self.read(adversary)
        self.monitor.look(self.core, harness.now)

    def read(self, adversary: AdversarialPeer) -> None:
        """What a contradictory peer heeds of what it is sent."""
        inbox = adversary.peer.inbox
        while inbox:
            message, _ = inbox.popleft()
            if isinstance(message, m.BalanceRequest):
                self.values.balance_requests.append(message.request_id)
            elif isinstance(message, m.ObjectRequest) and adversary.session and self.random.random() < 0.9:
                self.deliver(adversary, adversary.answer(message))

    # The end --------------------------------------------------------------------------------------------------------

    def all_leave(self) -> None:
        for adversary in self.adversaries:
            self.core.on_peer_gone(self.harness.now, adversary.peer.name)
            self.core.state.check_invariants()
        self.control_client.finish()
        state = self.core.state
        assert not state.sessions and not state.dispatches and not state.running
        assert not len(state.ready) and not state.nodes_waiting and not state.advancing
        assert not len(state.objects), [hex(record.object_id) for record in state.objects.records()]

    def shut_down(self) -> None:
        """Remaining peers, and messages in transit."""
        self.core.shut_down(self.harness.now, "the end")
        for _ in range(2):
            self.pass_time(GRACE_SECONDS)
        assert self.shell.stops == 1, f"the scheduler stopped {self.shell.stops} times"
        assert not self.core.state.clients

    # Judging --------------------------------------------------------------------------------------------------------

    def sessions(self) -> Dict[bytes, int]:
        return {name: session.number for name, session in self.core.state.sessions.items()}

    def silent(self) -> Set[bytes]:
        """Those that may be taken for dead by now."""
        now = self.harness.now
        sessions = self.core.state.sessions
        return {name for name, each in sessions.items() if now - each.last_heard > each.timeout_seconds}

    def check_lost(self, before: Dict[bytes, int], allowed: Set[bytes]) -> None:
        """Of the sessions that there were, no others have ended than those that may have."""
        after = self.sessions()
        lost = {name for name, number in before.items() if after.get(name) != number}
        assert lost <= allowed, f"{sorted(lost - allowed)} lost the session by what others did"


def command(seed: int) -> str:
    return f"cd appliance && ../.venv/bin/python -m tests.adversarial.many_seeds {seed} 1"


def run(seed: int) -> Summary:
    """One history; an error says how to repeat it, and what came last."""
    history = History(seed)
    try:
        return history.go()
    except Exception as error:
        last = "\n".join(f"    {event!r:.1000}" for event in history.events)
        text = f"seed {seed} failed, which alone is `{command(seed)}`: {error!r}; the last events were:\n{last}"
        raise AssertionError(text) from error
