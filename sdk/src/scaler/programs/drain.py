"""`scaler drain WORKER …`: an operator lets workers finish their tasks and leave.

Rules:
- Which workers are meant is settled before the first one is asked: if a name is unknown or several have it, none is.
- It waits until they have left, unless told not to; what it waits for is on standard output, a line for each worker.
- Names come from workers: they are bounded and escaped.
- Exit codes: 0, done; 1, some worker is unknown, was not allowed to be asked, or has not left in time.
"""

from __future__ import annotations

import sys
import time
from typing import Dict, List, Sequence

from scaler.client import Client
from scaler.client.info import WorkerInfo
from scaler.exceptions import InvalidArgumentError, ScalerError, with_page
from scaler.programs.scaler_options import DRAIN
from scaler.values.texts import counted, shortened
from scaler_protocol.programs.terminal_texts import escaped, escaped_in_line

LOOK_INTERVAL_SECONDS = 0.25
MAXIMUM_WORKERS = 1_000_000
EXIT_FAILED = 1
_LONGEST_NAME = 256  # characters


def main(arguments: Sequence[str]) -> int:
    """Run the program; its exit code."""
    options = DRAIN.read(list(arguments))
    try:
        with Client(options.address, key_file=options.key_file, insecure=options.insecure or None) as client:
            chosen = chosen_workers(connected_workers(client), options.workers or [], options.all_on or [])
            for worker in chosen:
                client.shutdown_worker(worker.session, drain=not options.now)
                print(f"{described(worker)} {'stops' if options.now else 'drains'}", flush=True)
            if options.wait:
                return wait_until_left(client, chosen, options.timeout_seconds)
    except ScalerError as error:
        print(f"scaler drain: {escaped(with_page(error))}", file=sys.stderr)
        return EXIT_FAILED
    return 0


def connected_workers(client: Client) -> List[WorkerInfo]:
    """The workers that the scheduler knows, and of which this client may know."""
    return list(client.info(maximum_workers=MAXIMUM_WORKERS).workers)


def described(worker: WorkerInfo) -> str:
    """A worker, for people."""
    name = escaped_in_line(shortened(worker.name, _LONGEST_NAME)) or "a worker without a name"
    return f"{name} (session {worker.session}, {escaped_in_line(shortened(worker.host, _LONGEST_NAME))})"


def chosen_workers(connected: Sequence[WorkerInfo], words: Sequence[str], hosts: Sequence[str]) -> List[WorkerInfo]:
    """The workers that are meant, each once.

    Parameters:
        words: names, or numbers of sessions.
        hosts: all workers there are meant.

    Raises InvalidArgumentError if a word means no worker, or several, or if there is none on a host.
    """
    chosen: Dict[int, WorkerInfo] = {}
    for word in words:
        found = [each for each in connected if each.name == word] or [
            each for each in connected if str(each.session) == word
        ]
        if not found:
            raise InvalidArgumentError(f"no worker with the name or session {word!r} is connected (any more)")
        if len(found) > 1:
            sessions = ", ".join(str(each.session) for each in found[:20])
            text = f"{len(found)} workers have the name {word!r}: choose by session ({sessions})"
            raise InvalidArgumentError(text)
        chosen[found[0].session] = found[0]
    for host in hosts:
        there = [each for each in connected if each.host == host]
        if not there:
            hosts_there = sorted({shortened(each.host, _LONGEST_NAME) for each in connected})[:20]
            known = ", ".join(map(escaped_in_line, hosts_there)) or "none"
            raise InvalidArgumentError(f"no worker on the host {host!r} is connected; hosts with workers: {known}")
        chosen.update((each.session, each) for each in there)
    return list(chosen.values())


def wait_until_left(client: Client, workers: Sequence[WorkerInfo], timeout_seconds: float) -> int:
    """Wait until workers have left; the exit code.

    Parameters:
        timeout_seconds: how long to wait at most; 0: for ever.
    """
    deadline = time.monotonic() + timeout_seconds if timeout_seconds else float("inf")
    waiting = {worker.session: worker for worker in workers}
    while True:
        connected = {worker.session: worker for worker in connected_workers(client)}
        for session in [session for session in waiting if session not in connected]:
            print(f"{described(waiting.pop(session))} has left", flush=True)
        if not waiting:
            return 0
        if time.monotonic() >= deadline:
            for session in waiting:
                tasks = counted(connected[session].tasks, "task")
                print(f"scaler drain: {described(connected[session])} still has {tasks}", file=sys.stderr)
            return EXIT_FAILED
        time.sleep(LOOK_INTERVAL_SECONDS)
