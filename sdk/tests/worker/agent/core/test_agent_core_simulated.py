"""A whole agent's core under everything that may happen to it, as a seed decides: lost sessions, a slow or full disk
that loses files, processors that die, objects that are missing, cancels, requests to give tasks back.

What is checked is what the scheduler sees: each task that it sent in a session has at most one end in that session, and
exactly one if the session lasts. When all is done, no task and no file is left that should not be.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter
from typing import Any, Dict, List

import pytest
from agent_core_bench import CHUNK, PREFIX, Agent

from scaler.worker import frames
from scaler_protocol import messages as m
from scaler_protocol.session.effects import Connect

STEPS = 300
QUIET_STEPS = 3000
OBJECTS = range(1 << 40 | 10, 1 << 40 | 18)
SIZE = 3 * CHUNK - 7


class World:
    """A scheduler, processors and a disk around one core."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.agent = Agent(session=0, slots=self.random.randint(1, 3), is_shared=self.random.random() < 0.5)
        self.session = 0
        self.is_welcome = False
        self.next_id = 1
        self.next_file = 1
        self.open_tasks: Dict[int, bool] = {}  # sent in this session and without an end; whether a cancel is open
        self.ends: Counter[int] = Counter()
        self.chunks: Dict[int, List[frames.TaskChunk]] = {}  # by processor
        self.started: Dict[int, bool] = {}
        self.object_requests: List[m.ObjectRequest] = []
        self.results: Dict[int, int] = {}  # sizes of results that are not fetched yet

    # What the scheduler does

    def connect(self) -> None:
        agent = self.agent
        if Connect() in agent.performed:
            agent.connect()
            self.session += 1
            self.open_tasks.clear()
            self.object_requests.clear()
            self.results.clear()
            agent.take(m.Hello)
            assert agent.sent == [], "nothing may be said before a Welcome"
            agent.welcome(self.session)
            agent.create_function()
            self.is_welcome = True

    def end_session(self) -> None:
        if self.is_welcome:
            self.hear()
            self.is_welcome = False
            if self.random.random() < 0.5:
                self.agent.lose_connection()
            else:
                self.agent.receive(m.Refusal(reason=m.RefusalReason.NOT_GREETED))
            assert not self.agent.sent

    def send_tasks(self) -> None:
        count = self.random.choice([1, 1, 2, 5])
        ids = range(self.next_id, self.next_id + count)
        self.next_id += count
        self.open_tasks.update(dict.fromkeys(ids, False))
        needed = [self.random.choice(OBJECTS)] if self.random.random() < 0.4 else []
        retries = self.random.choice([0, 3])
        self.agent.send_tasks(*ids, dependencies=needed, retries=retries, at_most_once=self.random.random() < 0.3)

    def cancel(self) -> None:
        if self.open_tasks:
            instance = self.random.choice(sorted(self.open_tasks))
            self.agent.receive(m.TaskCancel(ids=array("Q", [instance]), force=self.random.random() < 0.5))

    def answer_request(self) -> None:
        if self.object_requests:
            request = self.object_requests.pop(self.random.randrange(len(self.object_requests)))
            response = m.ObjectResponse(id=request.id, offset=request.offset, size=SIZE)
            if self.random.random() < 0.1:
                missing = m.ObjectResponseStatus.MISSING
                response = m.ObjectResponse(id=request.id, offset=request.offset, status=missing)
            length = min(request.length, SIZE - request.offset) if response.size else 0
            self.agent.receive(response, bytes(length))

    def fetch_result(self) -> None:
        for object_id, size in list(self.results.items()):
            del self.results[object_id]
            for offset in range(0, size, CHUNK):
                self.agent.receive(m.ObjectRequest(id=object_id, offset=offset, length=CHUNK))

    def hear(self) -> None:
        """Take what the core has sent."""
        sent, self.agent.sent = self.agent.sent, []
        for message, _ in sent:
            assert self.is_welcome, f"{message} after the end of its session"
            if isinstance(message, m.TaskResult):
                self.end(message.ids)
            elif isinstance(message, m.TaskCancelConfirm):
                outcomes = zip(message.ids, message.outcomes)
                self.end([instance for instance, outcome in outcomes if outcome == m.CancelOutcome.CANCELLED])
            elif isinstance(message, m.BalanceResponse):
                self.end(message.ids)
            elif isinstance(message, m.ObjectRequest):
                self.object_requests.append(message)
            elif isinstance(message, m.ObjectInstruction) and message.storages[0] == m.ObjectStorage.REMOTE:
                self.results[message.ids[0]] = message.sizes[0]
        for number, chunk in self.agent.dealt():
            self.chunks.setdefault(number, []).append(chunk)

    def end(self, ids: Any) -> None:
        for instance in ids:
            assert instance in self.open_tasks, f"task {instance} has another end, or is not of this session"
            del self.open_tasks[instance]
            self.ends[instance] += 1

    # What processors and the disk do

    def run_processor(self) -> None:
        self.chunks = {number: chunks for number, chunks in self.chunks.items() if number in self.agent.processors}
        busy = sorted(number for number, chunks in self.chunks.items() if chunks)
        if not busy:
            return
        number = self.random.choice(busy)
        chunk = self.chunks[number][0]
        if not self.started.pop(number, False):
            self.agent.start(number, chunk)
            self.started[number] = True
            return
        self.chunks[number].pop(0)
        if self.random.random() < 0.3:
            size = self.random.choice([1, CHUNK, 2 * CHUNK + 1])
            path = f"{PREFIX}{1000 + number}-{self.next_file}"
            self.next_file += 1
            self.agent.files[path] = bytearray(size)
            self.agent.finish(number, chunk, frames.large_result(size, path), is_large=True)
        else:
            self.agent.finish(number, chunk)

    def kill_processor(self) -> None:
        if self.agent.processors:
            number = self.random.choice(sorted(self.agent.processors))
            self.chunks.pop(number, None)
            self.started.pop(number, None)
            self.agent.die(number)
            self.agent.turn()

    def move_disk(self) -> None:
        chance = self.random.random()
        self.agent.disk_is_full = chance < 0.1
        if chance > 0.95 and self.agent.files:
            del self.agent.files[self.random.choice(sorted(self.agent.files))]
        self.agent.answers_files = chance < 0.4 and not self.agent.unanswered
        if self.agent.unanswered:
            self.agent.answer(self.agent.unanswered.pop(0))
            self.agent.turn()

    def step(self) -> None:
        chance = self.random.random()
        if not self.is_welcome:
            self.agent.wait(0.2)
            self.connect()
        elif chance < 0.15:
            self.send_tasks()
        elif chance < 0.2:
            self.cancel()
        elif chance < 0.22:
            self.agent.receive(m.BalanceRequest(count=self.random.randint(1, 3)))
        elif chance < 0.24:
            self.end_session()
        elif chance < 0.28:
            self.kill_processor()
        elif chance < 0.3:
            deleted = array("Q", [self.random.choice(OBJECTS)])
            self.agent.receive(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=deleted))
        else:
            self.calm_step()
        if self.random.random() < 0.5:
            self.move_disk()
        self.hear()

    def calm_step(self) -> None:
        self.agent.wait(0.01)
        self.hear()
        self.random.choice([self.run_processor, self.answer_request, self.fetch_result])()
        self.hear()


@pytest.mark.parametrize("seed", range(150))
def test_every_task_of_a_session_has_one_end_in_it(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    agent = world.agent
    agent.disk_is_full, agent.answers_files = False, True
    agent.answer_files()
    world.hear()
    for _ in range(QUIET_STEPS):
        if not world.is_welcome:
            agent.wait(0.2)
            world.connect()
        elif agent.core.tasks.is_empty:
            break
        else:
            world.calm_step()

    assert agent.core.tasks.is_empty
    assert world.open_tasks == {}
    assert max(world.ends.values(), default=1) == 1
    world.end_session()
    agent.turn()
    assert not [path for path in agent.files if path.startswith("/own/")]
    assert agent.exit_code is None
