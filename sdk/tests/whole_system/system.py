"""One run of a whole system: users, clients, the scheduler and workers, first with faults, then without.

What a run shows: every future ends once and as it may (`futures`); when all is calm, everything ends in time; and when
all clients have left, nothing is kept for any of them anywhere.
"""

from __future__ import annotations

from contextlib import contextmanager
from random import Random
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

from table_sizes import drawn_chunks
from whole_system.links.data_links import DataLinks
from whole_system.nested_users import NestedUser
from whole_system.network import Network, Peer
from whole_system.plain_peer import PlainPeer
from whole_system.scheduler_host import SchedulerHost
from whole_system.simulated_world import CLOCK_STEPS_SECONDS, Plan, World
from whole_system.tenants import Tenants
from whole_system.units.provisioner_host import ProvisionerHost
from whole_system.user_tasks import Task
from whole_system.users import User
from whole_system.worker_host import WorkerHost

from scaler_appliance.core.tasks import memory_needs
from scaler_protocol.keys.allow_list import ANY_TENANT
from scaler_protocol.session.session_table import SessionState

LIVENESS_SECONDS = 600.0
QUICK_LARGE_TASKS, LEAST_MICROSECONDS = 0.3, 20_000.0
SHORTEST_REST_SECONDS, LONGEST_REST_SECONDS = 0.5, 3.5
SAFETY_EVENTS_OF_TRANSFERS = 400
"""In histories with many of them: else most would come after the faults."""


class Summary(NamedTuple):
    events: int
    outcomes: int
    seconds: float  # of virtual time


class System:
    def __init__(self, plan: Plan) -> None:
        self.world = World(plan)
        self.network = Network(self.world)
        self.links = DataLinks(self.world)
        if self.links.are_frequent:
            self.world.safety_events = max(self.world.safety_events, SAFETY_EVENTS_OF_TRANSFERS)
        self.tasks: Dict[int, Task] = {}
        self.tenants = Tenants(self.world)
        self.scheduler = SchedulerHost(self.world, self.network, self.tasks, self.tenants)
        self.users: List[User] = []
        self.nested_users: List[NestedUser] = []
        self.workers: List[WorkerHost] = []
        self._all_workers: List[WorkerHost] = []
        self._names = 0
        self._plain_peer: Optional[PlainPeer] = None
        self.outcomes = 0
        most = plan.peers or 3
        for _ in range(min(most, self.world.choose("users", (1, 1, 2, 3)))):
            self._add_user()
        for _ in range(min(most, self.world.choose("workers", (1, 1, 2, 3)))):
            self._add_worker()
        for _ in range(min(most, 4) if self.links.are_frequent else 0):
            self._add_worker()
        self._provisioner = ProvisionerHost(self) if self.world.rates["provisioner"] else None
        self._resting = Random(f"rests: {plan.seed}")  # apart from all other draws
        self._rest_until = 0.0

    def new_task(
        self, tenant: str, function: bytes, contents: Sequence[bytes], needed: Sequence[Task], code: Sequence[bytes]
    ) -> Task:
        task = Task(len(self.tasks) + 1, function, contents, needed, code)
        task.tenant = tenant
        self.tasks[task.key] = task
        return task

    @property
    def has_lost_bytes(self) -> bool:
        """Whether some disk or memory has failed, so that objects may be missing."""
        return bool(self.scheduler.storage_losses) or self.has_lost_files

    @property
    def has_lost_files(self) -> bool:
        """Whether some file was lost that had been whole: why it is missing need not be known."""
        return any(each.lost_files for each in self._all_workers)

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}-{self._names}"

    def _add_user(self) -> None:
        self.users.append(User(self, self._name("client"), self.tenants.of_client()))

    def new_nested_user(self, tenant: str) -> NestedUser:
        user = NestedUser(self, self._name("nested"), self.tenants.of_nested_client(tenant))
        self.nested_users = [each for each in self.nested_users if each.is_usable]
        self.nested_users.append(user)
        return user

    def _add_worker(self, takes_all: bool = False) -> None:
        """
        Parameters:
            takes_all: it serves all tenants, and has what tasks may need.
        """
        name, key = self._name("worker"), self.tenants.of_worker(takes_all)
        has_gpu = takes_all and bool(self.world.rates["capabilities"])
        worker = WorkerHost(
            self.world, self.scheduler, self.tasks, name, key, self.new_nested_user, self.links, has_gpu, takes_all
        )
        self.take_in(worker)

    def take_in(self, worker: WorkerHost) -> None:
        """A worker has come."""
        self.workers.append(worker)
        self._all_workers.append(worker)

    # The phase with faults ------------------------------------------------------------------------------------------

    def _step(self) -> None:
        world, random = self.world, self.world.random
        if self.scheduler.is_up and world.fault("restart"):
            self.scheduler.crash()
        if world.fault("clock_step"):
            self.scheduler.step_clock(random.choice(CLOCK_STEPS_SECONDS))
        if world.fault("scheduler_pause"):
            self.scheduler.pause(random.choice((0.3, 3.0, 8.0)))
        peers: List[Peer] = [*(user.host for user in self._all_users()), *self.workers]
        self.network.disturb([peer for peer in peers if peer.is_alive])
        for worker in self.workers:
            if worker.is_alive:
                worker.misfortune()
        self._replace_workers(0.3)
        if self._plain_peer is None and world.uses("plain_peers"):
            self._plain_peer = PlainPeer(self, self._name("plain"))
        for user in list(self.users):
            if not user.host.is_alive or user.host.ended is not None:
                self.users.remove(user)
                self._add_user()
            elif world.now >= self._rest_until:
                user.act()
        if world.rates["rests"] and self._resting.random() < world.rates["rests"]:
            self._rest_until = world.now + self._resting.uniform(SHORTEST_REST_SECONDS, LONGEST_REST_SECONDS)

    def _replace_workers(self, rate: float) -> None:
        for worker in list(self.workers):
            if worker.is_alive:
                continue
            if worker.unit:  # another one comes if it is needed
                self.workers.remove(worker)
            elif self.world.random.random() < rate:
                self.workers.remove(worker)
                self._add_worker()

    def _staff(self) -> None:
        """Some worker takes tasks: one that drains waits for its own, and these may wait for tasks of their own."""
        self._replace_workers(1.0)
        leaving = (SessionState.ASKING, SessionState.DRAINING)
        staying = [worker for worker in self.workers if worker.core.session.state not in leaving and worker.stays]
        needs_gpu, has_tenants = bool(self.world.rates["capabilities"]), self.tenants.are_there
        if not any(
            (worker.has_gpu or not needs_gpu) and (worker.key.tenant == ANY_TENANT or not has_tenants)
            for worker in staying
        ):
            self._add_worker(takes_all=True)

    # The run --------------------------------------------------------------------------------------------------------

    def run(self) -> Summary:
        world = self.world
        world.every(world.random.choice((0.1, 0.25)), self._step, lambda: not world.is_calm)
        world.run(world.safety_seconds, lambda: world.events >= world.safety_events)
        world.calm_down()
        for user in self.users if world.rates["endless_tasks"] else ():
            user.end_the_endless()
        world.every(1.0, self._staff)
        world.run(world.now + LIVENESS_SECONDS, self._is_done)
        assert self._is_done(), self._what_is_left()
        self._check_clients()
        if self._provisioner is not None:
            self._provisioner.end()
        self._leave()
        return Summary(world.events, self.outcomes, world.now)

    def _is_done(self) -> bool:
        is_plain_done = self._plain_peer is None or self._plain_peer.is_done
        return self.scheduler.is_up and is_plain_done and all(user.is_done for user in self._all_users())

    def _all_users(self) -> List[User]:
        return [*self.users, *self.nested_users]

    def _what_is_left(self) -> str:
        left = []
        for user in self._all_users():
            if not user.is_done:
                host = user.host
                ids = [(key, future._task_id) for key, future in user.unfinished.items()]
                left.append(f"{host.name} {host.session.state}: {ids}, {len(host.open_askers)} askers")
        return f"unfinished after {LIVENESS_SECONDS:.0f} s: {'; '.join(left)}"

    def _live_hosts(self) -> List[User]:
        return [user for user in self._all_users() if user.host.is_alive and user.host.ended is None]

    def _check_clients(self) -> None:
        """With all futures ended, and everything let go, clients keep nothing."""
        world = self.world
        world.run(world.now + 60.0, lambda: not self._what_clients_keep())
        assert not self._what_clients_keep(), f"clients that hold nothing keep {self._what_clients_keep()}"

    def _what_clients_keep(self) -> List[str]:
        """By name. Tasks of clients that were killed may still run, and submit more."""
        kept = []
        for user in self._live_hosts():
            if user.is_done:
                user.let_go_of_all()
            if user.host.core is not None:
                kept += [f"{user.host.name}: {each}" for each in user.host.what_is_kept()]
        for session in self.scheduler.core.state.clients.values():
            kept += [f"{session.label}: object {object_id:x} at the scheduler" for object_id in session.objects]
        return kept

    def _leave(self) -> None:
        """All clients leave; then nothing is left of them."""
        world, scheduler = self.world, self.scheduler
        for user in self._live_hosts():
            user.host.leave()
        world.run(world.now + 120.0, self._is_empty)  # by then, peers that hung are back, too
        state = scheduler.core.state
        state.check_invariants()
        away = [each.name for each in self.workers if each.is_alive and each.core.session.number not in state.workers]
        assert not away, f"workers are not connected: {away}"
        assert not state.clients, f"clients are left: {[each.label for each in state.clients.values()]}"
        assert not len(state.ready) and not state.dispatches and not state.nodes_waiting and not state.running
        assert not len(state.objects), [hex(record.object_id) for record in state.objects.records()]
        open_requests = [each.label for each in state.workers.values() if each.balance_request is not None]
        assert not open_requests, f"requests to give tasks back are open: {open_requests}"
        assert not scheduler.files, f"files are left: {list(scheduler.files)}"
        for worker in self.workers:
            if worker.is_alive:
                assert not worker.what_is_kept(), f"{worker.name} keeps {worker.what_is_kept()}"
        scheduler.shut_down()
        world.run(world.now + 15.0, lambda: bool(scheduler.stopped))
        assert scheduler.stopped, "the scheduler does not stop"

    def _is_empty(self) -> bool:
        if self.scheduler.is_stopping or not self.scheduler.is_up:
            return False
        state = self.scheduler.core.state
        is_balancing = any(each.balance_request is not None for each in state.workers.values())
        is_used = state.clients or state.dispatches or len(state.objects) or self.scheduler.files
        return not (is_used or is_balancing) and all(
            each.core.session.number in state.workers and not each.what_is_kept()
            for each in self.workers
            if each.is_alive
        )


@contextmanager
def drawn_least_duration(seed: int) -> Iterator[None]:
    """Let a seed decide how long tasks have to take to be large, within a run: few take a second."""
    usual = memory_needs.LEAST_MICROSECONDS
    is_quick = Random(f"large tasks: {seed}").random() < QUICK_LARGE_TASKS
    memory_needs.LEAST_MICROSECONDS = LEAST_MICROSECONDS if is_quick else usual
    try:
        yield
    finally:
        memory_needs.LEAST_MICROSECONDS = usual


def simulate(plan: Plan) -> Summary:
    """Run one system. Raises AssertionError, or whatever a core raises, if something is wrong."""
    with drawn_chunks(plan.seed), drawn_least_duration(plan.seed):
        return System(plan).run()
