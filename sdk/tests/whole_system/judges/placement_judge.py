"""Whether the scheduler places tasks fairly and in time, judged from the messages alone.

    clients' messages ──▶ what waits ──┐
    workers' messages ──▶ what is there ┴─▶ each tick: who got something, and who should have

Rules:
- Nothing of the core is read: a task waits from its submission until it is sent to a worker or has an outcome; it is at
  a worker until the worker has reported it, given it back, or confirmed that it is cancelled.
- What a tick itself decides is known at its end only, such as which tasks are rejected: who came in a tick has a claim
  from the next tick on.
- Clients take turns of `prefetch_seconds` / 2 of work, and one that comes has the next turn: see `turns`.
- Requirement classes of one priority take turns at free slots; a higher priority goes first. Classes of different
  tenants are not compared.
- While tasks of a tenant wait, others get at shared workers no more than what puts them ahead of it by a turn of each,
  divided by their weights: see `shares`. It is not judged where tasks of one tenant may be able to run and those of
  another not.
- A free slot takes a task that waits, in the same tick. If none waits, workers with tasks behind others are asked for
  them. A slot of a distant worker may stay free for a while if near workers take tasks: they may have done them before
  a message has gone there and back. So may a slot of a slow worker, if a quicker one is near: see `preferences`. Large
  tasks may wait for memory, and others do not wait for them then: see `large_tasks`.
- A worker that fetches from others may have a task more for each slot: those whose bytes are on their way stay there.
- A worker with blocked tasks gets nested ones: see `blocked_workers`.
- A peer is lost after the time-out of its role, neither sooner nor much later.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Set, Tuple

from whole_system.judges.blocked_workers import nested_task_passed_over
from whole_system.judges.judged_peers import AtWorker, JudgedClient, JudgedWorker, TaskClass
from whole_system.judges.large_tasks import LargeTasks
from whole_system.judges.preferences import Preferences
from whole_system.judges.shares import Shares
from whole_system.judges.turns import Claim
from whole_system.tenants import OWNER, Key, Limits
from whole_system.user_tasks import key_of, split

from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import ANY_TENANT

SHORTEST_MICROSECONDS = 0.5
TIMER_SECONDS = 1.0
TIMERS_UNTIL_ASKED = 3  # after which a worker is asked to give tasks back


class Overtaken(NamedTuple):
    """A client that should have had its turn, unless the tick turns out to have ended its tasks."""

    client: JudgedClient
    task_class: TaskClass
    by: int


class PlacementJudge:
    """Judges one scheduler.

    Parameters:
        bytes_limit: of large results of a client, above which its tasks are held; 0: none.
        limits: of tenants.
        is_shared_fairly: whether to judge what tenants get at shared workers.
        most_queued: tasks for each slot that a worker is sent at most.
        spread_bytes: of objects that workers fetch which do not see the scheduler's files.
        paces_of: how many times as long tasks take at a worker as at others, by function, as the scheduler says.
    """

    def __init__(
        self,
        prefetch_seconds: float,
        bytes_limit: int,
        client_timeout_seconds: float,
        worker_timeout_seconds: float,
        limits: Sequence[Limits] = (),
        is_shared_fairly: bool = False,
        most_queued: int = 1000,
        spread_bytes: int = 1 << 20,
        paces_of: Callable[[int], Dict[object, float]] = lambda _: {None: 1.0},
    ) -> None:
        self._turn_microseconds = prefetch_seconds * 1e6 / 2
        self._limits = {each.name: each for each in limits}
        self._with_quotas = {each.name for each in limits if each.maximum_running >= 0}
        is_judged = is_shared_fairly and not self._with_quotas
        self._shares = Shares(limits, self._turn_microseconds) if is_judged else None
        self._keys: Dict[bytes, Key] = {}  # by name of the connection
        self._bytes_limit, self._most_queued, self._spread_bytes = bytes_limit, most_queued, spread_bytes
        self._timeouts_seconds = (client_timeout_seconds, worker_timeout_seconds)
        self._hellos: Dict[bytes, Tuple[m.Hello, float]] = {}  # and when they came: a life is counted from then
        self._clients: Dict[int, JudgedClient] = {}  # by session
        self._clients_by_name: Dict[bytes, JudgedClient] = {}
        self._workers: Dict[bytes, JudgedWorker] = {}
        self._told_seconds: Dict[bytes, float] = {}  # how long each may be silent
        self._heard_at: Dict[bytes, float] = {}
        self._worked_for_at: Dict[bytes, float] = {}
        self._sizes: Dict[int, int] = {}  # of workers' objects
        self._kept: Set[int] = set()  # those of these that their workers keep
        self._fetched_first: Dict[int, int] = {}  # by object, which is on its way: the instance that returned it
        self._shortest: Dict[object, float] = {}  # mean microseconds, by function
        self._rivals: Dict[TaskClass, Set[TaskClass]] = {}  # served since this class was, which waited
        self._served: Dict[TaskClass, None] = {}  # in this tick
        self._perhaps_served: Set[TaskClass] = set()  # a large task was placed, in its turn or in that of such tasks
        self._served_slots: List[Tuple[TaskClass, Set[TaskClass]]] = []  # with those that fitted there, too
        self._overtaken: List[Overtaken] = []
        self._without_turns: Set[JudgedClient] = set()  # they lost theirs in this tick
        self._given_back: Dict[int, AtWorker] = {}  # by key, until they are at a worker again
        self._lost: Set[int] = set()  # keys of tasks that were at a worker that is gone
        self._now = self._placed_near_at = 0.0
        self._ticked_at = self._timer_at = self._stood_still_until = 0.0
        self._timers_due = 0
        self._paces_of = paces_of
        self._preferences = Preferences(self._workers, prefetch_seconds)
        self._large = LargeTasks()

    # What the scheduler receives ------------------------------------------------------------------------------------

    def on_authenticated(self, name: bytes, key: Key) -> None:
        self._keys[name] = key

    def on_received(self, now: float, name: bytes, message: Any, payload: bytes) -> None:
        self._heard_at[name] = now
        if isinstance(message, m.Hello):
            self._hellos[name] = message, now
        elif name in self._clients_by_name:
            self._on_client(self._clients_by_name[name], message, payload)
        elif name in self._workers:
            self._on_worker(self._workers[name], message, payload)
        if self._large.has_more:
            self._large.drop_from(self._clients.values())

    def _on_client(self, client: JudgedClient, message: Any, payload: bytes) -> None:
        if isinstance(message, m.Task):
            self._on_submitted(client, message, payload)
        elif isinstance(message, m.GraphTask):
            keys = _keys(message.payload_sizes, payload)
            for position in message.targets:
                client.keys[message.ids[position]] = keys[position]
        elif isinstance(message, m.TaskCancel):
            for task_id in message.ids:
                if task_id in client.keys:
                    client.drop(client.keys[task_id])
        elif isinstance(message, m.ObjectInstruction):
            if message.action == m.ObjectAction.DELETE:
                for object_id in message.ids:
                    client.large_bytes.pop(object_id, None)
            elif message.action == m.ObjectAction.CLEAR:
                client.large_bytes.clear()
            self._lose_turns(client, is_active=message.action == m.ObjectAction.CREATE)

    def _on_submitted(self, client: JudgedClient, message: m.Task, payload: bytes) -> None:
        if message.options.actor:
            client.keys.update(zip(message.ids, _keys(message.payload_sizes, payload)))
            return
        task_class = TaskClass.of(message, client.tenant)
        function = message.function or message.function_name
        self._preferences.on_submitted(task_class)
        self._large.on_submitted(function, message.options)
        needs_others = message.predecessor_counts or bytes(len(message.ids))
        for task_id, key, count in zip(message.ids, _keys(message.payload_sizes, payload), needs_others):
            client.keys[task_id] = key
            if not count:
                self._add(client, task_class, key, function)

    def _add(self, client: JudgedClient, task_class: TaskClass, key: int, function: object) -> None:
        """A task waits."""
        client.classes[key], client.functions[key] = task_class, function
        if self._large.may_wait(function):
            return
        if not client.waits_for(task_class):
            client.claims.pop(
                task_class, None
            )  # of tasks that have all ended in this tick: the client gave up its turn
            self._on_came(client.session, task_class)
        client.claims.setdefault(task_class, Claim(self._turn_microseconds)).fresh_keys.add(key)

    def _on_came(self, comer: int, task_class: TaskClass) -> None:
        for client in self._clients.values():
            if client.session != comer and task_class in client.claims:
                client.claims[task_class].on_came(comer)

    def _on_worker(self, worker: JudgedWorker, message: Any, payload: bytes) -> None:
        if isinstance(message, m.TaskResult):
            self._on_results(worker, message)
        elif isinstance(message, m.BalanceResponse):
            if message.request_id == worker.request:
                worker.request = None
            self._give_back([worker.tasks.pop(each) for each in message.ids if each in worker.tasks])
        elif isinstance(message, m.TaskCancelConfirm):
            for instance, outcome in zip(message.ids, message.outcomes):
                if outcome == m.CancelOutcome.CANCELLED:
                    worker.tasks.pop(instance, None)
        elif isinstance(message, m.ObjectResponse):
            if message.status != m.ObjectResponseStatus.OK or message.offset + len(payload) >= message.size:
                self._on_fetched(worker, message.id)
        elif isinstance(message, m.Heartbeat):
            worker.on_heartbeat(message)
            self._large.on_heartbeat(worker, message)
        elif isinstance(message, m.ObjectInstruction) and message.action != m.ObjectAction.CREATE:
            worker.on_fetched(message.ids, are_there=message.action == m.ObjectAction.HOLD)
        elif isinstance(message, m.ObjectInstruction):
            self._sizes.update(zip(message.ids, message.sizes))
            self._kept.update(_kept_of(message))

    def _on_results(self, worker: JudgedWorker, message: m.TaskResult) -> None:
        measured = max(SHORTEST_MICROSECONDS, message.busy_microseconds / (len(message.ids) or 1))
        objects = message.objects or bytes(len(message.ids))
        for instance, object_id in zip(message.ids, objects):
            task = worker.tasks.get(instance)
            if task is None:
                continue
            mean = measured / worker.pace_of(task.function)
            self._preferences.on_measured(mean / 1e6)
            if self._shares is not None:
                self._shares.on_measured(task.task_class.tenant, mean)
            self._large.on_measured(task.function, measured)
            self._shortest[task.function] = min(mean, self._shortest.get(task.function, self._turn_microseconds))
            owner = self._clients.get(task.client)
            if object_id in self._kept and owner is not None and task.key in owner.keys.values():
                self._fetched_first[object_id] = instance  # until then it takes its slot
                continue
            del worker.tasks[instance]
            if object_id and owner is not None and task.key in owner.keys.values():
                owner.large_bytes[object_id] = self._sizes.pop(object_id, 0)

    def _on_fetched(self, worker: JudgedWorker, object_id: int) -> None:
        """The scheduler has all of an object; if it waited for that, it takes the outcome now."""
        task = worker.tasks.pop(self._fetched_first.pop(object_id, 0), None)
        client = None if task is None else self._clients.get(task.client)
        if task is not None and client is not None and task.key in client.keys.values():
            client.large_bytes[object_id] = self._sizes.pop(object_id, 0)

    def _give_back(self, tasks: Iterable[AtWorker]) -> None:
        self._given_back.update((task.key, task) for task in tasks)

    def on_congestion(self, name: bytes, is_congested: bool) -> None:
        peer = self._clients_by_name.get(name) or self._workers.get(name)
        if peer is not None:
            peer.is_congested = is_congested
        if isinstance(peer, JudgedClient):
            self._lose_turns(peer)

    def _lose_turns(self, client: JudgedClient, is_active: bool = False) -> None:
        """
        Parameters:
            is_active: it is neither held nor congested, at least not more than before.
        """
        client.lose_turns()
        self._without_turns.add(client)
        if self._shares is not None and not is_active:
            self._shares.forget()

    # What the scheduler sends, in order -----------------------------------------------------------------------------

    def on_sent(self, now: float, name: bytes, message: Any, payload: bytes) -> None:
        self._now = now
        if isinstance(message, m.Welcome):
            self._on_welcome(name, message)
        elif isinstance(message, m.Refusal):
            if message.message.startswith("no heartbeat"):
                silence_seconds, most = now - self._heard_at[name], self._told_seconds[name]
                assert silence_seconds > most, f"{name!r} is lost after {silence_seconds:.1f} s, which may be {most}"
        elif name in self._workers:
            self._on_sent_to_worker(self._workers[name], message, payload)
        elif name in self._clients_by_name:
            self._on_sent_to_client(self._clients_by_name[name], message)

    def _on_welcome(self, name: bytes, welcome: m.Welcome) -> None:
        hello, came_at = self._hellos.pop(name)
        told_seconds = self._told_seconds[name] = welcome.timeout_milliseconds / 1000
        is_beside_worker = any(worker.host == hello.host for worker in self._workers.values())
        is_worker = hello.role == m.Role.WORKER
        most = self._timeouts_seconds[is_worker] if is_worker or not is_beside_worker else min(self._timeouts_seconds)
        assert told_seconds == most, f"{name!r} expects {told_seconds} s"
        if is_worker:
            key, paces = self._keys.get(name, OWNER), partial(self._paces_of, welcome.session)
            self._workers[name] = JudgedWorker(hello, key, came_at, self._most_queued, paces)
        else:
            client = JudgedClient(welcome.session, self._keys.get(name, OWNER).tenant)
            self._clients_by_name[name] = self._clients[welcome.session] = client

    def _on_sent_to_client(self, client: JudgedClient, message: Any) -> None:
        if isinstance(message, m.TaskResult):
            for task_id in message.ids:
                client.drop(client.keys.pop(task_id))
        elif isinstance(message, m.TaskCancelConfirm):
            for task_id, outcome in zip(message.ids, message.outcomes):
                is_open = task_id in client.keys
                if outcome == m.CancelOutcome.CANCELLED:
                    client.drop(client.keys.pop(task_id))
                elif outcome == m.CancelOutcome.NOT_FOUND:
                    assert not is_open, f"task {task_id} is not found, and has no outcome"
                else:
                    assert is_open, f"task {task_id} runs, they say, and has an outcome"

    def _on_sent_to_worker(self, worker: JudgedWorker, message: Any, payload: bytes) -> None:
        if isinstance(message, m.Task):
            self._on_placed(worker, message, _keys(message.payload_sizes, payload))
        elif isinstance(message, m.TaskCancel) and message.force:
            worker.ending.update(message.ids)
        elif isinstance(message, m.BalanceRequest):
            assert message.count, "a worker is asked to give nothing back"
            worker.request = message.request_id
            self._timers_due = 0
        elif isinstance(message, m.DisconnectRequest):
            worker.is_leaving = True
        else:
            worker.on_sent(message, len(payload), self._spread_bytes)

    def _on_placed(self, worker: JudgedWorker, message: m.Task, keys: List[int]) -> None:
        taker = message.client
        owner = self._clients.get(taker)
        task_class = TaskClass.of(message, OWNER.tenant if owner is None else owner.tenant)
        function = message.function or message.function_name
        if message.options.actor:
            worker.has_calls = True
            for instance, key in zip(message.ids, keys):
                worker.tasks[instance] = AtWorker(taker, key, function, task_class, True)
            return
        self._large.on_submitted(function, message.options)  # nodes of graphs have not been seen before
        is_large = self._large.may_wait(function)
        if owner is None or not owner.waits_for(task_class):
            self._on_came(taker, task_class)
        microseconds = len(keys) * self._shortest.get(function, self._turn_microseconds)
        is_anyones_turn = self._preferences.depend_on_functions
        for client in self._clients.values():
            claim = client.claims.get(task_class)
            if claim is None or client.session == taker:
                continue
            if is_large:
                claim.on_large(taker)
            elif not claim.keys or self._is_held(client) or is_anyones_turn:
                claim.passings.clear()
            elif not claim.on_passed(taker, microseconds):
                self._overtaken.append(Overtaken(client, task_class, taker))
        if owner is not None:
            for key in keys:
                owner.drop(key)
            if task_class in owner.claims:
                owner.claims[task_class].passings.clear()
        if is_large:
            self._perhaps_served.add(task_class)
        else:
            self._served[task_class] = None
        self._preferences.on_placed(task_class)
        if not worker.distance_seconds:
            self._placed_near_at = self._now
        worker.now = self._now
        if worker.has_free_slot and not (
            is_large or worker.distance_seconds or self._preferences.is_second_choice(worker)
        ):
            self._served_slots.append((task_class, {each for each in self._rivals if worker.fits(each)}))
        if self._shares is not None and worker.key.tenant == ANY_TENANT:
            has_blocked = worker.slots > worker.own_slots
            self._shares.on_placed(task_class.tenant, microseconds, has_blocked, self._spared_tenants(worker))
        for instance, key in zip(message.ids, keys):
            self._given_back.pop(key, None)
            worker.tasks[instance] = AtWorker(taker, key, function, task_class)
        if len(message.ids) == 1:
            worker.awaited[message.ids[0]] = worker.to_fetch.intersection(message.dependencies)

    def _spared_tenants(self, worker: JudgedWorker) -> Set[str]:
        """The tenants whose tasks all workers can run, if near ones will have run the rest before this one could, or if
        it is slow."""
        workers = self._workers.values()
        near_slots = sum(each.slots for each in workers if not each.distance_seconds)
        bound = {each.key.tenant for each in workers} - {ANY_TENANT}
        if self._preferences.is_second_choice(worker):
            return {name for name in self._limits if bound <= {name}}
        most = worker.distance_seconds * 1e6 * near_slots / self._turn_microseconds
        return {name for name in self._limits if bound <= {name} and self._waiting_of(name) < most}

    def _waiting_of(self, tenant: str) -> int:
        claims = (item for client in self._clients.values() for item in client.claims.items())
        return sum(len(claim.keys) for task_class, claim in claims if task_class.tenant == tenant)

    def on_more_work(self, now: float, is_working_for: Callable[[bytes], bool]) -> None:
        """The scheduler goes on: a peer whose message is worked on is not silent, as its heartbeats may wait."""
        for name in (*self._workers, *self._clients_by_name):
            if is_working_for(name):
                self._worked_for_at[name] = now

    def on_forgotten(self, name: bytes) -> None:
        """A session has ended."""
        self._worked_for_at.pop(name, None)
        client = self._clients_by_name.pop(name, None)
        if client is not None:
            del self._clients[client.session]
        worker = self._workers.pop(name, None)
        if worker is not None:
            self._give_back(worker.tasks.values())
            self._lost.update(task.key for task in worker.tasks.values())

    # What is so when a tick has ended -------------------------------------------------------------------------------

    def on_tick(self, now: float, is_of_parts: bool) -> None:
        """All messages of a tick are sent.

        Parameters:
            is_of_parts: whether the scheduler needed several calls until there was nothing left to do at once. Then a
                pass over the classes may have begun before a worker had room, and their order is not judged.
        """
        for worker in self._workers.values():
            worker.now = now
        without_turns, self._without_turns = self._without_turns if is_of_parts else set(), set()
        for client, task_class, by in self._overtaken:
            waits = self._clients.get(client.session) is client and client.claims[task_class].keys
            assert not waits or client in without_turns, f"client {client.session} waits, and {by} has a turn"
        self._overtaken.clear()
        for client in without_turns:
            client.lose_turns()  # in some part of the tick
        if self._served or self._perhaps_served:
            self._check_classes(set() if is_of_parts else set(self._waiting_classes()))
        if not is_of_parts:
            self._check_blocked_workers()
        if self._given_back:
            self._renew_claims()
        for client in self._clients.values():
            for task_class, claim in list(client.claims.items()):
                claim.keys |= claim.fresh_keys
                claim.fresh_keys.clear()
                if not claim.keys:
                    del client.claims[task_class]
        waiting = set(self._waiting_classes())
        if self._shares is not None:
            self._shares.on_tick(self._tenants_for_shared_workers(waiting), is_of_parts)
        self._rivals = {each: self._rivals.get(each) or set() for each in waiting}
        for worker in self._workers.values() if waiting else ():
            takes = worker.has_free_slot and not self._may_be_spared(worker, now)
            could_run = [each for each in waiting if takes and self._is_due(worker, each, now)]
            assert not could_run, f"{could_run[0]} waits, and a slot is free"
        self._preferences.on_tick(waiting, self._workers.values())
        if now > self._ticked_at + 2 * TIMER_SECONDS:  # the scheduler stood still
            self._stood_still_until = now
        self._ticked_at = now
        is_timer = now >= self._timer_at + TIMER_SECONDS
        if is_timer or self._timers_due:
            self._timers_due = self._timers_due + is_timer if self._is_balance_due() else 0
        if is_timer:
            self._timer_at = now
            assert self._timers_due <= TIMERS_UNTIL_ASKED, "a slot is free, tasks wait behind others: none is asked for"
            self._check_silence(now)

    def _is_due(self, worker: JudgedWorker, task_class: TaskClass, now: float) -> bool:
        """Whether a task that waits should have got a free slot of a worker."""
        return self._may_run(worker, task_class) and not self._preferences.may_spare(worker, task_class, now)

    def _may_be_spared(self, worker: JudgedWorker, now: float) -> bool:
        """Whether near workers may be about to do what a distant one could."""
        is_near = any(not each.distance_seconds for each in self._workers.values())
        spared_until = self._placed_near_at + worker.distance_seconds + 2 * TIMER_SECONDS
        return bool(worker.distance_seconds) and is_near and now <= spared_until

    def _renew_claims(self) -> None:
        """Tasks that came back wait again, unless they have an outcome by now."""
        for task in self._given_back.values():
            owner = self._clients.get(task.client)
            if owner is not None and task.key in owner.classes and task.key in owner.keys.values():
                self._add(owner, owner.classes[task.key], task.key, task.function)
        self._given_back.clear()

    def _may_run(self, worker: JudgedWorker, task_class: TaskClass) -> bool:
        """Whether a worker can take a task now, and its tenant may have one more."""
        limits = self._limits.get(task_class.tenant)
        if limits is not None and limits.maximum_running >= 0:
            tasks = [task for each in self._workers.values() for task in each.tasks.values()]
            if sum(task.task_class.tenant == task_class.tenant for task in tasks) >= limits.maximum_running:
                return False
        return worker.fits(task_class)

    def _is_held(self, client: JudgedClient) -> bool:
        return client.is_congested or 0 < self._bytes_limit <= sum(client.large_bytes.values())

    def _waiting_classes(self) -> Iterator[TaskClass]:
        for client in self._clients.values():
            if client.claims and not self._is_held(client):
                for task_class, claim in client.claims.items():
                    if claim.keys:
                        yield task_class

    def _tenants_for_shared_workers(self, waiting: Set[TaskClass]) -> Set[str]:
        """The tenants with a task that waits and could run at any shared worker: one that says how long it may run
        could not at a worker that leaves before, and goes to a free slot only."""
        shared = [worker for worker in self._workers.values() if worker.key.tenant == ANY_TENANT]
        has_end = any(worker.has_end for worker in shared)
        return {each.tenant for each in waiting if not (has_end and each.request_seconds)}

    def _check_classes(self, waiting: Set[TaskClass]) -> None:
        """
        Parameters:
            waiting: classes that have waited since before this tick.
        """
        for served, fitting in self._served_slots:
            for each in waiting.intersection(fitting).difference(self._served):
                is_passed_over = each.tenant == served.tenant and (
                    each.priority > served.priority or served in self._rivals[each]
                )
                assert not is_passed_over, f"{each} waits, and {served} gets a free slot once more"
        for each, rivals in self._rivals.items():
            if each in self._served or each in self._perhaps_served:
                rivals.clear()
            else:
                rivals.update(served for served in self._served if served.priority == each.priority)
        self._served.clear()
        self._perhaps_served.clear()
        self._served_slots.clear()

    def _check_blocked_workers(self) -> None:
        blocked = [worker for worker in self._workers.values() if worker.slots > worker.own_slots and worker.has_room]
        if not blocked:
            return
        waiting: Dict[TaskClass, bool] = {}
        for client in self._clients.values():
            for task_class, claim in client.claims.items() if not self._is_held(client) else ():
                if claim.keys and task_class.tenant not in self._with_quotas:
                    waiting[task_class] = waiting.get(task_class, False) or not claim.keys.isdisjoint(self._lost)
        passed_over = nested_task_passed_over(blocked, waiting)
        assert passed_over is None, passed_over

    def _is_balance_due(self) -> bool:
        """Whether tasks wait behind others although a slot is free for them, and for nothing else."""
        waiting = {task_class for client in self._clients.values() for task_class in client.claims}
        free = [worker for worker in self._workers.values() if worker.has_free_slot]
        idle = [worker for worker in free if not any(map(worker.fits, waiting))]
        return bool(idle) and any(
            len(donor.movable_tasks) > donor.slots + donor.slots_given_up
            and not (donor.is_leaving or donor.is_congested)
            and donor.request is None
            and any(worker.fits(each.task_class) for each in donor.movable_tasks for worker in idle)
            for donor in self._workers.values()
        )  # fmt: skip

    def _check_silence(self, now: float) -> None:
        for name in (*self._workers, *self._clients_by_name):
            heard_at = max(self._heard_at[name], self._worked_for_at.get(name, 0.0), self._stood_still_until)
            silence_seconds, most = now - heard_at, self._told_seconds[name] + TIMER_SECONDS
            assert silence_seconds <= most, f"{name!r} is silent for {silence_seconds:.1f} s, and not lost"


def _kept_of(message: m.ObjectInstruction) -> Set[int]:
    """The objects of which its sender keeps the bytes."""
    return {object_id for object_id, storage in zip(message.ids, message.storages) if storage == m.ObjectStorage.KEPT}


def _keys(sizes: Any, payload: bytes) -> List[int]:
    """What the tasks of a message are."""
    keys, offset = [], 0
    for size in sizes:
        keys.append(key_of(split(payload[offset : offset + size])[1]))
        offset += size
    return keys
