"""The adapter of scaler's Client for the conformance suite; it implements ../../client-adapter.md.

    python adapter.py

Rules:
- It uses only the public API: Client, NamedFunction, futures.
- Commands are read all the time; what may block runs on other threads: one for the client and its submissions, in
  order, and one for each cancel.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from concurrent.futures import CancelledError, wait
from functools import partial
from typing import Any, Callable, Dict, List, Optional

from scaler import Client, NamedFunction, ObjectReference, ScalerFuture

VERSION = 2
CAN = [
    "cancel",
    "graph",
    "shutdown",
    "object",
    "clear",
    "map",
    "await",
    "priority",
    "capabilities",
    "retries",
    "timeLimitMilliseconds",
    "memoryLimitBytes",
    "profiling",
    "atMostOnce",
    "streamOutput",
    "keys",
    "actors",
]
CANCEL_TIMEOUT_SECONDS = 60.0


def use(*objects: Any) -> int:
    """The function of tasks that depend on objects."""
    return len(objects)


class Counter:
    """An actor."""

    def count(self, *results: Any) -> int:
        return len(results)


class Adapter:
    """One client, and the commands for it."""

    def __init__(self) -> None:
        self.client: Optional[Client] = None
        self.futures: Dict[int, ScalerFuture[Any]] = {}
        self.objects: Dict[int, ObjectReference] = {}
        self.actors: Dict[int, Any] = {}
        self._output, sys.stdout = sys.stdout, sys.stderr  # so that other output is not taken for events
        self._output_lock = threading.Lock()
        self._in_order: queue.SimpleQueue[Optional[Callable[[], None]]] = queue.SimpleQueue()
        self._in_background(self._work)

    def run(self) -> None:
        """Execute the commands from standard input until it ends."""
        for line in sys.stdin:
            command = json.loads(line)
            getattr(self, f"do_{command['do']}")(command)
        if self.client is not None:
            self.client.disconnect()

    def say(self, event: str, **members: Any) -> None:
        with self._output_lock:
            print(json.dumps({"event": event, **members}), file=self._output, flush=True)

    def _work(self) -> None:
        while True:
            action = self._in_order.get()
            assert action is not None
            action()

    def _in_background(self, action: Callable[[], None]) -> None:
        threading.Thread(target=action, daemon=True).start()

    # Commands -------------------------------------------------------------------------------------------------------

    def do_hello(self, command: Dict[str, Any]) -> None:
        self.say("hello", version=VERSION, can=CAN)

    def do_ping(self, command: Dict[str, Any]) -> None:
        self.say("pong")

    def do_start(self, command: Dict[str, Any]) -> None:
        self._in_order.put(lambda: self._start(command))

    def _start(self, command: Dict[str, Any]) -> None:
        interval_seconds = command.get("heartbeatIntervalMilliseconds", 1000) / 1000
        timeout_seconds = command.get("timeoutMilliseconds", 60_000) / 1000
        try:
            self.client = Client(
                command["address"],
                heartbeat_interval_seconds=interval_seconds,
                timeout_seconds=timeout_seconds,
                key_file=command.get("keyFile"),
                insecure="keyFile" not in command,
                data_address="off" if "keyFile" in command else "tcp://127.0.0.1:0",
            )
        except Exception as error:
            self.say("failed", message=f"{type(error).__name__}: {error}")
        else:
            self.say("started")

    def do_submit(self, command: Dict[str, Any]) -> None:
        self._in_order.put(lambda: self._submit(command))

    def _submit(self, command: Dict[str, Any]) -> None:
        function = NamedFunction(command["function"], command["codec"])
        submitter = self._with_options(command.get("options", {}))
        for task, arguments in zip(command["tasks"], command["arguments"]):
            if command["codec"] == "raw":
                arguments = [each.encode() for each in arguments]
            self._watch(task, partial(self._submitted, submitter, function, arguments))

    def _submitted(self, submitter: Any, function: NamedFunction, arguments: List[Any]) -> ScalerFuture[Any]:
        if submitter is None:
            raise ConnectionError("the client has no session and has given up")
        future: ScalerFuture[Any] = submitter.submit(function, *arguments)
        return future

    def do_map(self, command: Dict[str, Any]) -> None:
        self._in_order.put(lambda: self._in_background(lambda: self._map(command)))

    def _map(self, command: Dict[str, Any]) -> None:
        function = NamedFunction(command["function"], command["codec"])
        assert self.client is not None
        try:
            values = self.client.starmap(function, command["arguments"])
        except BaseException as error:
            for task in command["tasks"]:
                self.say("outcome", task=task, **{"is": "error"}, message=f"{type(error).__name__}: {error}")
        else:
            for task, value in zip(command["tasks"], values):
                self.say("outcome", task=task, **{"is": "result"}, value=value)

    def do_object(self, command: Dict[str, Any]) -> None:
        self._in_order.put(lambda: self._make_object(command["object"], command["size"]))

    def _make_object(self, number: int, size: int) -> None:
        assert self.client is not None
        self.objects[number] = self.client.send_object(os.urandom(size))

    def do_call(self, command: Dict[str, Any]) -> None:
        self._in_order.put(lambda: self._call(command["task"], command["objects"]))

    def _call(self, task: int, objects: List[int]) -> None:
        references = [self.objects[each] for each in objects]
        self._watch(task, lambda: self.client.submit(use, *references))  # type: ignore[union-attr]  # it has one

    def do_actor(self, command: Dict[str, Any]) -> None:
        self._in_order.put(lambda: self._make_actor(command["actor"]))

    def _make_actor(self, number: int) -> None:
        assert self.client is not None
        self.actors[number] = self.client.actor(Counter)

    def do_actorCall(self, command: Dict[str, Any]) -> None:  # noqa: N802 - the command's name
        self._in_order.put(lambda: self._call_actor(command["task"], command["actor"], command.get("results", [])))

    def _call_actor(self, task: int, actor: int, results: List[int]) -> None:
        needed = [self.futures[each] for each in results]
        self._watch(task, lambda: self.actors[actor].count(*needed))

    def do_clear(self, command: Dict[str, Any]) -> None:
        self._in_order.put(lambda: self.client.clear())  # type: ignore[union-attr]  # it has one

    def do_await(self, command: Dict[str, Any]) -> None:
        self._in_order.put(lambda: self._in_background(lambda: self._await(command["tasks"])))

    def _await(self, tasks: List[int]) -> None:
        wait([self.futures[each] for each in tasks if each in self.futures])
        self.say("awaited")

    def _with_options(self, options: Dict[str, Any]) -> Any:
        names = {
            "memoryLimitBytes": "memory_limit",
            "atMostOnce": "at_most_once",
            "streamOutput": "stream_output",
        }
        given = {names.get(name, name): value for name, value in options.items()}
        if "timeLimitMilliseconds" in given:
            given["timeout"] = given.pop("timeLimitMilliseconds") / 1000
        return self.client.options(**given) if given and self.client is not None else self.client

    def do_graph(self, command: Dict[str, Any]) -> None:
        self._in_order.put(lambda: self._submit_graph(command["task"], command["nodes"]))

    def _submit_graph(self, task: int, nodes: int) -> None:
        graph: Dict[int, Any] = {0: (len, "")}
        graph.update({node: (abs, node - 1) for node in range(1, nodes)})
        self._watch(task, lambda: self.client.submit_graph(graph, [nodes - 1])[0])  # type: ignore[union-attr]  # it has one

    def _watch(self, task: int, submit: Callable[[], ScalerFuture[Any]]) -> None:
        try:
            future = submit()
        except Exception as error:
            self.say("outcome", task=task, **{"is": "error"}, message=f"{type(error).__name__}: {error}")
            return
        self.futures[task] = future
        future.add_done_callback(lambda done: self._tell(task, done))

    def _tell(self, task: int, future: Any) -> None:
        members: Dict[str, Any] = {}
        try:
            value = future.result()
            members = {"is": "result", "value": value.decode() if isinstance(value, bytes) else value}
        except CancelledError:
            members = {"is": "cancelled"}
        except BaseException as error:
            members = {"is": "error", "message": f"{type(error).__name__}: {error}"}
        self.say("outcome", task=task, **members)

    def do_cancel(self, command: Dict[str, Any]) -> None:
        self._in_order.put(lambda: self._in_background(lambda: self._cancel(command)))

    def _cancel(self, command: Dict[str, Any]) -> None:
        future = self.futures.get(command["task"])
        if future is not None:
            future.cancel(CANCEL_TIMEOUT_SECONDS, force=command.get("force", False))

    def do_disconnect(self, command: Dict[str, Any]) -> None:
        self._in_background(self._disconnect)

    def _disconnect(self) -> None:
        if self.client is not None:
            self.client.disconnect()
        self.say("ended")

    def do_shutdown(self, command: Dict[str, Any]) -> None:
        self._in_background(self._shut_down)

    def _shut_down(self) -> None:
        assert self.client is not None
        try:
            self.client.shutdown()
        except Exception:
            self.say("shutdown", accepted=False)
        else:
            self.say("shutdown", accepted=True)


if __name__ == "__main__":
    Adapter().run()
