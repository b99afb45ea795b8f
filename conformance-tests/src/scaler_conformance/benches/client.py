"""The bench for clients: the suite plays their scheduler and, through an adapter, their user.

    bench.greeted()     a client that has sent Hello and waits for the answer
    bench.welcomed()    a client with a session: most cases begin here
    bench.submit(3)     as the user: submits three tasks, and returns their numbers
    bench.expect_result(task)   as the user: waits for the task's result

Rules:
- Both sides are read at once: a wait for one side also reads what the other sends.
- A task's argument begins with its number, so that a case recognises the task on the wire.
- Each task has one outcome; a second one is a violation, whatever the case waits for.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence

import zmq

from scaler_conformance.benches.client_adapter import VERSION, VERSIONS, Adapter
from scaler_conformance.benches.played_scheduler import PlayedScheduler
from scaler_conformance.judging.verdicts import NotApplicable
from scaler_conformance.playing.client_session import CHUNK_BYTES, ClientSession
from scaler_conformance.playing.conversation import Conversation, Transport, check
from scaler_conformance.playing.curve_keys import ServerSecurity
from scaler_conformance.playing.transports import MakeConversation, RouterTransport

MAJOR = 1
TIMEOUT_MILLISECONDS = 60_000
INLINE_BYTES = 64 * 1024
ECHO = "scaler.conformance/echo"
ONE_OUTCOME = "SCL-CLT-005"

Event = Dict[str, Any]


class ClientRouter(RouterTransport):
    """The socket of a scheduler, polled together with the pipes of an adapter."""

    def __init__(self, make_conversation: MakeConversation, security: Optional[ServerSecurity] = None) -> None:
        super().__init__(make_conversation, security)
        self.adapter: Optional[Adapter] = None

    def pump(self, seconds: float) -> bool:
        came = False
        adapter = self.adapter
        if adapter is not None:
            poller = zmq.Poller()
            poller.register(self._socket, zmq.POLLIN)
            if not adapter.has_ended:
                poller.register(adapter.stdout.fileno(), zmq.POLLIN)
            if adapter.has_unsent:
                poller.register(adapter.stdin.fileno(), zmq.POLLOUT)
            poller.poll(int(seconds * 1000) + (seconds > 0))
            adapter.flush()
            came = adapter.read()
        return super().pump(0 if adapter is not None else seconds) or came


class RoleBench(PlayedScheduler):
    """One client, the scheduler that it connects to, and its user."""

    router: ClientRouter
    peer_role = "client"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.router = self.open_router()
        self.at_end(self.router.close)
        self.sessions = 0
        self.last_session: Optional[ClientSession] = None
        self.can: Sequence[str] = ()
        self.outcomes: Dict[int, Event] = {}
        self._newcomers: List[ClientSession] = []  # connections that have not sent Hello
        self._next_task = 1

    def _make_session(self, name: str, transport: Transport) -> Conversation:
        return ClientSession(name, transport, self.settings, self._log, self.how_it_ended)

    @property
    def any_session(self) -> Conversation:
        """For waits that are not for a certain session."""
        return Conversation("any session", self.router, self.settings, self._log, self.how_it_ended)

    # The adapter ----------------------------------------------------------------------------------------------------

    @property
    def adapter(self) -> Adapter:
        """The adapter, started and greeted if it has not been yet."""
        self.greet_adapter()
        assert self.router.adapter is not None
        return self.router.adapter

    def greet_adapter(self) -> None:
        if self.router.adapter is not None:
            return
        self.router.adapter = Adapter(self.start({}, pipes=True), self._log)
        self.router.adapter.tell("hello", version=VERSION)
        hello = self.expect_event("hello")
        right = hello.get("version") in VERSIONS and isinstance(hello.get("can"), list)
        check(right, f"the adapter's event `hello` with version {VERSION} or older and a list `can`", hello)
        self.can = hello["can"]

    def need(self, *abilities: str) -> None:
        """Raises NotApplicable unless the adapter lists all of these in `can`."""
        self.greet_adapter()
        missing = [each for each in abilities if each not in self.can]
        if missing:
            raise NotApplicable(f"the adapter does not list {missing[0]} in `can`")

    def expect_event(self, event: str, requirement: Optional[str] = None, **members: Any) -> Event:
        """Wait for the next event of this name, and take it. Raises Violation if it does not arrive."""
        found: Event = self.any_session.wait_until(
            lambda: self._take_event(event, members), f"the adapter's event `{event}`", requirement
        )
        return found

    def has_event(self, event: str) -> bool:
        """Whether an event has arrived that no case has taken."""
        assert self.router.adapter is not None
        return any(each["event"] == event for each in self.router.adapter.events)

    def _take_event(self, event: str, members: Event) -> Optional[Event]:
        self._sort_outcomes()
        assert self.router.adapter is not None
        events = self.router.adapter.events
        for each in events:
            if each["event"] == event and all(each.get(name) == value for name, value in members.items()):
                events.remove(each)
                return each
        return None

    def _sort_outcomes(self) -> None:
        assert self.router.adapter is not None
        events = self.router.adapter.events
        for each in [each for each in events if each["event"] == "outcome"]:
            events.remove(each)
            task, is_ = each.get("task"), each.get("is")
            task = task if isinstance(task, int) else -1
            right = task >= 0 and is_ in ("result", "error", "cancelled")
            check(right, "the outcome of a task: a result, an error, or cancelled", each)
            known = task in self.outcomes
            check(not known, f"one outcome of task {task}", f"{self.outcomes.get(task)} and {each}", ONE_OUTCOME)
            self.outcomes[task] = each

    # As the user ----------------------------------------------------------------------------------------------------

    def connect(self, **members: Any) -> None:
        """Tell the adapter to create a client of this scheduler, without waiting for it."""
        interval = self.heartbeat_milliseconds
        more = {"keyFile": self.key_folder.peer_key} if self.key_folder is not None else {}
        address = self.scheduler_address
        self.adapter.tell("start", address=address, heartbeatIntervalMilliseconds=interval, **more, **members)

    def open_router(self, security: Optional[ServerSecurity] = None) -> ClientRouter:
        made = ClientRouter(self._make_session, security)
        made.adapter = self.router.adapter if hasattr(self, "router") else None
        return made

    def need_keys(self) -> None:
        self.need("keys")

    def submit(self, count: int = 1, size: int = 0, codec: str = "json", **options: Any) -> List[int]:
        """Submit tasks one after the other, and return their numbers.

        Parameters:
            size: minimum size of each argument in bytes.
            options: members of TaskOptions, which the adapter must support.
        """
        self.need(*options)
        tasks = self._new_numbers(count)
        arguments = [[f"{task} {'x' * size}" if size else str(task)] for task in tasks]
        self.adapter.tell("submit", tasks=tasks, arguments=arguments, function=ECHO, codec=codec, options=options)
        return tasks

    def map(self, count: int) -> List[int]:
        """Like `submit`, but with the client's call for many tasks."""
        self.need("map")
        tasks = self._new_numbers(count)
        arguments = [[str(task)] for task in tasks]
        self.adapter.tell("map", tasks=tasks, arguments=arguments, function=ECHO, codec="json")
        return tasks

    def create_object(self, size: int) -> int:
        """Create an object that tasks can use, and return its number, which is not its id in the protocol."""
        self.need("object")
        (number,) = self._new_numbers(1)
        self.adapter.tell("object", object=number, size=size)
        return number

    def call(self, *objects: int) -> int:
        """Submit a task that needs these objects, with any function, and return its number."""
        self.need("object")
        (task,) = self._new_numbers(1)
        self.adapter.tell("call", task=task, objects=objects)
        return task

    def make_actor(self) -> int:
        """Make an actor, and return its number."""
        self.need("actors")
        (number,) = self._new_numbers(1)
        self.adapter.tell("actor", actor=number)
        return number

    def call_actor(self, actor: int, *results: int) -> int:
        """Submit a call of an actor, and return its number.

        Parameters:
            results: tasks of `call` whose results it needs.
        """
        (task,) = self._new_numbers(1)
        self.adapter.tell("actorCall", task=task, actor=actor, results=results)
        return task

    def clear(self) -> None:
        """Delete all objects that were created."""
        self.need("clear")
        self.adapter.tell("clear")

    def submit_one(self, size: int = 0, codec: str = "json", **options: Any) -> int:
        return self.submit(1, size, codec, **options)[0]

    def submit_graph(self, nodes: int) -> int:
        """Submit a graph, and return the number of its only target."""
        self.need("graph")
        (task,) = self._new_numbers(1)
        self.adapter.tell("graph", task=task, nodes=nodes)
        return task

    def _new_numbers(self, count: int) -> List[int]:
        first = self._next_task
        self._next_task += count
        return list(range(first, first + count))

    def cancel(self, task: int, force: bool = False) -> None:
        self.need("cancel")
        self.adapter.tell("cancel", task=task, force=force)

    def ping(self) -> None:
        """Wait until the adapter has read all commands, and read its events."""
        self.adapter.tell("ping")
        self.expect_event("pong")
        self._sort_outcomes()

    def settle(self) -> None:
        """Read until nothing has arrived for a while; for when there is no session, and so no fence."""
        while self.router.pump(self.settings.deadline_seconds / 100):
            pass

    def outcome(self, task: int) -> Optional[Event]:
        """The outcome of a task as the user knows it, or None."""
        self._sort_outcomes()
        return self.outcomes.get(task)

    def expect_outcome(self, task: int, is_: str, requirement: Optional[str] = None) -> Event:
        """Wait for the outcome of a task, which must be `result`, `error` or `cancelled` as given."""
        found: Event = self.any_session.wait_until(
            lambda: self.outcome(task), f"task {task} to have the outcome {is_}", requirement
        )
        check(found["is"] == is_, f"task {task} to have the outcome {is_}", found, requirement)
        return found

    def expect_result(self, task: int, value: Any = None, requirement: Optional[str] = None) -> None:
        """A task must have this result; the default is its number, as `ClientSession.succeed` sends it."""
        outcome = self.expect_outcome(task, "result", requirement)
        wanted = task if value is None else value
        check(outcome.get("value") == wanted, f"the result {_shortened(wanted)}", _shortened(outcome), requirement)

    def expect_error(self, task: int, text: str = "", requirement: Optional[str] = None) -> None:
        """A task must end with an error whose message contains this text."""
        message = self.expect_outcome(task, "error", requirement).get("message")
        right = isinstance(message, str) and message and text in message
        check(
            right,
            f"an error whose message contains {text!r}" if text else "an error with a message",
            repr(message),
            requirement,
        )

    def expect_unknown(self, *tasks: int, requirement: Optional[str] = None) -> None:
        """These tasks must have no outcome once everything sent so far has been read."""
        assert self.last_session is not None
        self.last_session.fence(requirement)
        self.ping()
        for task in tasks:
            expected = f"no outcome of task {task} yet"
            check(task not in self.outcomes, expected, self.outcomes.get(task), requirement)

    # As the scheduler -----------------------------------------------------------------------------------------------

    def greeted(self, requirement: Optional[str] = None, **members: Any) -> ClientSession:
        """A client whose Hello has arrived and has not been answered.

        Parameters:
            members: more members of the command that starts the client.

        Raises Violation if another message arrives first.
        """
        self.connect(**members)
        session: ClientSession = self.any_session.wait_until(
            self.router.take_new, "the client to connect and send Hello", requirement
        )
        self.last_session = session
        first = session.wait_until(lambda: session.first, "Hello", requirement)
        check(first.type == "Hello", "Hello as the first message", first, requirement)
        session.hello = session.expect("Hello")
        implementation = session.hello.implementation
        self._identification.said(implementation.name, implementation.version, implementation.language)
        return session

    def welcomed(self, **fields: Any) -> ClientSession:
        """A client that was sent a Welcome, and whose adapter has reported `started`; `fields` replace the default
        ones.
        """
        session = self.greeted()
        self.welcome(session, **fields)
        self.expect_event("started")
        return session

    def welcome(self, session: ClientSession, /, frames: Sequence[bytes] = (), **fields: Any) -> None:
        """Answer a Hello.

        Parameters:
            frames: sent after the header.
        """
        self.sessions += 1
        session.number = fields.get("session", self.sessions)
        session.object_directory = fields.get("objectDirectory", "")
        how: Dict[str, Any] = {name: fields.pop(name) for name in ("segmented", "schema") if name in fields}
        welcome = {**self.usual_welcome(session.number, session.hello.minorMax), **fields}
        session.maximum_message_bytes = welcome["limits"].get("maximumMessageBytes", 0)
        session.is_open = True
        session.send("Welcome", frames[0] if frames else None, **how, **welcome)

    def usual_welcome(self, session: int, minor: int) -> Dict[str, Any]:
        """The default fields of a Welcome."""
        return {
            "major": MAJOR,
            "minor": minor,
            "implementation": {"name": "scaler-conformance", "version": "", "language": "Python"},
            "schedulerId": bytes(16),
            "session": session,
            "limits": self.limits(),
            "heartbeatIntervalMilliseconds": self.heartbeat_milliseconds,
            "timeoutMilliseconds": TIMEOUT_MILLISECONDS,
        }

    def limits(self, **changed: int) -> Dict[str, int]:
        """The default limits of a Welcome, with some changed."""
        usual = {
            "maximumMessageBytes": 1 << 30,
            "maximumObjectBytes": 1 << 40,
            "chunkBytes": CHUNK_BYTES,
            "inlineBytes": INLINE_BYTES,
        }
        return {**usual, **changed}

    def restart_scheduler(self) -> None:
        """Close all connections, and act as a scheduler that was just started at the same address."""
        self._log.note("the scheduler restarts")
        self.router.restart()
        self._newcomers.clear()

    def rejoined(
        self,
        old: Optional[ClientSession] = None,
        unless: Callable[[], Any] = lambda: None,
        requirement: Optional[str] = None,
        **fields: Any,
    ) -> Optional[ClientSession]:
        """The client's next session, welcomed: over a new connection, or over that of the `old` one.

        Parameters:
            unless: returns something true if the client chose another reaction; then the result is None.
        """
        expected = "the client to reconnect and send Hello"
        found = self.any_session.wait_until(lambda: self.next_hello(old) or unless(), expected, requirement)
        if not isinstance(found, ClientSession):
            return None
        found.hello = found.expect("Hello")
        self.last_session = found
        self.welcome(found, **fields)
        return found

    def next_hello(self, old: Optional[ClientSession] = None) -> Optional[ClientSession]:
        """The session of a Hello that has arrived, on the old connection or a new one.

        A peer that sends something else first on a new connection is refused with notGreeted, as by any scheduler.
        """
        if old is not None and old.waiting("Hello"):
            renewed = self.router.renew(old)
            assert isinstance(renewed, ClientSession)
            renewed._queue = old.waiting("Hello")
            return renewed
        new = self.router.take_new()
        while new is not None:
            assert isinstance(new, ClientSession)
            self._newcomers.append(new)
            new = self.router.take_new()
        for each in self._newcomers:
            if each.waiting("Hello"):
                self._newcomers.remove(each)
                return each
        for each in self._newcomers:
            self._newcomers.remove(each)
            each.send("Refusal", reason="notGreeted", message="send Hello first")
            break
        return None

    # The end --------------------------------------------------------------------------------------------------------

    def say_goodbye(self) -> None:
        self.router.is_ending = True
        if self.router.adapter is not None:
            self.router.adapter.close_input()
        elif self.running is not None:
            self.running.terminate()


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:200]}... ({len(text)} characters)"
