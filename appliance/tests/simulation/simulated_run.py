"""One run: a safety phase with faults, then a phase without, in which everything must finish."""

from __future__ import annotations

from typing import List, NamedTuple

from simulation.actor_users import close_actor
from simulation.clients import Client
from simulation.provisioners import Provisioner
from simulation.workers import Worker
from simulation.world import LIVENESS_SECONDS, SAFETY_SECONDS, World
from table_sizes import drawn_chunks

MOST_WORKERS = 6


class Summary(NamedTuple):
    events: int
    outcomes: int


class Run:
    def __init__(self, seed: int, events_per_check: int, has_stretches: bool = False) -> None:
        self.world = World(seed, events_per_check, has_stretches)
        random = self.world.random
        self.clients: List[Client] = [Client(self.world) for _ in range(random.randint(1, 4))]
        self.workers: List[Worker] = [self.new_worker() for _ in range(random.randint(1, 4))]
        self.act_interval_seconds = random.choice((0.5, 1.0, 3.0))
        self.world.every(0.5, self.step_workers)
        self.world.every(self.act_interval_seconds, self.step_clients)
        self.provisioner = Provisioner(self.world) if self.world.provisioning.is_used else None

    def new_worker(self) -> Worker:
        random = self.world.random
        return Worker(self.world, random.choice((1, 1, 2, 4)), random.choice((0.0, 2.0)))

    def step_workers(self) -> None:
        if len(self.workers) < MOST_WORKERS and self.world.chance(self.world.rates.join):
            self.workers.append(self.new_worker())
        for place, worker in enumerate(self.workers):
            if not worker.is_alive:
                if self.world.is_calm or self.world.random.random() < 0.3:
                    self.workers[place] = self.new_worker()
            else:
                worker.misfortune()

    def step_clients(self) -> None:
        if self.world.is_calm:
            return
        if self.provisioner is not None:
            self.provisioner.act()
        for place, client in enumerate(self.clients):
            if client.is_alive:
                client.act()
            elif self.world.random.random() < 0.3:
                self.clients[place] = Client(self.world)

    def go(self) -> Summary:
        world = self.world
        safety_seconds = world.random.choice(SAFETY_SECONDS)
        if world.random.random() < world.rates.restart:
            world.run(safety_seconds / 2)
            world.restart_scheduler()
        world.run(safety_seconds)
        world.is_calm = True
        if world.random.random() < 0.1:
            return self.shut_down()
        self.workers.append(Worker(world, 2, 2.0, "*"))  # now every capability is offered, to all tenants
        for client in self.clients if world.actors.is_used else ():
            for function in list(client.own_actors if client.session else ()):
                close_actor(client, function)  # else those that use capabilities would keep others from running
        deadline = world.now + LIVENESS_SECONDS
        world.run(deadline, self.is_finished)
        unfinished = sum(client.unfinished for client in self.clients)
        assert self.is_finished(), f"{unfinished} tasks have no outcome; {world.core.state.running} are at workers"
        self.check_all_is_free(deadline)
        return self.shut_down()

    def shut_down(self) -> Summary:
        """However much is under way, the scheduler ends in time, and once."""
        world = self.world
        world.shut_down("the end")
        world.run(world.now + 10, lambda: bool(world.stopped))
        assert world.stopped
        world.core.state.check_invariants()
        assert not world.core.state.clients
        return Summary(world.events, world.outcomes + world.checker.outcomes)

    def is_finished(self) -> bool:
        return all(
            not client.unfinished and not client.unanswered and not client.is_greeting
            for client in self.clients
            if client.is_alive
        )

    def is_over(self) -> bool:
        """Whether all peers are idle, and the scheduler has noticed all deaths."""
        world, state = self.world, self.world.core.state
        return (
            not state.clients
            and not world.under_way
            and not world.tick_is_due
            and not world.files
            and not any(map(Worker.is_busy, self.workers))
            and all(world.links[name].is_open for name in state.sessions)
        )

    def check_all_is_free(self, deadline: float) -> None:
        """Once all clients have left, nothing is kept for any."""
        world = self.world
        for client in self.clients:
            client.leave()
        if self.provisioner is not None:
            self.provisioner.leave()
        state = world.core.state
        world.run(deadline, self.is_over)
        world.run(world.now + 0.2)  # the scheduler has had its say about the last message
        world.checker.check_all_is_over()
        assert not state.clients and not len(state.ready) and not state.dispatches
        assert not len(state.objects), [hex(record.object_id) for record in state.objects.records()]
        assert not world.files, world.files.keys()
        for worker in self.workers:
            assert not worker.reports and not worker.queue
            assert not worker.whole | worker.broken | set(worker.fetches), "the end of objects was not announced"


def simulate(seed: int, events_per_check: int = 1, has_stretches: bool = False) -> Summary:
    """One seed's history; what peers see is checked always, and the core's invariants after every n-th event.

    Checking invariants takes three quarters of the time of a history that is checked after each event.

    Parameters:
        has_stretches: they are checked after each event of some stretches, too.
    """
    with drawn_chunks(seed):
        return Run(seed, events_per_check, has_stretches).go()
