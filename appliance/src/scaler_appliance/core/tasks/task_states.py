"""The state machine of a task.

Rules:
- Every transition lives in TRANSITIONS, and the table is total: each (state, event) pair is a next state, an `ignore`
  with its reason, or a `defect` of ours, which is an assertion because no peer can cause it.
- A task's state is one byte in its batch's `states` column. AFTER[event] is the table in the form of `bytes.translate`,
  so a whole span of tasks makes its transition in one call.
- No other module assigns to a column of states: it calls `apply`, or `follow` where a column repeats another one's
  outcomes, or `after` for a task without a column, or `begin_again` for a node whose result was lost.
- Nothing here depends on connected peers or the time.

    WAITING ──release──▶ QUEUED: its predecessors have all succeeded
       └────inherit_failure/lose/cancel──▶ FAILED / LOST / CANCELLED

    QUEUED ──place──▶ ASSIGNED ──succeed/fail/lose──▶ SUCCEEDED / FAILED / LOST
      ▲ │                │  ▲
      │ └─cancel─┐  cancel│  │refuse_cancel (it runs)
      │          ▼        ▼  │
      │      CANCELLED ◀── CANCELLING ──succeed/fail/lose──▶ as above: a result that crosses a cancel wins
      └──── return (worker lost, or given back) ─── ASSIGNED
"""

from __future__ import annotations

from enum import IntEnum
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple, Union


class TaskState(IntEnum):
    QUEUED = 0
    ASSIGNED = 1
    CANCELLING = 2
    SUCCEEDED = 3
    FAILED = 4
    LOST = 5
    CANCELLED = 6
    WAITING = 7  # for predecessors


class TaskEvent(IntEnum):
    PLACE = 0  # the scheduler sends it to a worker
    SUCCEED = 1  # its worker reports a result
    FAIL = 2  # its worker reports that the function failed
    LOSE = 3  # it will not be run (again): reported by its worker, no attempt is left, or rejected
    RETURN = 4  # its worker is lost, or gave it back without having started it
    CANCEL = 5  # its client asks, or is gone
    CONFIRM_CANCEL = 6  # its worker dropped it
    REFUSE_CANCEL = 7  # its worker is running it
    RELEASE = 8  # its last predecessor succeeded
    INHERIT_FAILURE = 9  # a predecessor failed, or was lost


class Ignore(NamedTuple):
    why: str


class Defect(NamedTuple):
    why: str


Decision = Union[TaskState, Ignore, Defect]

_S, _E = TaskState, TaskEvent

FINAL_STATES = frozenset({_S.SUCCEEDED, _S.FAILED, _S.LOST, _S.CANCELLED})

IS_FINAL = bytes(state in FINAL_STATES for state in range(256))
"""Translates states to whether they are final."""

TRANSITIONS: Dict[Tuple[TaskState, TaskEvent], Decision] = {
    (_S.QUEUED, _E.PLACE): _S.ASSIGNED,
    (_S.QUEUED, _E.SUCCEED): Defect("instances of a queued task are fenced"),
    (_S.QUEUED, _E.FAIL): Defect("instances of a queued task are fenced"),
    (_S.QUEUED, _E.LOSE): _S.LOST,
    (_S.QUEUED, _E.RETURN): Defect("a queued task is at no worker"),
    (_S.QUEUED, _E.CANCEL): _S.CANCELLED,
    (_S.QUEUED, _E.CONFIRM_CANCEL): Defect("instances of a queued task are fenced"),
    (_S.QUEUED, _E.REFUSE_CANCEL): Defect("instances of a queued task are fenced"),
    (_S.ASSIGNED, _E.PLACE): Defect("one owner at any time"),
    (_S.ASSIGNED, _E.SUCCEED): _S.SUCCEEDED,
    (_S.ASSIGNED, _E.FAIL): _S.FAILED,
    (_S.ASSIGNED, _E.LOSE): _S.LOST,
    (_S.ASSIGNED, _E.RETURN): _S.QUEUED,
    (_S.ASSIGNED, _E.CANCEL): _S.CANCELLING,
    (_S.ASSIGNED, _E.CONFIRM_CANCEL): _S.CANCELLED,
    (_S.ASSIGNED, _E.REFUSE_CANCEL): Ignore("no request waits for the answer"),
    (_S.CANCELLING, _E.PLACE): Defect("one owner at any time"),
    (_S.CANCELLING, _E.SUCCEED): _S.SUCCEEDED,
    (_S.CANCELLING, _E.FAIL): _S.FAILED,
    (_S.CANCELLING, _E.LOSE): _S.LOST,
    (_S.CANCELLING, _E.RETURN): _S.CANCELLED,
    (_S.CANCELLING, _E.CANCEL): Ignore("asked already"),
    (_S.CANCELLING, _E.CONFIRM_CANCEL): _S.CANCELLED,
    (_S.CANCELLING, _E.REFUSE_CANCEL): _S.ASSIGNED,
    **{(state, _E.PLACE): Defect("a finished task is in no queue") for state in FINAL_STATES},
    **{(state, _E.RETURN): Defect("a finished task is at no worker") for state in FINAL_STATES},
    **{
        (state, event): Ignore("the task has its one outcome")
        for state in FINAL_STATES
        for event in (_E.SUCCEED, _E.FAIL, _E.LOSE, _E.CANCEL, _E.CONFIRM_CANCEL, _E.REFUSE_CANCEL, _E.INHERIT_FAILURE)
    },
    **{
        (_S.WAITING, event): Defect("a task that waits for predecessors was never at a worker")
        for event in (_E.PLACE, _E.SUCCEED, _E.FAIL, _E.RETURN, _E.CONFIRM_CANCEL, _E.REFUSE_CANCEL)
    },
    (_S.WAITING, _E.LOSE): _S.LOST,
    (_S.WAITING, _E.CANCEL): _S.CANCELLED,
    (_S.WAITING, _E.RELEASE): _S.QUEUED,
    (_S.WAITING, _E.INHERIT_FAILURE): _S.FAILED,
    **{(state, _E.RELEASE): Defect("a task is released once") for state in _S if state != _S.WAITING},
    **{
        (state, _E.INHERIT_FAILURE): Defect("all predecessors of a released task have succeeded")
        for state in (_S.QUEUED, _S.ASSIGNED, _S.CANCELLING)
    },
}

_FAULT_BYTE = 255
_BYTES = tuple(bytes([state]) for state in TaskState)


def _translation(event: TaskEvent) -> bytes:
    table = bytearray([_FAULT_BYTE] * 256)
    for state in TaskState:
        decision = TRANSITIONS[state, event]
        if isinstance(decision, TaskState):
            table[state] = decision
        elif isinstance(decision, Ignore):
            table[state] = state
    return bytes(table)


AFTER: Tuple[bytes, ...] = tuple(_translation(event) for event in TaskEvent)
"""AFTER[event] translates a span of states; a byte of 255 in the outcome is a Defect."""


def _reachable(state: TaskState) -> FrozenSet[int]:
    found: Set[int] = set()
    to_visit = [state]
    while to_visit:
        visited = to_visit.pop()
        following = [TRANSITIONS[visited, event] for event in TaskEvent]
        to_visit += [each for each in following if isinstance(each, TaskState) and each not in found]
        found.update(each for each in following if isinstance(each, TaskState))
    return frozenset(found)


REACHABLE: Tuple[FrozenSet[int], ...] = tuple(_reachable(state) for state in TaskState)
"""REACHABLE[state]: the states that some events lead to from there."""


def apply(states: bytearray, start: int, stop: int, event: TaskEvent) -> None:
    """Let tasks [start, stop) of a batch make the transition of `event`."""
    if stop - start == 1:  # a lone task, on which latency depends
        state = AFTER[event][states[start]]
        assert state != _FAULT_BYTE, f"{event.name} of {TaskState(states[start]).name}"
        states[start] = state
        return
    after = states[start:stop].translate(AFTER[event])
    assert _FAULT_BYTE not in after, f"{event.name} of {[TaskState(state).name for state in set(states[start:stop])]}"
    states[start:stop] = after


def after(state: TaskState, event: TaskEvent) -> TaskState:
    """The state that `event` leads to, for a task whose state is not in a column."""
    decision = TRANSITIONS[state, event]
    assert not isinstance(decision, Defect), f"{event.name} of {state.name}"
    return decision if isinstance(decision, TaskState) else state


def follow(states: bytearray, start: int, followed: Union[bytes, bytearray]) -> None:
    """Let a column that repeats another one's outcomes take over states, to which the table must lead from here."""
    stop = start + len(followed)
    for before, after_it in set(zip(states[start:stop], followed)):
        assert after_it in REACHABLE[before], f"{TaskState(after_it).name} does not come after {before}"
    states[start:stop] = followed


def begin_again(states: bytearray, task: int) -> None:
    """A node whose result is gone, or whose input is, waits for its predecessors again: a life of its own, of which no
    event of the table is part, because no client was told how the first one ended."""
    assert states[task] in (TaskState.SUCCEEDED, TaskState.QUEUED), f"{TaskState(states[task]).name} begins again"
    states[task] = TaskState.WAITING


def first_run(states: Union[bytes, bytearray], start: int, stop: int, state: int) -> Optional[Tuple[int, int]]:
    """The first maximal span of tasks within [start, stop) that are in `state`."""
    byte = _BYTES[state]
    start = states.find(byte, start, stop)
    if start < 0:
        return None
    if stop - start == 1:
        return start, stop
    rest = states[start:stop]
    return start, stop - len(rest.lstrip(byte))


def runs(states: Union[bytes, bytearray], start: int, stop: int, state: int) -> List[Tuple[int, int]]:
    """All maximal spans of tasks within [start, stop) that are in `state`."""
    found: List[Tuple[int, int]] = []
    run = first_run(states, start, stop, state)
    while run is not None:
        found.append(run)
        run = first_run(states, run[1], stop, state) if run[1] < stop else None
    return found
