"""The first list of bugs that are planted to see whether the simulation catches them, and all lists together.

Rule: each is a mistake that is easily made: a case forgotten, a step left out, a wrong bound. See `bugs.planting` for
how they are planted.
"""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.actor_bugs import ACTOR_BUGS
from whole_system.bugs.client_holder_bugs import CLIENT_HOLDER_BUGS
from whole_system.bugs.kept_result_bugs import KEPT_RESULT_BUGS
from whole_system.bugs.leaving_bugs import LEAVING_BUGS
from whole_system.bugs.link_bugs import LINK_BUGS
from whole_system.bugs.memory_bugs import MEMORY_BUGS
from whole_system.bugs.new_bugs import NEW_BUGS
from whole_system.bugs.planting import AGENT as _AGENT
from whole_system.bugs.planting import CLIENT as _CLIENT
from whole_system.bugs.planting import SCHEDULER as _SCHEDULER
from whole_system.bugs.planting import SESSION as _SESSION
from whole_system.bugs.planting import PlantedBug, planted
from whole_system.bugs.storage_bugs import STORAGE_BUGS
from whole_system.bugs.tenant_bugs import TENANT_BUGS
from whole_system.bugs.transfer_bugs import TRANSFER_BUGS
from whole_system.bugs.trial_bugs import OF_THE_FIRST_LIST, TRIAL_BUGS
from whole_system.bugs.unit_bugs import UNIT_BUGS

__all__ = ["BUGS_OF_THE_TRIAL", "NEW_BUGS", "PLANTED_BUGS", "PlantedBug", "planted"]

_FIRST_BUGS: Dict[str, PlantedBug] = {
    # Client ---------------------------------------------------------------------------------------------------------
    "a large result that came too late is never deleted": PlantedBug(
        "client",
        f"{_CLIENT}.pending_futures:PendingFutures._on_mixed_results",
        "if object_id:\n                self._let_go(object_id)",
        "pass",
    ),
    "a large result that was fetched is never deleted": PlantedBug(
        "client", f"{_CLIENT}.pending_futures:PendingFutures.on_object_response", "self._let_go(message.id)", "pass"
    ),
    "a cancel that was refused ends the future": PlantedBug(
        "client",
        f"{_CLIENT}.pending_futures:PendingFutures.on_cancel_confirm",
        "outcome == m.CancelOutcome.CANCELLED",
        "outcome != m.CancelOutcome.NOT_FOUND",
    ),
    "a cancel without an answer is forgotten with its session": PlantedBug(
        "client",
        f"{_CLIENT}.client_core:ClientCore.on_lost",
        "self.pending.cancel([future for future in list(self.futures.values()) if future._is_cancel_asked])",
        "pass",
    ),
    "functions are not placed again in a new session": PlantedBug(
        "client",
        f"{_CLIENT}.recovery:Recovery.start_session",
        "for function_object in run.function_objects:",
        "for function_object in ():",
    ),
    "objects placed again for tasks alone are never deleted": PlantedBug(
        "client", f"{_CLIENT}.recovery:Recovery._delete_unheld", "if unheld:", "if False:"
    ),
    "an object is deleted before all tasks that need it are sent again": PlantedBug(
        "client", f"{_CLIENT}.client_core:ClientCore._let_go", "if not self._recovery.needs(each)", "if True"
    ),
    "a task that may run once is sent again": PlantedBug(
        "client",
        f"{_CLIENT}.recovery:_why_not_again",
        "run.was_sent and run.options is not None and run.options.at_most_once",
        "False",
    ),
    "credit released in a session counts in the next": PlantedBug(
        "client",
        f"{_CLIENT}.credit:Credit.restart",
        "self._tasks_released = self._bytes_released = 0",
        "self._tasks_released = getattr(self, '_tasks_released', 0); self._bytes_released = 0",
    ),
    "one task more than the scheduler takes is sent": PlantedBug(
        "client", f"{_CLIENT}.credit:Credit.is_left", "self.tasks_left > 0", "self.tasks_left >= 0"
    ),
    "a deferred task goes on when the first of its predecessors ended": PlantedBug(
        "client", f"{_CLIENT}.deferring:Deferring.on_ended", "if not task.missing and", "if"
    ),
    "who waits for a deferred task waits for its former number": PlantedBug(
        "client",
        f"{_CLIENT}.client_core:ClientCore._submit_deferred",
        "self.pending.deferring.renumber(number, future._task_id)",
        "pass",
    ),
    "a part of a batch is sent again with the payloads of its first tasks": PlantedBug(
        "client",
        f"{_CLIENT}.outbox:TaskRun.part",
        "for position in positions]\n",
        "for position in range(len(positions))]\n",
    ),
    "an object keeps the id of the session before": PlantedBug(
        "client",
        f"{_CLIENT}.client_objects:ClientObjects.wire_id",
        "return self._session_bits | object_id & NUMBER_MASK",
        "return object_id",
    ),
    "who waits for credit is not told that the client leaves": PlantedBug(
        "client", f"{_CLIENT}.client_core:ClientCore._refuse_waiting", "self._refuse(waiting)", "pass"
    ),
    # Agent ----------------------------------------------------------------------------------------------------------
    "a cancel of a held result answers CANCELLED": PlantedBug(
        "agent",
        f"{_AGENT}.task_flow:TaskFlow.on_cancel",
        "confirm(held, m.CancelOutcome.RUNNING)",
        "confirm(held, m.CancelOutcome.CANCELLED)",
    ),
    "the first early message is dropped": PlantedBug(
        "agent",
        f"{_AGENT}.agent_core:AgentCore.on_objects_opened",
        "early, self._early = self._early, []",
        "early, self._early = self._early[1:], []",
    ),
    "tasks that a processor gives back are lost": PlantedBug(
        "agent",
        f"{_AGENT}.task_flow:TaskFlow.on_given_back",
        "self._requeue(chunk.part(kept, kept + count))",
        "chunk.part(kept, kept + count)",
    ),
    "a processor is not told that what it gave back is settled": PlantedBug(
        "agent",
        f"{_AGENT}.task_flow:TaskFlow.on_given_back",
        "self.effects.append(Deliver(number, frames.signal_frame(frames.FrameKind.SETTLED)))",
        "pass",
    ),
    "tasks behind the one that killed its processor are lost": PlantedBug(
        "agent",
        f"{_AGENT}.dead_processors:DeadProcessors._settle_chunk",
        "self._requeue(chunk.part(index + 1, chunk.count))",
        "pass",
    ),
    "a task that kills its processor gets one attempt too few": PlantedBug(
        "agent",
        f"{_AGENT}.dead_processors:DeadProcessors._settle_culprit",
        "traits.attempt <= traits.retries",
        "traits.attempt < traits.retries",
    ),
    "a task that may run once runs again when its outcome was lost": PlantedBug(
        "agent", f"{_AGENT}.dead_processors:DeadProcessors._run_again", "if traits.at_most_once:", "if False:"
    ),
    "tasks that wait for an object do not learn that it is missing": PlantedBug(
        "agent",
        f"{_AGENT}.worker_objects:WorkerObjects._give_up",
        "self.listener.on_object_missing(object_id, is_maker_lost=reason == m.MissingReason.MAKER_LOST)",
        "pass",
    ),
    "a large result is removed after its first chunk": PlantedBug(
        "agent",
        f"{_AGENT}.transfers.served_files:ServedFiles.on_chunk_read",
        "served.sent >= served.size and not self._keeps",
        "served.sent",
    ),
    "the file of a result that was kept after its session stays": PlantedBug(
        "agent", f"{_AGENT}.worker_objects:WorkerObjects.on_kept", "self._remove([target])", "pass"
    ),
    "early messages of a session are handled in the next": PlantedBug(
        "agent", f"{_AGENT}.agent_core:AgentCore._forget_session", "self._early.clear()", "pass"
    ),
    "a worker that drains leaves before it has looked at early messages": PlantedBug(
        "agent",
        f"{_AGENT}.agent_core:AgentCore.finish_turn",
        " and not self._unanswered_openings",
        "",
    ),
    "a processor runs tasks with code of two kinds": PlantedBug(
        "agent",
        f"{_AGENT}.processor_pool:ProcessorPool.take_idle",
        "if self._idle[-1].code_key != code_key and not self._put_last(code_key):",
        "if self._idle[-1].code_key is None and not self._put_last(code_key):",
    ),
    "an archive that no task waits for is kept": PlantedBug(
        "agent", f"{_AGENT}.code_sets:CodeSets.forget", "self._objects.forget(object_id)", "pass"
    ),
    "tasks that wait for an archive go on when the first of two is there": PlantedBug(
        "agent", f"{_AGENT}.code_sets:CodeSets.missing", "if digest not in self._folders:", "if not self._folders:"
    ),
    "processors go on with tasks of a session that has ended": PlantedBug(
        "agent", f"{_AGENT}.task_flow:TaskFlow.reset", "self.pool.kill(state)", "pass"
    ),
    "an object unused for long is forgotten though a task needs it": PlantedBug(
        "agent", f"{_AGENT}.worker_objects:WorkerObjects.forget_unused", ".difference(needed())", ".difference(())"
    ),
    "a processor that dies with a task keeps its slot": PlantedBug(
        "agent",
        f"{_AGENT}.processor_pool:ProcessorPool.remove",
        "elif state.chunks:\n        self.busy -= 1",
        "elif state.chunks:\n        pass",
    ),
    "a large result that was lost is held for ever": PlantedBug(
        "agent",
        f"{_AGENT}.finished_tasks:FinishedTasks.on_unserved",
        'self._lose_result(held.traits, held.instance, f"object {object_id:x}")',
        "pass",
    ),
    "a draining worker leaves before its tasks have ended": PlantedBug(
        "agent",
        f"{_AGENT}.agent_core:AgentCore.finish_turn",
        "if self.session.state is _DRAINING and tasks.is_empty and",
        "if self.session.state is _DRAINING and",
    ),
    "a task that waits for others keeps its slot": PlantedBug(
        "agent", f"{_AGENT}.processor_pool:ProcessorPool.suspend", "self.busy -= 1", "pass"
    ),
    "a task that goes on takes no slot": PlantedBug(
        "agent", f"{_AGENT}.processor_pool:ProcessorPool.resume", "self.busy += 1", "pass"
    ),
    "the definition of a named function is taken for an object that is missing": PlantedBug(
        "agent",
        f"{_AGENT}.worker_objects:WorkerObjects.is_available",
        " or object_id in self.named_functions",
        "",
    ),
    # Session --------------------------------------------------------------------------------------------------------
    "silence of the scheduler is not noticed": PlantedBug(
        "session",
        f"{_SESSION}.peer_session:PeerSession._on_time_in_session",
        "if now >= self._silent_since + self._silence_timeout_seconds:",
        "if False:",
    ),
    "after a failed attempt to connect there is no other": PlantedBug(
        "session", f"{_SESSION}.peer_session:PeerSession.on_connect_failed", "self._pause(now)", "pass"
    ),
    "a lost session's connection stays open": PlantedBug(
        "session",
        f"{_SESSION}.peer_session:PeerSession._interrupt",
        "(Disconnect(), Interrupted(reason, was_open, refusal))",
        "(Interrupted(reason, was_open, refusal),)",
    ),
    "who is not known any more gives up": PlantedBug(
        "session",
        f"{_SESSION}.peer_session:PeerSession._on_refusal",
        "event = SessionEvent.NOT_GREETED",
        "event = SessionEvent.REFUSED",
    ),
    "a farewell that is not answered lasts for ever": PlantedBug(
        "session",
        f"{_SESSION}.peer_session:PeerSession.on_time",
        "if now >= self._left_at + self._settings.leave_timeout_seconds:",
        "if False:",
    ),
    "the first chunk of an object is requested twice": PlantedBug(
        "session",
        f"{_SESSION}.fetching:FetchWindow.accept",
        "self._requested_bytes = min(requested, size)",
        "self._requested_bytes = 0",
    ),
    # Scheduler ------------------------------------------------------------------------------------------------------
    "a cancel in flight is forgotten with its worker": PlantedBug(
        "scheduler",
        f"{_SCHEDULER}.tasks.requeue:Requeue.requeue_all",
        "self.finish_cancelled(batch, start, stop)",
        "pass",
    ),
    "tasks are queued twice after the loss of their worker": PlantedBug(
        "scheduler",
        f"{_SCHEDULER}.tasks.requeue:Requeue.requeue",
        "self._state.ready.add(TaskSpan(batch, first, end), in_front=True)",
        "[self._state.ready.add(TaskSpan(batch, first, end), in_front=True) for _ in (1, 2)]",
    ),
    "a task that may run once runs again after a polite leave": PlantedBug(
        "scheduler",
        f"{_SCHEDULER}.tasks.requeue:Requeue.requeue_all",
        "is_counted = is_fault or batch.options.at_most_once",
        "is_counted = is_fault",
    ),
    "a task gets one attempt too many when workers are lost": PlantedBug(
        "scheduler",
        f"{_SCHEDULER}.tasks.requeue:Requeue._count_losses",
        "batch.count_loss(index, what) < limit",
        "batch.count_loss(index, what) <= limit",
    ),
    "a waiting node that ends keeps its objects": PlantedBug(
        "scheduler",
        f"{_SCHEDULER}.graphs.graph_reactions:GraphReactions._end_waiting",
        "done += self._outcomes.release_all(client, needed, stop - start, is_lost)",
        "pass",
    ),
    "the failure of a node is not passed on": PlantedBug(
        "scheduler",
        f"{_SCHEDULER}.graphs.graph_reactions:GraphReactions._pass_on",
        "return self._pass_failure_on(client, graph, node, successors)",
        "return 1",
    ),
    "an answer without tasks leaves the request to rebalance open": PlantedBug(
        "scheduler",
        f"{_SCHEDULER}.placement.rebalance:Rebalance.on_balance_response",
        "if message.request_id == worker.balance_request:",
        "if message.ids and message.request_id == worker.balance_request:",
    ),
    "the same object twice among the arguments of a task is counted once": PlantedBug(
        "scheduler",
        f"{_SCHEDULER}.tasks.acceptance:Acceptance._reference_objects",
        "in batch.dependencies_of(index, index + 1):",
        "in set(batch.dependencies_of(index, index + 1)):",
    ),
    "the credit of a task that fails is not given back": PlantedBug(
        "scheduler",
        f"{_SCHEDULER}.tasks.task_outcomes:TaskOutcomes.finish",
        "if batch.is_charged:",
        "if batch.is_charged and first_state != TaskState.FAILED:",
    ),
    "a second cancel, by force, is ignored": PlantedBug(
        "scheduler",
        f"{_SCHEDULER}.tasks.task_outcomes:TaskOutcomes.cancel",
        "elif force or before == TaskState.ASSIGNED:",
        "elif before == TaskState.ASSIGNED:",
    ),
    "an object is removed while tasks need it": PlantedBug(
        "scheduler",
        f"{_SCHEDULER}.objects.object_table:ObjectTable._remove_if_unused",
        "if record.held or record.references:",
        "if record.held:",
    ),
    "who waits for a part of an object does not get it when it arrives": PlantedBug(
        "scheduler", f"{_SCHEDULER}.objects.object_table:ObjectTable.answer_some", "self.serve(record, request)", "pass"
    ),
    "the objects of a lost worker are kept": PlantedBug(
        "scheduler",
        f"{_SCHEDULER}.objects.object_reactions:ObjectReactions.on_session_gone",
        "yield from self.drop_all(session)",
        "pass",
    ),
    "a worker is not told that an object is gone": PlantedBug(
        "scheduler",
        f"{_SCHEDULER}.placement.announcing:Announcing._send",
        "record.announced_to.add(worker.number)",
        "pass",
    ),
    "monitors are not told that a large result has another owner": PlantedBug(
        "scheduler",
        f"{_SCHEDULER}.tasks.worker_reports:WorkerReports._transfer_objects",
        "self._state.changes.objects.touch_large(record)",
        "pass",
    ),
    "each run of tasks of a batch has all the room that there is": PlantedBug(
        "scheduler", f"{_SCHEDULER}.tasks.acceptance:Acceptance._queue", "room -= accepted - start", "pass"
    ),
    "a worker that is suspected of a loss gets a task too many": PlantedBug(
        "scheduler",
        f"{_SCHEDULER}.placement.prefetch:PrefetchCredit.of",
        "free_slots = worker.slots - worker.assigned",
        "free_slots = worker.slots - worker.assigned + 1",
    ),
}

PLANTED_BUGS: Dict[str, PlantedBug] = {
    **KEPT_RESULT_BUGS,
    **TRANSFER_BUGS,
    **CLIENT_HOLDER_BUGS,
    **_FIRST_BUGS,
    **TRIAL_BUGS,
    **NEW_BUGS,
    **ACTOR_BUGS,
    **LEAVING_BUGS,
    **LINK_BUGS,
    **TENANT_BUGS,
    **STORAGE_BUGS,
    **UNIT_BUGS,
    **MEMORY_BUGS,
}

BUGS_OF_THE_TRIAL = (*OF_THE_FIRST_LIST, *TRIAL_BUGS)
"""The names of the fifteen of the trial."""
