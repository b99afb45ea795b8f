"""Ctrl-C at any moment costs the call that it interrupts, and no other.

An interpreter looks for signals when a function begins, after calls, and before loops go on; up to CPython 3.9, before
almost every instruction. Here KeyboardInterrupt is raised at each such place within a call of the client, one after the
other; what the client promises is checked after each.
"""

from __future__ import annotations

import dis
import operator
import sys
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from scaler import Client, ScalerFuture
from scaler.values import pickling

TIMEOUT_SECONDS = 30.0
OURS = ("scaler/client/", "scaler/blocking.py", "scaler_protocol/", "threading.py")

# Where CPython looks for signals: between an instruction and the next (Python/ceval.c of each version).
_LOOKS_AFTER: Tuple[str, ...] = ("CALL", "JUMP_BACKWARD", "POP_JUMP_BACKWARD", "JUMP_ABSOLUTE", "RESUME")
if sys.version_info[:2] == (3, 10):
    _LOOKS_AFTER += ("POP_JUMP_IF",)
_LOOKS_EVERYWHERE = sys.version_info < (3, 10)
_NOT_AFTER = ("NOP", "LOAD_FAST", "LOAD_CONST", "STORE_FAST", "POP_TOP", "ROT_", "DUP_", "JUMP_FORWARD")
_NOT_BEFORE = ("SETUP_FINALLY", "SETUP_WITH", "BEFORE_ASYNC_WITH", "YIELD_FROM")


def _looks_for_signals(before: str, after: str) -> bool:
    """Whether this interpreter looks for signals between these two instructions of a function."""
    if _LOOKS_EVERYWHERE:
        return bool(before) and not before.startswith(_NOT_AFTER) and after not in _NOT_BEFORE
    return before.startswith(_LOOKS_AFTER)


class Interrupter:
    """Raises KeyboardInterrupt at the so-and-so-many-th place of a call."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._places = 0
        self._before: Dict[FrameType, str] = {}

    def run(self, call: Callable[[], object]) -> bool:
        """Whether the call was interrupted."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
            self._before.clear()
        return False

    def _trace(self, frame: FrameType, event: str, _: Any) -> Optional[Callable[..., Any]]:
        if event == "call":
            if not any(part in frame.f_code.co_filename for part in OURS):
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
            self._count()
        elif event == "opcode":
            name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if _looks_for_signals(self._before.get(frame, ""), name):
                self._count()
            self._before[frame] = name
        return self._trace

    def _count(self) -> None:
        self._places += 1
        if self._places == self._number:
            raise KeyboardInterrupt


def interrupted_everywhere(call: Callable[[], object], check: Callable[[int], None]) -> int:
    """Interrupt calls at one place after the other; returns how many were interrupted."""

    def isolated() -> Iterator[None]:
        # An exception of a trace function may leave the exception that was being handled behind, as if it still were.
        # A generator has a state of its own for that, which ends with it.
        call()
        yield

    call()  # what happens once does so now
    check(0)
    number = 1
    while Interrupter(number).run(lambda: next(isolated())):
        check(number)
        number += 1
    return number - 1


def works(client: Client) -> Callable[[int], None]:
    """What holds after every interruption."""

    shell: Any = client._shell
    # In 3.9, Ctrl-C may leave these locked, for the main thread, which does not mind (`shell.left_locks`).
    locks = [] if _LOOKS_EVERYWHERE else [shell.functions._lock, shell.code._lock, pickling._versions.lock]

    def check(number: int) -> None:
        assert not any(lock._is_owned() for lock in (shell.condition, *locks)), number
        assert client.submit(abs, -2).result(TIMEOUT_SECONDS) == 2, number

    return check


def test_submit(any_client: Client) -> None:
    assert interrupted_everywhere(lambda: any_client.submit(abs, -1), works(any_client)) > 10


def test_submit_with_large_arguments(any_client: Client) -> None:
    data = bytes(100_000)
    assert interrupted_everywhere(lambda: any_client.submit(len, data), works(any_client)) > 10


def test_submit_of_what_needs_another_task(any_client: Client) -> None:
    needed = any_client.submit(abs, -1)
    assert interrupted_everywhere(lambda: any_client.submit(abs, needed), works(any_client)) > 10
    assert needed.result(TIMEOUT_SECONDS) == 1


def test_map(any_client: Client) -> None:
    assert interrupted_everywhere(lambda: any_client.map(abs, [-1, -2, -3]), works(any_client)) > 10
    assert any_client.map(abs, [-1, -2, -3]) == [1, 2, 3]


def test_get(any_client: Client) -> None:
    graph = {"a": 1, "b": (operator.neg, "a"), "c": (operator.add, "b", "b")}
    assert interrupted_everywhere(lambda: any_client.get(graph, ["c"]), works(any_client)) > 10
    assert any_client.get(graph, ["b", "c"]) == {"b": -1, "c": -2}


def test_result(any_client: Client) -> None:
    futures: List[ScalerFuture[int]] = []

    def call() -> None:
        futures[-1].result(TIMEOUT_SECONDS)

    def check(number: int) -> None:
        works(any_client)(number)
        assert futures[-1].result(TIMEOUT_SECONDS) == 1, number
        futures.append(any_client.submit(abs, -1))

    futures.append(any_client.submit(abs, -1))
    assert interrupted_everywhere(call, check) > 3


def test_wait(any_client: Client) -> None:
    futures: List[ScalerFuture[int]] = []

    def check(number: int) -> None:
        works(any_client)(number)
        assert any_client.wait(futures, TIMEOUT_SECONDS).done == set(futures), number
        futures[:] = [any_client.submit(abs, -1), any_client.submit(abs, -2)]

    check(0)
    assert interrupted_everywhere(lambda: any_client.wait(futures, TIMEOUT_SECONDS), check) > 10
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == [1, 2]


def test_the_end_of_a_with_block(any_address: str) -> None:
    """A future ends all the same; and who was interrupted can disconnect again."""
    clients = [Client(any_address)]
    futures = [clients[0].submit(abs, -1)]

    def check(number: int) -> None:
        clients[0].disconnect()
        assert futures[0].done(), number
        assert not clients[0]._shell.io.thread.is_alive(), number
        clients[0] = Client(any_address)
        futures[0] = clients[0].submit(abs, -1)

    assert interrupted_everywhere(lambda: clients[0].__exit__(None, None, None), check) > 10
    clients[0].disconnect()


def test_a_condition_is_left_free(any_client: Client) -> None:
    future = any_client.submit(abs, -1)
    interrupted_everywhere(future.done, works(any_client))
    interrupted_everywhere(lambda: future.add_done_callback(lambda _: None), works(any_client))
