"""One processor: a process that runs user code, a chunk of tasks at a time.

    agent ─frames─▶ reader ─▶ main thread: run_chunk ─▶ outcomes ─flush─▶ agent
                      ▲                       │ the same task for too long
                      └── watchdog thread: flush what is finished, give back what has not started

Rules:
- The main thread reads, runs and flushes. It waits in one place only: for the next frame.
- A long task does not hold up others. The watchdog detects it within two checks, sends the finished results and gives
  back the tasks behind the running one: those of the chunk and those still in the socket. It continues to take what
  arrives until the agent has sent SETTLED, after which the agent sends nothing more behind the running task. The same
  happens at once when user code says that it is about to wait for other tasks (`before_blocking`).
- The watchdog runs only while a chunk of more than one task is in progress: by agreement the agent queues
  chunks only behind such chunks, so that no task waits behind a chunk of one task.
- A task that never releases the interpreter's lock stops the watchdog too. Tasks behind it then wait: an extension that
  computes for long must release that lock, as usual.
- `inbox_lock` is held while reading frames, `write_lock` while writing one; the order is inbox before write, never the
  reverse.
- A process that user code forks from a processor is not a processor: it drops the socket and the rest of the chunk.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
import time
from collections import deque
from typing import Deque, Dict, List, NamedTuple, Optional, Tuple

from scaler import blocking, nesting
from scaler.values.payload import Parts
from scaler.values.source_versions import versions
from scaler.worker import frames, resident_memory
from scaler.worker.frame_reader import FrameReader
from scaler.worker.frames import Frame, FrameKind
from scaler.worker.processor import imported_code
from scaler.worker.processor.chunk_runner import RunningChunk, outcome_columns, profile_columns, run_chunk
from scaler.worker.processor.defined_objects import DefinedObjects
from scaler.worker.progress import FINISHED
from scaler_protocol.host.spill import write_where_room_is
from scaler_protocol.wire.messages import TaskStatus

LOOK_INTERVAL_SECONDS = 0.02
"""How often the watchdog checks; a task is long when two consecutive checks find it running."""

_current: Optional[Processor] = None


def current() -> Optional[Processor]:
    """The processor of this process; None in any other process."""
    return _current


class ProcessorSettings(NamedTuple):
    """The settings of a processor, which it gets when it is forked."""

    name: str = ""  # for error messages
    scheduler_address: str = ""


class Processor:
    """The processor of this process.

    Parameters:
        stream: this end of the socket pair shared with the agent, blocking.
        progress: this processor's entry of the progress page.
    """

    def __init__(self, stream: socket.socket, progress: memoryview, settings: ProcessorSettings) -> None:
        self.progress = progress
        self.objects = DefinedObjects()
        self.name = settings.name
        self.scheduler_address = settings.scheduler_address
        self.process_id = os.getpid()
        self._stream = stream
        self._reader = FrameReader(stream)
        self._inbox: Deque[Frame] = deque()  # frames that the watchdog read for the main thread
        self._inbox_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._chunk: Optional[RunningChunk] = None
        self._unsettled = 0  # GIVEN_BACK frames that the agent has not answered with SETTLED
        self._blocked_depths: Dict[int, int] = {}  # by thread, for threads that wait for other tasks
        self._watch_wanted = threading.Event()
        # Made before any task runs: a new thread needs hooks of `sys` and `threading` that tasks may have removed.
        self._watchdog = threading.Thread(target=self._watch, name="scaler-watchdog", daemon=True)
        self._is_watched = False
        self._object_prefix = ""
        self._object_number = 0
        self._worked = False  # since the last garbage collection

    # Main thread --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve the agent until it sends STOP or is gone."""
        global _current
        _current = self
        os.register_at_fork(after_in_child=self._after_fork_in_child)
        blocking.set_hooks(self.before_blocking, self.after_blocking)
        nesting.set_hook(self.current_priority)
        os.environ["SCALER_ADDRESS"] = self.scheduler_address  # where `Client()` in a task connects to
        try:
            while True:
                frame = self._next_frame()
                if frame is None or frame.kind == FrameKind.STOP:
                    return
                self._handle(frame)
        except ConnectionError:
            return  # the agent is gone: the results are no longer needed
        finally:
            _current = None

    def _next_frame(self) -> Optional[Frame]:
        with self._inbox_lock:
            if self._inbox:
                return self._inbox.popleft()
            while True:
                frame = self._reader.next()
                if frame is not None:
                    return frame
                if not self._reader.fill():
                    return None

    def _handle(self, frame: Frame) -> None:
        if frame.kind == FrameKind.TASKS:
            self._run(RunningChunk(frames.parse_tasks(frame.flags, frame.body)))
        elif frame.kind == FrameKind.DEFINE:
            object_id, _, place, content = frames.parse_define(frame.body)
            self.objects.define(object_id, place, content)
        elif frame.kind == FrameKind.DROP:
            self.objects.drop(frames.parse_drop(frame.body))
            if nesting.code is not None and self.objects.is_empty:
                gc.collect()  # free clients that tasks left behind, whose functions would keep the code alive
        elif frame.kind == FrameKind.COLLECT_GARBAGE:
            self._collect_garbage(frames.parse_collect_garbage(frame.body))
        elif frame.kind == FrameKind.OBJECT_DIRECTORY:
            self._object_prefix = frames.parse_object_directory(frame.body)
        elif frame.kind == FrameKind.CODE:
            imported_code.use(*frames.parse_code(frame.body))
        elif frame.kind == FrameKind.SETTLED:
            self._settle()
        else:
            raise frames.FrameError(f"the agent sent a frame of unknown kind {frame.kind}")

    def _run(self, chunk: RunningChunk) -> None:
        self._chunk = chunk
        self._worked = True
        if chunk.tasks.task_count > 1:
            self._want_watchdog()
        run_chunk(self, chunk)
        if self.process_id != os.getpid():
            os._exit(0)  # user code forked, and its child returned from the task
        self.flush(chunk)
        self._chunk = None
        if self._blocked_depths:  # of threads that the task left behind, which have no slot
            with self._write_lock:
                self._blocked_depths.clear()
                self._send(frames.signal_frame(FrameKind.RESUMED))

    def flush(self, chunk: RunningChunk) -> None:
        """Send the outcomes so far. Main thread, between two tasks."""
        self.progress[0] |= FINISHED
        if versions.pending:
            versions.refresh()  # before users can see that the task has imported modules, and edit them
        with self._write_lock:
            now = time.perf_counter()
            busy_microseconds = int((now - chunk.busy_since) * 1e6) or 1
            chunk.busy_since = now
            self._send_outcomes(chunk, busy_microseconds)

    def _send_outcomes(self, chunk: RunningChunk, busy_microseconds: int) -> None:
        """Send and forget the outcomes so far; `write_lock` is held. The main thread may append meanwhile."""
        count = len(chunk.payloads)
        if not count:
            return
        payloads = chunk.payloads[:count]
        del chunk.payloads[:count]
        statuses, large = outcome_columns(payloads, TaskStatus.FAILED, TaskStatus.SUCCESS)
        profiles = None
        if chunk.profiles:
            profiles = profile_columns(chunk.profiles[:count])
            del chunk.profiles[:count]
        first_position = chunk.tasks.first_position + chunk.flushed
        chunk.flushed += count
        self._send(
            frames.results_frame(
                first_position=first_position,
                busy_microseconds=busy_microseconds,
                payloads=payloads,
                statuses=statuses,
                large=large,
                profiles=profiles,
            )
        )

    def _send(self, buffers: frames.Buffers) -> None:
        self._stream.sendall(frames.join(buffers))

    def _collect_garbage(self, trim_threshold_bytes: int) -> None:
        if self._worked:
            self._worked = False
            gc.collect()
        if resident_memory.resident_bytes() > trim_threshold_bytes:
            resident_memory.trim()

    def next_object_path(self) -> str:
        """A path for the next large result, which no other process uses."""
        self._object_number += 1
        return f"{self._object_prefix}{self.process_id}-{self._object_number}"

    def keep_large_result(self, content: Parts) -> bytes:
        """Write a large result to a file, for the agent to adopt; returns the payload that names it."""
        path = self.next_object_path()
        return frames.large_result(write_where_room_is(path, content), path)

    def send_log(self, position: int, stream: int, text: str) -> None:
        """Send text that the task at `position` printed. Any thread."""
        with self._write_lock:
            self._send(frames.log_frame(position, stream, text))

    # For user code -------------------------------------------------------------------------

    def current_priority(self) -> Optional[int]:
        """The priority of the task being run; None between tasks."""
        chunk = self._chunk
        return None if chunk is None else chunk.tasks.priority

    def before_blocking(self, waiter: Optional[int] = None) -> None:
        """User code is about to wait for other tasks: free the slot, and send everything that they may depend on.

        Cheap, from any thread, may be nested. Each call is followed by one of `after_blocking`.

        Parameters:
            waiter: what waits, for `after_blocking` in another thread; by default this thread.
        """
        chunk = self._chunk
        if chunk is None or self.process_id != os.getpid():
            return
        with self._write_lock:
            first = not self._blocked_depths
            thread = threading.get_ident() if waiter is None else waiter
            self._blocked_depths[thread] = self._blocked_depths.get(thread, 0) + 1
        if first:
            if chunk.tasks.task_count > 1:
                self._post(chunk, wait=threading.current_thread() is threading.main_thread())
                self._want_watchdog()
            with self._write_lock:
                self._send(frames.signal_frame(FrameKind.BLOCKED))

    def after_blocking(self, waiter: Optional[int] = None) -> None:
        """The wait announced by `before_blocking` is over: take the slot again."""
        if self.process_id != os.getpid():
            return
        thread = threading.get_ident() if waiter is None else waiter
        with self._write_lock:
            depth = self._blocked_depths.pop(thread, 0)
            if depth > 1:
                self._blocked_depths[thread] = depth - 1
            elif depth and not self._blocked_depths:
                self._send(frames.signal_frame(FrameKind.RESUMED))

    # Watchdog -----------------------------------------------------------------------------------------------

    def _want_watchdog(self) -> None:
        if not self._watch_wanted.is_set():
            self._watch_wanted.set()
        if not self._is_watched:
            # Without room for a thread, it is tried again with the next tasks.
            with contextlib.suppress(RuntimeError, MemoryError):
                self._watchdog.start()
                self._is_watched = True

    def _watch(self) -> None:
        try:
            while True:
                self._watch_wanted.wait()
                self._watch_wanted.clear()
                self._watch_while_busy()
        except OSError:
            return  # the agent is gone: the main thread will notice

    def _watch_while_busy(self) -> None:
        """Check until the main thread is idle, or everything behind its long task has been given back."""
        last_position = 0
        while True:
            time.sleep(LOOK_INTERVAL_SECONDS)
            chunk, position = self._chunk, self.progress[0]
            if chunk is None or chunk.tasks.task_count == 1:
                return
            if position == last_position and not position & FINISHED:  # else it is between two tasks
                if not chunk.has_given_back:
                    self._post(chunk, wait=False)
                elif self._unsettled:
                    self._give_back_arrived(wait=False)
                else:
                    return
            last_position = position

    def _post(self, chunk: RunningChunk, wait: bool) -> None:
        """Send finished outcomes and give back tasks that have not started, while the main thread may be running
        one."""
        with self._write_lock:
            if chunk.has_given_back:
                return
            chunk.has_given_back = True
            rest = chunk.take_rest()
            self._send_outcomes(chunk, busy_microseconds=0)
            ranges = [(chunk.tasks.first_position + chunk.tasks.task_count - rest, rest)] if rest else []
            self._give_back(ranges)
        self._give_back_arrived(wait)

    def _give_back(self, ranges: List[Tuple[int, int]]) -> None:
        self._unsettled += 1
        self._send(frames.given_back_frame(ranges))

    def _settle(self) -> None:
        with self._write_lock:
            self._unsettled -= 1

    def _give_back_arrived(self, wait: bool) -> None:
        """Give back chunks that arrived behind the running task; other frames wait for the main thread.

        Parameters:
            wait: for the reader's lock. Only the main thread may, because other threads never hold it for long.
        """
        if not self._inbox_lock.acquire(blocking=wait):
            return
        try:
            ranges = self._drain()
            if ranges:
                with self._write_lock:
                    self._give_back(ranges)
        finally:
            self._inbox_lock.release()

    def _drain(self) -> List[Tuple[int, int]]:
        ranges: List[Tuple[int, int]] = []
        while True:
            frame = self._reader.next()
            if frame is None:
                try:
                    if not self._reader.fill(socket.MSG_DONTWAIT):
                        return ranges
                except BlockingIOError:
                    return ranges
            elif (
                frame.kind == FrameKind.TASKS and self._unsettled
            ):  # otherwise the agent knows that the long task has ended
                tasks = frames.parse_tasks(frame.flags, frame.body)
                ranges.append((tasks.first_position, tasks.task_count))
            elif frame.kind == FrameKind.SETTLED:
                self._settle()
            else:
                self._inbox.append(frame)

    def _after_fork_in_child(self) -> None:
        """In a child that user code forked: leave the socket and the other tasks to the parent."""
        global _current
        _current = None
        chunk = self._chunk
        if chunk is not None:
            chunk.take_rest()
        self._stream.close()
