"""A judge beside the wire: sees each message that reaches or leaves the scheduler, and knows nothing of its insides.

What it holds the scheduler to:
- Each task that was accepted gets exactly one outcome while its client's session lasts, in the very round in which it
  is decided, or in which the last byte of a result came that its worker keeps. It is what a worker reported, or `lost`.
- A task is at one worker at a time, and never again once it has an outcome. An instance id is given once. What is heard
  of an instance that has ended, or whose worker or client is gone, does not count.
- A task that may run once is never given again once it may have started; attempts are counted as they happened.
- Each cancel is answered, and truthfully; a forced one reaches the worker, as does one for tasks of a client that left.
- No slot idles while a task waits that it could run; nothing is given to a worker that it has no room for. A worker
  that does not read is given nothing, nor are tasks of a client that does not.
- A node of a graph runs after its predecessors, with their results; a target whose predecessor has no result ends as
  that one did, and the client hears of no other nodes. When consequences are drawn is left to the scheduler.
- The same holds for tasks that need others. One is given back if what it needs is not known, or was told before.
- Calls of an actor go to one worker, in the order of each client, and to no other if that is lost.
- A task goes only to workers of its tenant, and to those of all. No peer gets, reads or uses another tenant's object.
- Objects are announced to a worker before it needs them, and their end once; a well-behaved peer is never refused.
"""

from __future__ import annotations

from typing import Callable, ClassVar, Container, Dict, List, Optional, Set, Tuple

from simulation import seen
from simulation.actors import ActorsSeen
from simulation.graphs import check_results, split_payload
from simulation.seen import CANCELLED, SUCCESS, Due, Node, Party, Task, is_told

from scaler_appliance.core.effects import PeerError
from scaler_protocol import decode_struct
from scaler_protocol import messages as m

Outcome, LOST = m.CancelOutcome, int(m.TaskStatus.LOST)
WORKER_LOST, OBJECT_MISSING = m.FailureKind.WORKER_LOST, m.FailureKind.OBJECT_MISSING
REJECTED, PREDECESSOR_GONE = m.FailureKind.REJECTED, m.FailureKind.PREDECESSOR_GONE
ACTOR_LOST = m.FailureKind.ACTOR_LOST
Reactions = Dict[type, Callable[..., None]]


class Checker:
    """Watches one scheduler. `on_` methods see what arrives before the scheduler does, `sent` what it answers.

    Parameters:
        timeout_seconds: after which silence a peer may be given up.
        maximum_attempts: how often a task is tried.
        has_waiting_limit: whether tasks may be rejected for being too many.
        tenants: of connections, as the scheduler was told; others are of one tenant together.
        most_running: how many tasks of a tenant may be at workers, if that is limited; may change, like `queue_limit`.
    """

    def __init__(
        self,
        timeout_seconds: float,
        maximum_attempts: int,
        has_waiting_limit: bool,
        tenants: Dict[bytes, str],
        most_running: Dict[str, int],
    ) -> None:
        self._tenants, self.most_running, self.queue_limit = tenants, most_running, 1000  # tasks for a slot
        self._object_tenants: Dict[int, str] = {}  # also of those that are gone
        self._timeout_seconds = timeout_seconds
        self._maximum_attempts = maximum_attempts
        self._has_waiting_limit = has_waiting_limit
        self._greetings: Dict[bytes, Tuple[float, m.Hello]] = {}
        self._parties: Dict[bytes, Party] = {}
        self._clients: Dict[int, Party] = {}
        self.workers: Dict[int, Party] = {}
        self._links: Set[bytes] = set()  # with a session when the round began
        self._given: Set[int] = set()
        self._waiting: Dict[Task, None] = {}
        self._due: Dict[Task, None] = {}
        self._answers_due: Set[Tuple[int, int]] = set()  # client session, task id
        self._cancels_due: Dict[Tuple[int, int], bool] = {}  # forced? by worker session, instance
        self._new: List[Task] = []
        self._held: Set[int] = set()  # objects
        self._is_stopping = False
        self._actors = ActorsSeen()
        self.outcomes = 0

    # What reaches the scheduler -------------------------------------------------------------------------------------

    def received(self, now: float, link: bytes, message: object, payload: bytes) -> None:
        """A message reaches the scheduler."""
        party = self._parties.get(link)
        if isinstance(message, m.Hello):
            if party is not None:
                self._end(party, is_fault=False)
            self._greetings[link] = now, message
        elif party is not None:
            party.last_heard = now
            if isinstance(message, (PeerError, m.Welcome, m.TaskEcho)):
                self._end(party, is_fault=True)
            else:
                reaction = self._RECEIVED.get(type(message))
                if reaction is not None:
                    reaction(self, party, message, payload)

    def congested(self, link: bytes, is_congested: bool) -> None:
        """The scheduler is told that a peer leaves much unread, or has read it."""
        if link in self._parties:
            self._parties[link].is_congested = is_congested

    def gone(self, link: bytes) -> None:
        """The scheduler is told that a connection does not exist any more."""
        party = self._parties.get(link)
        if party is not None:  # one that drains may break off
            self._end(party, is_fault=not party.is_asking)

    def shut_down(self) -> None:
        """The scheduler is told to stop."""
        self._is_stopping = True

    def _on_left(self, party: Party, message: object, payload: bytes) -> None:
        if not party.asks_to_drain(message):
            self._end(party, is_fault=False)

    def _on_heartbeat(self, party: Party, message: m.Heartbeat, payload: bytes) -> None:
        party.slots = party.hello_slots + sum(processor.suspended for processor in message.processors)

    def _on_task(self, client: Party, message: m.Task, payload: bytes) -> None:
        is_call = message.options.actor
        is_held = not is_call or self._has(client, {message.function})
        is_admitted = not is_call or self._actors.admit(client, message.function, message.options, is_held)
        counts = message.dependency_counts or [0] * len(message.ids)
        before = iter(message.predecessors)
        predecessor_counts = message.predecessor_counts or [0] * len(message.ids)
        offset = first = 0
        for task_id, size, count, predecessors in zip(message.ids, message.payload_sizes, counts, predecessor_counts):
            needed = set(message.dependencies[first : first + count])
            if message.function:
                needed.add(message.function)
            data = payload[offset : offset + size]
            if predecessors:
                known = [client.tasks.get(next(before)) for _ in range(predecessors)]
                task: Task = Node(client, task_id, data, message.options, needed, list(filter(None, known)), True)
            else:
                task = Task(client, task_id, data, message.options, needed)
            task.codec, task.name = message.codec, message.function_name
            offset, first = offset + size, first + count
            client.tasks[task_id] = task
            self._new.append(task)
            if is_call:
                task.call_of, task.need, task.once = message.function, None, True
            if not is_admitted:
                self._decide(task, Due(LOST, kind=ACTOR_LOST))
            elif not self._has(client, needed):
                self._decide(task, Due(LOST, kind=OBJECT_MISSING))
            elif not isinstance(task, Node):
                self._waiting[task] = None
            elif len(task.predecessors) < predecessors or any(is_told(each) for each in task.predecessors):
                self._decide(task, Due(LOST, kind=PREDECESSOR_GONE))

    def _on_graph_task(self, client: Party, message: m.GraphTask, payload: bytes) -> None:
        nodes: List[Node] = []
        offset = first = 0
        for position, task_id in enumerate(message.ids):
            size, count = message.payload_sizes[position], message.dependency_counts[position]
            needed = {message.functions[position], *message.dependencies[first : first + count]}
            before = message.predecessors[slice(*message.predecessor_offsets[position : position + 2])]
            node = Node(
                client,
                task_id,
                payload[offset : offset + size],
                message.options,
                needed,
                [nodes[each] for each in before],
                position in message.targets,
            )
            offset, first = offset + size, first + count
            nodes.append(node)
            client.tasks[task_id] = node
            self._new.append(node)
            if not self._has(client, needed):
                self._decide(node, Due(LOST, kind=OBJECT_MISSING))

    def _has(self, client: Party, needed: Set[int]) -> bool:
        """Whether a client's task may need these objects."""
        return needed <= self._held and all(self._object_tenants[each] == client.tenant for each in needed)

    def _on_task_cancel(self, client: Party, message: m.TaskCancel, payload: bytes) -> None:
        for task_id in message.ids:
            task = client.tasks.get(task_id)
            if task is not None and task.worker is not None:
                is_dropped = isinstance(task, Node) and task.is_dropped
                if message.force or not (task.is_cancelling or is_dropped):
                    key = task.worker.session, task.instance
                    self._cancels_due[key] = message.force or self._cancels_due.get(key, False)
                task.is_cancelling = task.is_asked = True
                continue
            self._answers_due.add((client.session, task_id))
            if isinstance(task, Node):
                task.is_asked = True
            elif task is not None and task in self._waiting:
                task.is_asked = True
                self._decide(task, Due(CANCELLED))

    def _on_objects(self, party: Party, message: m.ObjectInstruction, payload: bytes) -> None:
        if message.action == m.ObjectAction.CREATE:
            party.owned.update(message.ids)
            self._held.update(message.ids)
            self._object_tenants.update(dict.fromkeys(message.ids, party.tenant))
            party.keep(message)
        elif message.action in (m.ObjectAction.DELETE, m.ObjectAction.CLEAR):  # else about copies, which have no owner
            dropped = set(message.ids) if message.action == m.ObjectAction.DELETE else set(party.owned)
            self._held -= dropped & party.owned
            party.owned -= dropped

    def _on_task_result(self, worker: Party, message: m.TaskResult, payload: bytes) -> None:
        offset = 0
        for position, instance in enumerate(message.ids):
            size = message.payload_sizes[position]
            data, offset = payload[offset : offset + size], offset + size
            object_id = message.objects[position] if message.objects else 0
            task = worker.tasks.get(instance)
            due = Due(message.statuses[position] if message.statuses else SUCCESS, data, object_id)
            if task is not None and task.is_wanted and worker.has_still(object_id) and object_id in worker.owned:
                worker.fetched_first.setdefault(object_id, (task, due))  # which may be told twice
            else:
                self._take_outcome(worker, task, due)

    def _take_outcome(self, worker: Party, task: Optional[Task], due: Due) -> None:
        object_id = due.object_id
        if task is not None:
            self._close(task)
            self._decide(task, due)
            if object_id in worker.owned:
                self._object_tenants[object_id] = task.client.tenant
        if object_id in worker.owned:  # else it is announced again
            worker.owned.discard(object_id)
            (self._held.discard if task is None or not task.is_wanted else task.client.owned.add)(object_id)

    def _on_object_response(self, worker: Party, message: m.ObjectResponse, payload: bytes) -> None:
        task, due = worker.take_fetched(message, len(payload))
        if due is not None:
            self._take_outcome(worker, task, due)

    def _on_confirm(self, worker: Party, message: m.TaskCancelConfirm, payload: bytes) -> None:
        for instance, outcome in zip(message.ids, message.outcomes):
            task = worker.tasks.get(instance)
            if task is None:
                continue
            if outcome == Outcome.CANCELLED:
                self._close(task)
                self._decide(task, Due(CANCELLED))
                continue
            if isinstance(task, Node):
                task.is_dropped = False
            if task.is_cancelling:
                task.is_cancelling = False
                self._answers_due.add((task.client.session, task.id))

    def _on_balance_response(self, worker: Party, message: m.BalanceResponse, payload: bytes) -> None:
        for instance in message.ids:
            task = worker.tasks.get(instance)
            if task is not None:
                self._close(task)
                self._come_back(task)

    _RECEIVED: ClassVar[Reactions] = {
        m.DisconnectRequest: _on_left,
        m.DisconnectResponse: _on_left,
        m.Heartbeat: _on_heartbeat,
        m.Task: _on_task,
        m.GraphTask: _on_graph_task,
        m.TaskCancel: _on_task_cancel,
        m.ObjectInstruction: _on_objects,
        m.TaskResult: _on_task_result,
        m.ObjectResponse: _on_object_response,
        m.TaskCancelConfirm: _on_confirm,
        m.BalanceResponse: _on_balance_response,
    }

    def is_wanted(self, link: bytes, instance: int) -> bool:
        return link in self._parties and self._parties[link].has_wanted(instance)

    # What follows from it -------------------------------------------------------------------------------------------

    def _close(self, task: Task) -> None:
        """Its instance counts no more."""
        assert task.worker is not None
        self._cancels_due.pop((task.worker.session, task.instance), None)
        del task.worker.tasks[task.instance]
        task.worker = None

    def _decide(self, task: Task, due: Due) -> None:
        self._waiting.pop(task, None)
        task.due = due
        if task.is_wanted:
            self._due[task] = None
        else:
            task.outcome = due.status
        if task.is_cancelling:
            self._answers_due.add((task.client.session, task.id))

    def _come_back(self, task: Task) -> None:
        """It is at no worker any more, and has no outcome of one."""
        if task.is_cancelling:
            self._decide(task, Due(CANCELLED))
        elif not isinstance(task, Node):
            self._waiting[task] = None

    def _lose(self, task: Task, is_fault: bool) -> None:
        """It was at a worker whose session ended."""
        self._close(task)
        if task.call_of and not task.is_cancelling:
            self._decide(task, Due(LOST, kind=ACTOR_LOST))
            return
        if not task.is_cancelling and (is_fault or task.once):
            task.losses += 1
            limit = 1 if task.once else self._maximum_attempts
            if task.losses >= limit:
                self._decide(task, Due(LOST, kind=WORKER_LOST, attempts=limit))
                return
        self._come_back(task)

    def _end(self, party: Party, is_fault: bool) -> None:
        """A session ends."""
        del self._parties[party.link]
        self._held -= party.owned
        if party.is_worker:
            del self.workers[party.session]
            self._actors.lose(party)
            for task in list(party.tasks.values()):
                self._lose(task, is_fault)
            self._cancels_due = {key: force for key, force in self._cancels_due.items() if key[0] != party.session}
            return
        del self._clients[party.session]
        self._answers_due = {key for key in self._answers_due if key[0] != party.session}
        for task in party.tasks.values():
            self._waiting.pop(task, None)
            self._due.pop(task, None)
            if task.worker is not None:
                key = task.worker.session, task.instance
                self._close(task)
                self._cancels_due[key] = not task.call_of

    # What the scheduler sends ---------------------------------------------------------------------------------------

    def sent(self, now: float, link: bytes, message: object, payload: bytes) -> None:
        """The scheduler sends a message."""
        party = self._parties.get(link)
        if isinstance(message, m.Welcome):
            assert party is None
            since, hello = self._greetings.pop(link)
            party = self._parties[link] = Party(link, message.session, hello, since, self._tenants.get(link, ""))
            (self.workers if party.is_worker else self._clients)[party.session] = party
        elif isinstance(message, m.Refusal):
            if party is not None:
                silence_seconds = now - party.last_heard
                assert silence_seconds > self._timeout_seconds, f"{link!r} did no wrong: {message.message}"
                self._end(party, is_fault=True)
        elif isinstance(message, m.ObjectResponse):
            self._check_reader(link, message)
        elif isinstance(message, m.DisconnectRequest):
            assert seen.is_told_to_drain(party, message) or self._is_stopping
            if party is not None and not party.is_worker:
                self._end(party, is_fault=False)
        else:
            reaction = self._SENT.get(type(message))
            if reaction is not None and not (party is None and link in self._links and seen.crosses_an_end(message)):
                assert party is not None, f"{message} for a peer without session"
                reaction(self, party, message, payload)

    def _on_given(self, worker: Party, message: m.Task, payload: bytes) -> None:
        client = self._clients.get(message.client)
        assert client is not None, "a task of a client that has left is given to a worker"
        assert worker.serves(client.tenant), f"a task of {client.tenant!r} is given to a worker of {worker.tenant!r}"
        for each in (*filter(None, [message.function]), *message.dependencies):
            assert self._object_tenants.get(each, client.tenant) == client.tenant, "a task gets a foreign object"
        assert not message.function or message.function in worker.known
        assert worker.known.issuperset(message.dependencies), "objects are announced before the tasks that need them"
        counts = message.dependency_counts or [0] * len(message.ids)
        offset = first = 0
        for instance, size, count in zip(message.ids, message.payload_sizes, counts):
            results, data = split_payload(payload[offset : offset + size])
            needed = message.dependencies[first : first + count]
            offset, first = offset + size, first + count
            task = client.tasks[int(data.rsplit(b" ", 1)[-1])]
            assert task.payload == data
            assert not worker.is_draining or task.call_of, f"{task} is given to a worker that drains"
            assert not worker.is_congested and not client.is_congested, f"{task} is given to or for who does not read"
            if isinstance(task, Node):
                assert task.may_run(), f"{task} is given, though it is {task.due or task.outcome or 'not ready'}"
                check_results(results, needed, [each.due[1:3] for each in task.predecessors if each.due])
                task.needed = task.needed.union(needed)
            else:
                assert not results
                assert task in self._waiting, f"{task} is given, though it is {task.due or task.outcome or 'held'}"
            assert instance not in self._given, f"instance {instance} is given twice"
            assert message.attempt == task.losses + 1
            assert bool(task.call_of) == message.options.actor
            if task.call_of:
                self._actors.check_given(worker, task.call_of, client.session, task.id)
            assert worker.fits(task.need), f"{task} does not fit its worker"
            assert worker.understands(task.codec, task.name), f"{task} is nothing that its worker understands"
            self._given.add(instance)
            self._waiting.pop(task, None)
            task.worker, task.instance = worker, instance
            worker.tasks[instance] = task
        assert offset == len(payload)
        most = self.most_running.get(client.tenant, 1 << 30)
        assert (
            seen.running_of(self.workers.values(), client.tenant)
            - seen.blocked_beside(self.workers.values(), client.tenant)
            <= most
        ), "a quota is exceeded"
        seen.check_queue(worker, message, min(worker.queue_size, self.queue_limit))

    def _on_outcomes(self, client: Party, message: m.TaskResult, payload: bytes) -> None:
        offset = 0
        for position, task_id in enumerate(message.ids):
            size = message.payload_sizes[position]
            data, offset = payload[offset : offset + size], offset + size
            status = message.statuses[position] if message.statuses else SUCCESS
            object_id = message.objects[position] if message.objects else 0
            task = client.tasks[task_id]
            assert task.is_wanted, f"the outcome of {task} is unwanted"
            if message.causes and message.causes[position]:
                assert isinstance(task, Node) and task.worker is None
                self._decide(task, self._inherited(task, client.tasks[message.causes[position] - 1], status, data))
            elif status == LOST and task.is_new and self._is_rejected(data):  # also if a cancel came right behind it
                self._decide(task, Due(LOST, kind=REJECTED))
            elif status == LOST and task in self._waiting and task.call_of:
                self._actors.check_lost(task)
                self._decide(task, Due(LOST, kind=ACTOR_LOST))
            elif status == LOST and task.due is None and isinstance(task, Node):
                self._decide(task, Due(LOST, kind=seen.why_lost(task, data, self._held)))
            self._settle(task, status)
            due = task.due
            assert due is not None
            if due.kind is None:
                assert (status, data, object_id) == due[:3], (
                    f"{task} gets {(status, data, object_id)}, and {due} was reported"
                )
            else:
                failure = decode_struct(m.Failure, data)
                assert (status, failure.kind, failure.attempts) == (LOST, due.kind, due.attempts), (task, failure, due)
        assert offset == len(payload)

    def _is_rejected(self, data: bytes) -> bool:
        return self._has_waiting_limit and decode_struct(m.Failure, data).kind == REJECTED

    def _inherited(self, node: Node, origin: Task, status: int, data: bytes) -> Due:
        """What a target must be told that ends because of another node."""
        assert origin in node.ancestors()
        if origin.due is None:  # rejected with its graph, without a report
            assert self._has_waiting_limit and origin.is_new
            return Due(LOST, kind=REJECTED)
        assert origin.due.status not in (SUCCESS, CANCELLED)
        return origin.due

    def _on_answers(self, client: Party, message: m.TaskCancelConfirm, payload: bytes) -> None:
        for task_id, outcome in zip(message.ids, message.outcomes):
            self._answers_due.discard((client.session, task_id))
            task = client.tasks.get(task_id)
            if outcome == Outcome.CANCELLED:
                if isinstance(task, Node):
                    self._allow_cancelled(task)
                assert task is not None and task.is_asked, f"{task} is cancelled without a request"
                assert task.due is not None and task.due.status == CANCELLED, f"{task} may run still"
                self._settle(task, CANCELLED)
            elif outcome == Outcome.NOT_FOUND:
                is_told = task is None or task.outcome is not None or not task.is_wanted
                assert is_told, f"{task} is not found, and has no outcome"
            else:
                assert task is not None, "what was never submitted runs, they say"
                assert task.outcome is None or not task.is_wanted, f"{task} runs, they say, and has an outcome"

    def _allow_cancelled(self, node: Node) -> None:
        """A node may be cancelled that is at no worker, if it was asked for, or for one that it needs."""
        assert node.worker is None
        if any(each.is_asked for each in node.ancestors()):
            assert node.is_wanted or node.is_asked, f"the outcome of {node} is unwanted"
            node.is_asked = True
        if node.due is None:
            self._decide(node, Due(CANCELLED))
        if not node.is_wanted:
            assert node.outcome == CANCELLED
            self._due[node] = None
            node.outcome = None  # to be settled

    def _settle(self, task: Task, outcome: int) -> None:
        assert task.outcome is None, f"{task} gets outcome {outcome}, after {task.outcome}"
        assert task.due is not None, f"{task} gets outcome {outcome} for no reason"
        del self._due[task]
        task.outcome = outcome
        self.outcomes += 1

    def _on_objects_announced(self, worker: Party, message: m.ObjectInstruction, payload: bytes) -> None:
        ids = set(message.ids)
        assert len(ids) == len(message.ids)
        if message.action in (m.ObjectAction.SPILL, m.ObjectAction.DROP):
            assert worker.is_worker is (message.action == m.ObjectAction.DROP), "only a maker hears of its disk"
            return
        if message.action == m.ObjectAction.CREATE:
            seen.check_own(worker, ids, self._object_tenants)
            worker.learn(ids)
            return
        assert ids <= worker.known, "the end of an object that the worker does not know was announced to it"
        assert ids.isdisjoint(self._held), "an object ends that its owner holds"
        worker.known -= ids
        self._actors.forget(ids)
        for task in worker.tasks.values():
            assert ids.isdisjoint(task.needed), f"an object ends that {task} needs"

    def _check_reader(self, link: bytes, message: m.ObjectResponse) -> None:
        """A peer is sent a part of an object, maybe just after the end of its session."""
        owner = self._object_tenants.get(message.id) if message.status == m.ObjectResponseStatus.OK else None
        reader = self._tenants.get(link, "")
        assert owner is None or reader in (owner, "*"), f"a peer of {reader!r} reads an object of {owner!r}"

    def _on_cancel_sent(self, worker: Party, message: m.TaskCancel, payload: bytes) -> None:
        for instance in message.ids:
            key = worker.session, instance
            if message.force or not self._cancels_due.get(key, False):
                self._cancels_due.pop(key, None)
            task = worker.tasks.get(instance)
            if isinstance(task, Node) and not task.is_cancelling:
                task.is_dropped = True

    _SENT: ClassVar[Reactions] = {
        m.Task: _on_given,
        m.TaskResult: _on_outcomes,
        m.TaskCancelConfirm: _on_answers,
        m.ObjectInstruction: _on_objects_announced,
        m.Ticket: lambda self, worker, message, _: seen.check_ticket(worker, message, self._object_tenants),
        m.TaskCancel: _on_cancel_sent,
    }

    # What must be true when the scheduler has had its say -----------------------------------------------------------

    def round_ended(self, second_choices: Container[int] = ()) -> None:
        """All that the messages so far called for was sent; to some workers, by session, others are preferred."""
        assert not self._due, f"{len(self._due)} outcomes are withheld: {next(iter(self._due))}"
        assert not self._answers_due, f"cancels are not answered: {self._answers_due}"
        assert not self._cancels_due, f"cancels did not reach their worker: {self._cancels_due}"
        for task in self._new:
            task.is_new = False
        self._new.clear()
        self._links = set(self._parties)
        if self._waiting and not self._is_stopping:
            waiting = seen.could_wait_less(self._waiting, self.workers.values(), self.most_running)
            self._actors.check_waiting(waiting, self.workers.values())
            seen.check_no_slot_idles(waiting, self.workers.values(), second_choices)

    def check_all_is_over(self) -> None:
        """No client is left: nothing is at a worker, and no worker knows any object."""
        assert not self._clients and not self._waiting and not self._held
        for worker in self.workers.values():
            assert not worker.tasks and not worker.known
