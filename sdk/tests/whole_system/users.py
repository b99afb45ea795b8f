"""Simulated users: each has a client, and calls it as programs do.

Rules: what a user may not do by the real API, it does not do here. It draws at each step what it does next; when all is
calm it waits for what it has, and does nothing new.
"""

from __future__ import annotations

from array import array
from random import Random
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from whole_system.client_host import ClientHost
from whole_system.futures import Future
from whole_system.simulated_world import CLOCK_STEPS_SECONDS, RareOptions, World
from whole_system.tenants import Key
from whole_system.user_tasks import ENDLESS_SECONDS, GPU, SERVED_FUNCTIONS, Archive, Kills, Task, with_note

from scaler.client.core import commands as c
from scaler.client.core.kept_objects import KeptObject
from scaler.client.core.outbox import GraphRun
from scaler.values.named_functions import NamedFunction
from scaler.values.sizes import INLINE_BYTES
from scaler.worker.served_functions import ServedFunctions
from scaler_protocol import messages as m

if TYPE_CHECKING:
    from whole_system.system import System

_SERVED = ServedFunctions(SERVED_FUNCTIONS)
_NAMED_FUNCTIONS = [NamedFunction("example.org/one"), NamedFunction("example.org/many/first", "raw")]
QUESTION_SECONDS = 2.0
CANCELLING_SECONDS = 0.5
HASTY_STEPS = 3
GPU_NEEDS = (0.5, 1.0)
UNEVEN_SECONDS = (0.0, 0.0, 0.01, 0.03, 2.0)
MANY_BATCHES = 70
LATE_TASKS = 6
_LATE = m.TaskOptions(priority=-1)
DEADLY_CALLS = 0.1  # of those of actors, where tasks may be deadly


class User:
    def __init__(self, system: System, name: str, key: Key) -> None:
        self.system = system
        self.world: World = system.world
        self.host = ClientHost(self.world, system.scheduler, name, key, system.links)
        self.host.on_session = self._on_session
        self.unfinished: Dict[int, Future] = {}  # by key of the task
        self._functions: List[KeptObject] = []
        self._objects: List[KeptObject] = []
        self._code: List[Archive] = []  # that new functions need
        self._former_code: List[Archive] = []
        self._code_of_functions: Dict[int, List[Archive]] = {}  # by id
        self._contents: Dict[int, bytes] = {}  # of objects, by id
        self._options: Dict[Tuple[Any, ...], m.TaskOptions] = {}  # equal options are one object
        self._rare_options = RareOptions(system.world.plan.seed, name)
        self._submissions: List[Tuple[Future, Set[int]]] = []  # that hold functions and objects until `submit` returns
        self._actors: List[KeptObject] = []
        self._former_actors: List[KeptObject] = []  # of sessions that have ended
        self._options_of_calls = m.TaskOptions(actor=True)
        self._most_unfinished = self.world.most_unfinished()
        self._is_submitting = 0  # tasks that wait for room
        self._nodes_random = Random(f"large nodes: {self.world.plan.seed} {name}")
        self._calls_random = Random(f"deadly calls: {self.world.plan.seed} {name}")  # apart, too

    @property
    def is_done(self) -> bool:
        host = self.host
        return (
            not host.is_alive
            or (host.ended is not None and host.core is None)
            or not (self.unfinished or host.open_askers or host.core is None or host._commands or self._is_submitting)
        )

    @property
    def objects(self) -> Sequence[KeptObject]:
        """Those that it holds."""
        return self._objects

    def content_of(self, kept: KeptObject) -> bytes:
        return self._contents[kept.object_id]

    # Acting ---------------------------------------------------------------------------------------------------------

    def act(self) -> None:
        """One step of its program."""
        world, host = self.world, self.host
        if world.fault("client_crash"):
            host.crash()
            return
        if world.fault("pause"):
            host.pause(world.random.choice((0.3, 2.0, 8.0)))
        if world.fault("clock_step"):
            host.step_clock(world.random.choice(CLOCK_STEPS_SECONDS))
        if not host.is_open:
            return
        if world.uses("leave"):
            host.leave()
            return
        if len(self.unfinished) < self._most_unfinished and world.events < world.submitting_events:
            self._submit()
        self._change_minds()

    def _on_session(self) -> None:
        """What a user does just after a session has begun meets tasks that are sent again. Its actors have ended."""
        self._former_actors += self._actors
        self._actors.clear()
        for _ in range(HASTY_STEPS if self.world.uses("haste") else 0):
            self.host.after(self.world.delay(), self._act_in_haste)

    def _act_in_haste(self) -> None:
        if not self.world.is_calm:
            self.act()
            if self.host.is_open and self.world.rates["let_go"]:
                self._let_go()

    def end_the_endless(self) -> None:
        """All is calm: from now on cancel tasks that would never end, each once."""
        endless = [each for each in self._in_hand() if each.task.is_endless and not each.is_forced]
        if endless and self.host.is_open:
            self._cancel(endless, is_forced=True)
        if self._actors and self.host.is_open:  # else workers that drain wait for them, and others for these workers
            self._let_go_of(self._actors, {each.object_id for each in self._actors})
        if not self.is_done:
            self.host.after(CANCELLING_SECONDS, self.end_the_endless)

    def _draws_large_nodes(self) -> bool:
        """Drawn apart, so that histories without them stay what they were."""
        return self._nodes_random.random() < self.world.rates["large_nodes"]

    def _submit(self) -> None:
        world = self.world
        room = self._most_unfinished - len(self.unfinished)
        for _ in range(room if world.is_insistent else world.random.choice((1, 1, 2, 5, 12))):
            if len(self.unfinished) >= self._most_unfinished and not world.has_large_steps:
                return  # what it has submitted just now was large
            if self._draws_large_nodes():
                self._submit_graph()
            elif world.rates["actors"] and world.uses("actors"):
                self._submit_calls()
            elif world.uses("predecessors") and self._in_hand():
                self._submit_dependant()
            elif world.uses("many_batches"):
                self._submit_many_batches()
            elif world.uses("runs") or self.system.tenants.submits_many():
                self._submit_run()
            elif world.uses("objects"):
                self._submit_with_objects([])
            elif world.uses("large_arguments"):
                self._submit_with_large_arguments()
            elif world.uses("graphs"):
                self._submit_graph()
            elif world.uses("named_functions"):
                self._submit_named()
            else:
                self._submit_plain()

    def _change_minds(self) -> None:
        """Cancel, clear, let go, ask."""
        world, host, random = self.world, self.host, self.world.random
        in_hand = self._in_hand()
        if world.uses("cancel") and in_hand:
            futures = random.sample(in_hand, min(len(in_hand), random.choice((1, 1, 3))))
            self._cancel(futures, world.uses("force"))
        finite = [each for each in in_hand if not each.task.is_endless]  # who gives a task up lets it run
        if finite and world.uses("give_up"):
            future = random.choice(finite)
            self._want_cancelled([future])
            future.task.is_given_up = True
            host.post(c.GiveUp([future]))
        if world.uses("cancel_all"):
            self._want_cancelled(list(self.unfinished.values()))
            host.post(c.CancelAll(host.asker()))
        if world.uses("clear") and not self._held_by_submissions():
            self._want_cancelled(list(self.unfinished.values()))
            host.post(c.Clear([each.object_id for each in self._objects]))
            self._objects.clear()
        if world.uses("let_go"):
            self._let_go()
        if world.uses("questions"):
            self._ask(m.InfoRequest())
            if in_hand and self.system.tenants.are_there:
                self._await(lambda asker: c.Explain(in_hand[0], asker))
        if world.uses("client_shutdown") and not world.is_calm:
            self._ask(m.ClientShutdown())
        if world.uses("drain") and not world.is_calm:
            workers = [each.name for each in self.system.workers if each.is_alive]
            if workers:
                is_draining = random.random() < 0.7
                self.system.scheduler.worker_losses += not is_draining
                self._ask(m.WorkerShutdown(name=random.choice(workers), is_draining=is_draining))

    def _cancel(self, futures: List[Future], is_forced: bool) -> None:
        self._want_cancelled(futures)
        for future in futures:
            future.is_forced |= is_forced
        self.host.post(c.Cancel(futures, is_forced))

    def _in_hand(self) -> List[Future]:
        return [future for future in self.unfinished.values() if future.is_in_hand]

    def _want_cancelled(self, futures: List[Future]) -> None:
        for future in futures:
            future.task.is_cancel_wanted = True

    def _held_by_submissions(self) -> Set[int]:
        """The objects of submissions that have not returned."""
        self._submissions = [each for each in self._submissions if not (each[0].is_in_hand or each[0].kind)]
        return set().union(*(object_ids for _, object_ids in self._submissions))

    def _let_go(self) -> None:
        random, needed = self.world.random, self._held_by_submissions()
        for held in (self._objects, self._functions, self._actors, self._former_actors):
            free = [each for each in held if each.object_id not in needed]
            if free and random.random() < 0.5:
                self._let_go_of(held, {random.choice(free).object_id})
        if self._former_code:
            self._let_go_of_former_code()

    def _let_go_of(self, held: List[KeptObject], object_ids: Set[int]) -> None:
        """Let go of what is held of these, as a program does whose graph has had large arguments."""
        free = [each for each in held if each.object_id in object_ids - self._held_by_submissions()]
        held[:] = [each for each in held if each not in free]
        if free:
            self.host.post(c.LetGo([each.object_id for each in free]))

    def _ask(self, question: Any) -> None:
        self._await(lambda asker: c.Ask(question, asker))

    def _await(self, command: Callable[[Any], object]) -> None:
        """Ask something, and wait for the answer for a while."""
        host = self.host
        asker = host.asker()
        host.post(command(asker))

        def lose_patience() -> None:
            if asker in host.open_askers:
                del host.open_askers[asker]
                asker.put = lambda answer: None  # type: ignore[method-assign]  # it comes too late
                host.post(c.ForgetQuery(asker))

        host.after(QUESTION_SECONDS, lose_patience)

    def let_go_of_all(self) -> None:
        for held in (self._objects, self._functions, self._actors, self._former_actors):
            if held:
                self.host.post(c.LetGo([each.object_id for each in held]))
                held.clear()
        if self._code or self._former_code:
            self.host.post(c.LetGo([each.kept.object_id for each in (*self._code, *self._former_code)]))
            self._code, self._former_code = [], []

    # Tasks ----------------------------------------------------------------------------------------------------------

    def _task(self, function: KeptObject, contents: List[bytes], needed: List[Task]) -> Task:
        code = [each.content for each in self._code_of_functions.get(function.object_id, ())]
        return self._new_task(self._contents[function.object_id], contents, needed, code)

    def _new_task(self, function: bytes, contents: List[bytes], needed: List[Task], code: Sequence[bytes] = ()) -> Task:
        world, random = self.world, self.world.random
        task = self.system.new_task(self.host.key.tenant, function, contents, needed, code)
        task.is_raising = world.uses("raising")
        if world.uses("large_results"):
            task.is_large = True
            task.result_bytes = random.choice((10, 70_001))
        elif world.uses("large_results"):
            task.result_bytes = random.choice((100, 60_000))
        task.padding_bytes = random.choice((0, 0, 20, 100))
        task.seconds = world.choose("task_seconds", (0.1, 1.5) if world.uses("long_tasks") else (0.0, 0.001, 0.03))
        task.is_blocking = world.uses("blocking")
        return task

    def _make_odd(self, task: Task) -> None:
        """Some tasks never end, and some end what runs them."""
        world = self.world
        if world.uses("endless_tasks"):
            task.seconds, task.is_blocking = ENDLESS_SECONDS, False
        elif world.uses("deadly_tasks"):
            task.kills, task.is_blocking = world.random.choice((Kills.PROCESSOR, Kills.WORKER)), False

    def _with_options(self, task: Task, may_need: bool = False) -> Optional[m.TaskOptions]:
        """
        Parameters:
            may_need: a capability, which not all workers have.
        """
        world = self.world
        task.at_most_once = world.uses("at_most_once")
        task.retries = world.random.choice((1, 3)) if world.uses("retries") and not task.at_most_once else 0
        priority = world.choose("priority", (0, 0, 0, 1))
        amount = world.random.choice(GPU_NEEDS) if may_need and world.uses("capabilities") else 0.0
        seconds, limit = self._rare_options.draw()
        key = (task.at_most_once, task.retries, priority, amount, seconds, limit)
        if key == (False, 0, 0, 0.0, 0.0, 0):
            return None
        if key not in self._options:
            options = m.TaskOptions(at_most_once=task.at_most_once, retries=task.retries, priority=priority)
            options.time_request_milliseconds, options.memory_limit_bytes = int(seconds * 1000), limit
            options.capabilities = [m.Capability(name=GPU, amount=amount)] if amount else []
            self._options[key] = options
        return self._options[key]

    def _function(self) -> KeptObject:
        random = self.world.random
        if not self._functions or (len(self._functions) < 3 and random.random() < 0.3):
            size = INLINE_BYTES + 5 if self.world.uses("large_functions") else 0
            content = (b"function %d" % random.randrange(1 << 30)).ljust(size)
            archives = self._current_code() if self.world.uses("code") else []
            if archives:
                content = with_note(content.ljust(INLINE_BYTES if self.world.uses("large_objects") else 0), archives)
            made = self.host.send_object(content, m.ObjectKind.FUNCTION)
            self._code_of_functions[made.object_id] = archives
            self._contents[made.object_id] = content
            self._functions.append(made)
        return random.choice(self._functions)

    def _current_code(self) -> List[Archive]:
        """The archives that a new function needs: its files change at times."""
        random = self.world.random
        if not self._code or random.random() < 0.3:
            self._former_code += self._code
            self._code = []
            for _ in range(random.choice((1, 1, 2))):
                size = INLINE_BYTES + 9 if self.world.uses("large_objects") else 20
                content = (b"archive %d" % random.randrange(1 << 30)).ljust(size)
                self._code.append(Archive(self.host.send_object(content), content))
        return list(self._code)

    def _let_go_of_former_code(self) -> None:
        """An archive goes with the last function, and the last unfinished task of a function, that needs it."""
        needed = {each.content for function in self._functions for each in self._code_of_functions[function.object_id]}
        for future in self.unfinished.values():
            for task in future.task.ancestry():
                needed.update(task.code)
        unneeded = [each for each in self._former_code if each.content not in needed]
        if unneeded:
            self._former_code = [each for each in self._former_code if each.content in needed]
            self.host.post(c.LetGo([each.kept.object_id for each in unneeded]))

    def _future(self, task: Task, resubmit: Optional[Callable[[Future], None]] = None) -> Future:
        future = self.unfinished[task.key] = Future(self, task, resubmit)
        if self.world.is_insistent:
            future.then = lambda: self.host.after(0.0, self._insist)
        return future

    def _insist(self) -> None:
        """A task has ended: another one follows at once."""
        if self.host.is_open and not self.world.is_calm:
            self._submit_plain()

    def _submit_run(self) -> None:
        """Many short tasks of one function, which workers get together."""
        random = self.world.random
        function = self._function()
        options = self._with_options(self._task(function, [], []), may_need=True)
        is_uneven = self.world.uses("uneven_runs")
        has_objects = self.world.uses("objects")
        for _ in range(random.choice((8, 25))):
            objects = [self._object()] if has_objects and random.random() < 0.7 else []
            task = self._task(function, [self._contents[each.object_id] for each in objects], [])
            task.seconds, task.is_blocking = self.world.choose("run_seconds", (0.0, 0.0001)), False
            if is_uneven:
                task.seconds = random.choice(UNEVEN_SECONDS)
            if options is not None:
                task.at_most_once, task.retries = options.at_most_once, options.retries
            dependencies = [each.object_id for each in objects]
            future = self._future(task)
            self._submissions.append((future, {function.object_id, *dependencies}))
            if objects:
                self.host.submit(c.SubmitTask(future, function.object_id, task.payload, options, dependencies))
            else:
                future.is_in_hand = False
                self.host.submit_plain(future, function.object_id, options)

    def _submit_calls(self) -> None:
        """Calls of one of its actors, maybe a new one."""
        random = self.world.random
        if not self._actors or (len(self._actors) < 3 and random.random() < 0.3):
            content = b"actor %d of %s" % (random.randrange(1 << 30), self.host.name.encode())
            made = self.host.send_object(content, m.ObjectKind.FUNCTION)
            self._contents[made.object_id] = content
            self._actors.append(made)
        actor = random.choice(self._actors)
        for _ in range(random.choice((1, 1, 4, 12))):
            task = self._new_task(self._contents[actor.object_id], [], [])
            task.actor, task.call_number = self._contents[actor.object_id], self.world.calls.next_number()
            if self.world.rates["deadly_tasks"] and self._calls_random.random() < DEADLY_CALLS:
                task.kills, task.is_blocking = Kills.PROCESSOR, False
            future = self._future(task)
            future.is_in_hand = False
            self._submissions.append((future, {actor.object_id}))
            self.host.submit_plain(future, actor.object_id, self._options_of_calls)

    def _submit_plain(self) -> None:
        function = self._function()
        task = self._task(function, [], [])
        self._make_odd(task)
        options = self._with_options(task, may_need=True)
        is_free = function.object_id not in self._held_by_submissions()
        if is_free and self.world.uses("stale_functions"):  # another thread lets it go meanwhile
            self._functions.remove(function)
            self.host.post(c.LetGo([function.object_id]))

        def again(future: Future) -> None:
            if self.host.is_open:
                made = self.host.send_object(task.function, m.ObjectKind.FUNCTION)
                self._code_of_functions[made.object_id] = self._code_of_functions[function.object_id]
                self._contents[made.object_id] = task.function
                self._functions.append(made)
                self.host.submit_plain(future, made.object_id, options)
            else:
                self.unfinished.pop(task.key, None)

        future = self._future(task, again)
        future.is_in_hand = False
        self.host.submit_plain(future, function.object_id, options)

    def _submit_many_batches(self) -> None:
        """A batch of which every other task waits for one before, then many short tasks in batches of their own."""
        host, random = self.host, self.world.random
        function = self._function()
        choices = [self._with_options(self._task(function, [], [])) for _ in range(2)]
        first = self._short_task(function, choices[0])
        host.submit(c.SubmitTask(first, function.object_id, first.task.payload, choices[0]))
        late: List[Future] = []
        for number in range(LATE_TASKS):
            needed = [first] if number % 2 else []
            task = self._task(function, [], [each.task for each in needed])
            task.seconds, task.is_blocking = random.choice(UNEVEN_SECONDS), False
            future = self._future(task)
            late.append(future)
            self._submissions.append((future, {function.object_id}))
            host.submit(c.SubmitTask(future, function.object_id, task.payload, _LATE, [], needed))
        for number in range(MANY_BATCHES):
            future = self._short_task(function, choices[number % 2])
            future.is_in_hand = False
            host.submit_plain(future, function.object_id, choices[number % 2])

        def cancel_some() -> None:
            in_hand = [each for each in late if each.is_in_hand and not each.kind]
            if in_hand and host.is_open and self.world.rates["cancel"]:
                self._cancel(random.sample(in_hand, min(len(in_hand), 2)), is_forced=False)

        for seconds in CANCELLING_SECONDS, 2 * CANCELLING_SECONDS:
            host.after(seconds, cancel_some)

    def _short_task(self, function: KeptObject, options: Optional[m.TaskOptions]) -> Future:
        task = self._task(function, [], [])
        task.seconds, task.is_blocking = 0.0, False
        if options is not None:
            task.at_most_once, task.retries = options.at_most_once, options.retries
        future = self._future(task)
        self._submissions.append((future, {function.object_id}))
        return future

    def _submit_named(self) -> None:
        """The function is one that workers serve; its payload and result are opaque."""
        function = self.world.random.choice(_NAMED_FUNCTIONS)
        task = self._new_task(_SERVED.definition(function.name, function.codec), [], [])
        task.is_large, task.result_bytes = False, 0
        future = self._future(task)
        future.is_in_hand = False
        self.host.submit_plain(future, function, self._with_options(task))

    def _object(self) -> KeptObject:
        world, random = self.world, self.world.random
        if not self._objects or (len(self._objects) < 4 and random.random() < 0.4):
            size = INLINE_BYTES + 100 if world.uses("large_objects") else random.choice((0, 10, 1000))
            content = (b"object %d" % random.randrange(1 << 30)).ljust(size, b".") if size else b""
            made = self.host.send_object(content)
            self._contents[made.object_id] = content
            self._objects.append(made)
        return random.choice(self._objects)

    def _submit_with_objects(self, needed: List[Future]) -> None:
        count = self.world.random.choice((0, 1, 2)) if needed else self.world.random.choice((1, 1, 3))
        objects = [self._object() for _ in range(count if self.world.rates["objects"] else 0)]
        self._submit_general(objects, needed, b"")

    def _submit_dependant(self) -> None:
        random, in_hand = self.world.random, self._in_hand()
        self._submit_with_objects(random.sample(in_hand, min(len(in_hand), random.choice((1, 1, 2, 4)))))

    def _submit_with_large_arguments(self) -> None:
        """The arguments are an object that the task alone holds; first there has to be room."""
        content = (b"arguments %d" % self.world.random.randrange(1 << 30)).ljust(INLINE_BYTES + 7, b".")
        self._is_submitting += 1

        def go_on(answer: Any) -> None:
            self._is_submitting -= 1
            if answer is not None and self.host.is_open:
                self._submit_general([], [], content)

        self.host.post(c.AwaitRoom(self.host.asker(go_on)))

    def _submit_general(self, objects: List[KeptObject], needed: List[Future], arguments: bytes) -> None:
        host = self.host
        function = self._function()
        contents = [self._contents[each.object_id] for each in objects]
        task = self._task(function, [arguments, *contents] if arguments else contents, [each.task for each in needed])
        self._make_odd(task)
        options = self._with_options(task)
        dependencies = [each.object_id for each in objects]
        if arguments:
            dependencies.insert(0, host.send_object(arguments, m.ObjectKind.ARGUMENTS).object_id)
        future = self._future(task)
        self._submissions.append((future, {function.object_id, *dependencies}))
        needs = dependencies, needed, len(arguments)
        host.submit(c.SubmitTask(future, function.object_id, task.payload, options, *needs))

    def _submit_graph(self) -> None:
        """Nodes that need some of the nodes before them; a few are targets."""
        world, random, host = self.world, self.world.random, self.host
        is_broadcast = self.system.links.are_frequent and self._nodes_random.random() < 0.6
        count = 12 if is_broadcast else random.choice((1, 2, 5, 9))
        tasks: List[Task] = []
        columns = m.GraphTask(payload_sizes=array("I"), functions=array("Q"))
        columns.predecessor_offsets, columns.predecessors = array("I", [0]), array("I")
        columns.dependency_counts, columns.dependencies = array("H"), array("Q")
        functions: Dict[int, KeptObject] = {}
        first = self._task(self._function(), [], [])  # whose options all nodes have
        options = self._with_options(first)
        for position in range(count):
            function = self._function()
            functions[function.object_id] = function
            places = sorted(random.sample(range(position), min(position, random.choice((0, 1, 2)))))
            if position and is_broadcast:
                places = sorted({0, *places}) if self._nodes_random.random() < 0.3 else [0]
            objects = [self._object()] if world.uses("objects") else []
            contents = [self._contents[each.object_id] for each in objects]
            task = self._task(function, contents, [tasks[place] for place in places])
            task.at_most_once, task.retries = first.at_most_once, first.retries
            if self._draws_large_nodes() or (is_broadcast and not position):
                task.is_large, task.result_bytes = True, 70_001
            tasks.append(task)
            columns.payload_sizes.append(len(task.payload))
            columns.functions.append(function.object_id)
            columns.predecessors.extend(places)
            columns.predecessor_offsets.append(len(columns.predecessors))
            columns.dependency_counts.append(len(objects))
            columns.dependencies.extend(each.object_id for each in objects)
        chosen = sorted({count - 1, random.randrange(count)})
        columns.targets, columns.options = array("I", chosen), options if options is not None else m.TaskOptions()
        run = GraphRun(columns, b"".join(task.payload for task in tasks), list(functions.values()))
        targets = {position: self._future(tasks[position]) for position in chosen}
        host.post(c.SubmitGraph(run, sorted(set(columns.dependencies)), targets))
        if self._nodes_random.random() < world.rates["let_go"]:
            self._let_go_of(self._objects, set(columns.dependencies))
