"""Simulated workers: they queue, run, wait for nested tasks, report late and twice, drain, and die."""

from __future__ import annotations

from functools import partial
from typing import Dict, List, NamedTuple, Optional, Sequence, Set

from simulation.actors import ACTORS
from simulation.clients import TENANTS, NestedClient
from simulation.graphs import inputs_and_own_payload, result_content
from simulation.peers import Peer, content_of
from simulation.transfers import WorkerTransfers
from simulation.world import World, column

from scaler_protocol import encode_struct
from scaler_protocol import messages as m
from scaler_protocol.session.features import DRAIN_REQUESTS, KEPT_RESULTS, PEER_FETCH

Outcome = m.CancelOutcome
SUCCESS, FAILED, LOST = m.TaskStatus.SUCCESS, m.TaskStatus.FAILED, m.TaskStatus.LOST


class Job(NamedTuple):
    instance: int
    client: int
    payload: bytes
    needed: tuple[int, ...]
    content: bytes  # of what it returns
    actor: int = 0  # whose call it is, by its function


class Report(NamedTuple):
    instance: int
    status: int
    data: bytes
    large: int = 0


class Worker(Peer):
    role = m.Role.WORKER

    def __init__(self, world: World, slots: int, gpu: float, tenants: Sequence[str] = (*TENANTS, "*")) -> None:
        self.slots = slots
        self.gpu = gpu
        self.world = world
        self.data_address = world.transfers.new_address(self)
        self.unit = world.provisioning.new_unit()
        self.clear()
        super().__init__(world, tenants)

    def clear(self) -> None:
        self.queue: List[Job] = []
        self.running: Dict[int, Job] = {}
        self.suspended: Dict[int, NestedClient] = {}
        self.reports: List[Report] = []
        self.reported: List[Report] = []
        self.calls: Dict[int, List[Job]] = {}  # that wait, by actor
        self.busy_actors: Set[int] = set()
        self.lost_actors: Set[int] = set()
        self.whole: Set[int] = set()
        self.kept: Dict[int, bytes] = {}  # results that stay here
        self.broken: Set[int] = set()
        self.transfers = WorkerTransfers(self)
        self.is_asking = self.is_draining = False
        self.handed_over: Set[int] = set()  # of the kept results

    def hello(self) -> m.Hello:
        hello = super().hello()
        hello.slots = self.slots
        hello.features = [KEPT_RESULTS, DRAIN_REQUESTS]
        hello.queue_size = 5
        hello.unit = self.unit
        if self.slots == 1 and not self.gpu:
            hello.codecs, hello.functions = ["json"], ["fast", "m*"]  # others serve all: they list nothing
        if self.world.actors.random.random() < 0.8 or self.world.is_calm:
            hello.features = [ACTORS, KEPT_RESULTS, DRAIN_REQUESTS]
        if self.data_address:
            hello.features.append(PEER_FETCH)
            hello.data_address = self.data_address
        hello.capabilities = [m.Capability(name="gpu", amount=self.gpu)] if self.gpu else []
        return hello

    def heartbeat(self) -> m.Heartbeat:
        return m.Heartbeat(processors=[m.ProcessorStatus(suspended=True)] * len(self.suspended))

    def on_joined(self) -> None:
        pass

    def on_session_ended(self) -> None:
        self.end_nested()
        self.clear()

    def on_died(self) -> None:
        self.end_nested()
        self.clear()

    def end_nested(self) -> None:
        nested, self.suspended, self.running = list(self.suspended.values()), {}, {}
        for client in nested:
            client.die()

    def is_busy(self) -> bool:
        """Whether it has work, or holds or fetches objects."""
        return bool(
            self.running
            or self.queue
            or any(self.calls.values())
            or self.reports
            or self.whole
            or self.broken
            or self.fetches
        )

    # Tasks ----------------------------------------------------------------------------------------------------------

    def on_task(self, message: m.Task, payload: bytes) -> None:
        counts = message.dependency_counts or [0] * len(message.ids)
        offset = first = 0
        for instance, size, count in zip(message.ids, message.payload_sizes, counts):
            needed = tuple(message.dependencies[first : first + count])
            known = self.whole | self.broken | set(self.fetches)
            assert known.issuperset(needed), "objects are announced before the tasks that need them"
            assert not message.function or message.function in known
            inputs, own = inputs_and_own_payload(payload[offset : offset + size], needed, self.world.results)
            job = Job(instance, message.client, own, needed, result_content(own, inputs))
            if message.options.actor:
                job = job._replace(needed=(*needed, message.function), actor=message.function)
                self.calls.setdefault(message.function, []).append(job)
            else:
                self.queue.append(job)
            offset, first = offset + size, first + count
        assert offset == len(payload)
        self.start_some()

    def start_some(self) -> None:
        """Run what can run in the free slots, first come first served."""
        self.start_calls()
        if self.is_asking and self.queue:
            self.give_back(self.era, len(self.queue), 0)
        for job in list(self.queue):
            if len(self.running) - len(self.suspended) >= self.slots or job not in self.queue:
                break  # none is free, or it was started while we ended another
            if not (self.whole | self.broken).issuperset(job.needed):
                continue  # its objects are on their way
            self.queue.remove(job)
            self.start(job)
            if not self.broken.isdisjoint(job.needed):
                self.end(job, FAILED, b"object missing")
            elif job.payload.startswith(b"parent"):
                self.nest(job)
            else:
                self.world.after(self.duration(job.payload), partial(self.complete, job))

    def start(self, job: Job) -> None:
        self.running[job.instance] = job
        started = (job.client, job.payload)
        self.world.starts[started] = self.world.starts.get(started, 0) + 1

    def start_calls(self) -> None:
        """Run the next call of each actor that is idle."""
        for function, calls in self.calls.items():
            if function in self.lost_actors:
                self.report_lost(function)
                continue
            is_free = len(self.running) - len(self.suspended) < self.slots
            if not calls or function in self.busy_actors or not is_free:
                continue
            if not (self.whole | self.broken).issuperset(calls[0].needed):
                continue  # the next ones wait behind it
            job = calls.pop(0)
            self.busy_actors.add(function)
            self.start(job)
            self.world.actors.starts(function, self, job.client, job.payload)
            delay = self.world.actors.random.choice((0.0, 0.001, 0.2))
            self.world.after(delay, partial(self.complete_call, job))

    def complete_call(self, job: Job) -> None:
        if self.running.get(job.instance) is not job:
            return
        if self.world.chance(self.world.rates.processor_death):
            self.lose_actor(job.actor)
            self.end(job, LOST, encode_struct(m.Failure(kind=m.FailureKind.ACTOR_LOST)))
        elif not self.broken.isdisjoint(job.needed):
            self.end(job, FAILED, b"object missing")
        else:
            self.complete(job)

    def lose_actor(self, function: int) -> None:
        """The processor of an actor ends."""
        self.busy_actors.discard(function)
        self.lost_actors.add(function)
        self.world.actors.lost.add(function)

    def report_lost(self, function: int) -> None:
        """Calls of a lost actor end."""
        calls, self.calls[function] = self.calls[function], []
        for job in calls:
            self.running[job.instance] = job
        for job in calls:
            self.end(job, LOST, encode_struct(m.Failure(kind=m.FailureKind.ACTOR_LOST)))

    def duration(self, payload: bytes) -> float:
        if payload.startswith(b"fast"):
            return 0.0001
        return self.random.choice((0.001, 1.0)) if payload.startswith(b"mixed") else self.random.uniform(0.1, 1.0)

    def nest(self, job: Job) -> None:
        words = job.payload.split()
        depth = int(words[1]) + 1 if len(words) == 3 else 1

        def done(is_well: bool) -> None:
            if self.suspended.pop(job.instance, None) is not None:
                self.send(self.heartbeat())
                self.complete(job) if is_well else self.end(job, FAILED, b"nested tasks failed")

        self.suspended[job.instance] = NestedClient(self.world, depth, done, self.tenant_of(job))
        self.send(self.heartbeat())

    def tenant_of(self, job: Job) -> str:
        """Whose key a client in the task has: its own client's, or its worker's if that is gone."""
        state = self.world.core.state
        return (
            state.clients[job.client].tenant
            if job.client in state.clients
            else self.world.tenants_random.choice(TENANTS)
        )

    def complete(self, job: Job) -> None:
        if self.running.get(job.instance) is not job:
            return  # killed meanwhile
        if self.world.chance(self.world.rates.processor_death):
            self.end(job, LOST, encode_struct(m.Failure(kind=m.FailureKind.PROCESSOR_DIED)))
        elif self.random.random() < 0.1 or (self.data_address and self.world.transfers.has_large_result()):
            content = b"large result of " + job.content
            object_id = self.new_object_id()
            self.world.results[object_id] = content
            if self.keeps(job):
                self.kept[object_id] = content
                self.whole.add(object_id)
                self.create(object_id, content, m.ObjectStorage.KEPT)
            else:
                self.world.files[object_id] = bytearray(content)
                self.create(object_id, content, m.ObjectStorage.SHARED)
            self.end(job, SUCCESS, b"", object_id)
        else:
            self.end(job, SUCCESS, b"result of " + job.content)

    def keeps(self, job: Job) -> bool:
        """Whether a large result stays here. That of a node which no client waits for does not, unless no worker can be
        lost: then it would be made again, which the simulation of whole systems judges."""
        if self.is_asking:
            return False  # it would be fetched before it is reported
        rate, is_safe = self.world.kept_rate, self.world.transfers.loses_no_worker
        is_wanted = self.world.checker.is_wanted(self.link.name, job.instance)
        return (rate > 0.0 and is_wanted and self.world.keeps(rate)) or bool(self.data_address and is_safe)

    def on_object_request(self, message: m.ObjectRequest, payload: bytes) -> None:
        content = self.kept.get(message.id)
        if content is None:
            self.send(m.ObjectResponse(id=message.id, offset=message.offset, status=m.ObjectResponseStatus.MISSING))
        else:
            chunk = content[message.offset : message.offset + message.length]
            self.send(m.ObjectResponse(id=message.id, offset=message.offset, size=len(content)), chunk)
            if message.offset + len(chunk) >= len(content):
                self.handed_over.add(message.id)
                self.leave_if_drained()

    def end(self, job: Job, status: int, data: bytes, large: int = 0) -> None:
        del self.running[job.instance]
        self.busy_actors.discard(job.actor)
        self.reports.append(Report(job.instance, status, data, large))
        if len(self.reports) == 1:
            era = self.era
            self.world.after(self.random.choice((0.0, 0.001, 0.1)), lambda: self.report(era))
        self.start_some()

    def report(self, era: int) -> None:
        """Send the results that have gathered, and sometimes old ones again."""
        if not self.reports or era != self.era:
            return
        reports, self.reports = self.reports, []
        self.reported += reports
        if self.world.chance(self.world.rates.duplicate):
            reports = reports + self.random.choices(self.reported, k=2)
            self.random.shuffle(reports)
        message = m.TaskResult(
            ids=column([report.instance for report in reports]),
            statuses=bytes(report.status for report in reports),
            objects=column([report.large for report in reports]),
            busy_microseconds=self.random.choice((0, 100, 1_000_000)) * len(reports),
        )
        message.payload_sizes.extend(len(report.data) for report in reports)
        self.send(message, b"".join(report.data for report in reports))
        self.leave_if_drained()

    # Draining -------------------------------------------------------------------------------------------------------

    def ask_to_drain(self) -> None:
        """It is to leave: what it has not begun goes back, and what runs may end."""
        self.report(self.era)
        self.is_asking = True
        cause = self.world.leaving_random.choice(list(m.DrainCause))
        self.send(m.DisconnectRequest(reason=m.DisconnectReason.DRAINING, message="it is told to", drain_cause=cause))
        self.start_some()
        era = self.era
        self.world.after(self.world.leaving_random.choice((1.0, 5.0, 25.0)), lambda: self.leave_late(era))

    def leave_late(self, era: int) -> None:
        """Its time to drain is over."""
        if self.is_alive and era == self.era:
            self.send(m.DisconnectRequest(message="its time is over"))
            self.die()

    def on_refused(self, message: object) -> None:
        is_told = isinstance(message, m.DisconnectRequest) and message.reason == m.DisconnectReason.DRAINING
        if is_told and (self.is_asking or self.unit):
            self.is_asking = self.is_draining = True  # what it has not begun goes back
            self.start_some()
            self.leave_if_drained()
        else:
            super().on_refused(message)

    def leave_if_drained(self) -> None:
        """Leave once there are no tasks and no actors, and what is kept is handed over."""
        has_tasks = self.running or self.queue or self.reports or self.calls
        if self.is_draining and self.is_alive and not (has_tasks or self.kept.keys() - self.handed_over):
            self.send(m.DisconnectResponse())
            self.die()

    def on_task_cancel(self, message: m.TaskCancel, payload: bytes) -> None:
        era = self.era
        self.world.after(self.random.choice((0.0, 0.5)), lambda: self.cancel(era, message))
        if self.world.chance(self.world.rates.give_back):  # which crosses the cancel
            self.give_back(era, self.random.choice((1, 3, 10)), 0)

    def cancel(self, era: int, message: m.TaskCancel) -> None:
        if era != self.era:
            return
        self.report(era)  # what is done is told before a cancel of it is answered
        outcomes = bytes(self.cancel_one(instance, message.force) for instance in message.ids)
        self.send(m.TaskCancelConfirm(ids=message.ids, outcomes=outcomes))
        self.start_some()
        self.leave_if_drained()

    def cancel_one(self, instance: int, force: bool) -> Outcome:
        for job in self.queue:
            if job.instance == instance:
                self.queue.remove(job)
                return Outcome.CANCELLED
        for calls in self.calls.values():
            for job in calls:
                if job.instance == instance:
                    calls.remove(job)
                    return Outcome.CANCELLED
        if instance not in self.running:
            return Outcome.NOT_FOUND
        if not force:
            return Outcome.RUNNING
        job = self.running.pop(instance)
        if job.actor:
            self.lose_actor(job.actor)
        nested = self.suspended.pop(instance, None)
        if nested is not None:
            nested.die()
            self.send(self.heartbeat())
        return Outcome.CANCELLED

    def on_balance_request(self, message: m.BalanceRequest, payload: bytes) -> None:
        era = self.era
        self.world.after(self.random.choice((0.0, 0.3)), lambda: self.give_back(era, message.count, message.request_id))

    def give_back(self, era: int, count: int, request_id: int) -> None:
        """Give back tasks that have not started, the newest of them."""
        if era != self.era:
            return
        given, self.queue = self.queue[-count:], self.queue[:-count]
        ids = [job.instance for job in given]
        self.random.shuffle(ids)
        self.send(m.BalanceResponse(request_id=request_id, ids=column(ids)))

    def misfortune(self) -> None:
        super().misfortune()
        rate = self.world.drain_rate
        if self.session and not self.is_asking and self.world.leaving_random.random() < rate:
            self.ask_to_drain()
        if self.session and self.world.chance(self.world.rates.give_back):
            self.give_back(self.era, self.random.choice((1, 3, 10)), 0)

    # Objects --------------------------------------------------------------------------------------------------------

    def on_ticket(self, message: m.Ticket, payload: bytes) -> None:
        self.transfers.on_ticket(message)

    def on_object_instruction(self, message: m.ObjectInstruction, payload: bytes) -> None:
        if message.action == m.ObjectAction.DELETE:
            for object_id in message.ids:
                assert object_id in self.whole | self.broken | set(self.fetches), (
                    "the end of an unknown object was announced"
                )
                self.whole.discard(object_id)
                self.broken.discard(object_id)
                self.kept.pop(object_id, None)
                self.fetches.pop(object_id, None)
            self.queue = [job for job in self.queue if not set(job.needed) & set(message.ids)]
            for function in self.calls.keys() & set(message.ids):
                self.end_actor(function)
            self.start_some()  # in the slots of the calls that have ended
            self.leave_if_drained()
            return
        offset = 0
        for object_id, size, storage in zip(message.ids, message.sizes, message.storages):
            if storage == m.ObjectStorage.INLINE:
                assert payload[offset : offset + size] == content_of(object_id)
                offset += size
                self.whole.add(object_id)
            elif storage == m.ObjectStorage.HELD:
                assert self.data_address, "a worker without transfers is told to fetch from others"
                self.transfers.begin(object_id, size)
            else:
                self.fetch(object_id, size)
        assert offset == len(payload)

    def end_actor(self, function: int) -> None:
        """Its object is gone, and no client waits for outcomes of its calls."""
        del self.calls[function]
        self.busy_actors.discard(function)
        self.lost_actors.discard(function)
        for job in [each for each in self.running.values() if each.actor == function]:
            del self.running[job.instance]
        self.world.actors.lost.add(function)

    def on_fetched(self, object_id: int, content: Optional[bytes]) -> None:
        assert content is None or content == self.world.results.get(object_id, content_of(object_id))
        (self.broken if content is None else self.whole).add(object_id)
        self.start_some()
