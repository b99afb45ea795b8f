"""Thirty bugs over all cores, of kinds that have occurred in programs like this one.

Rule: they were written down before any was tried, and stay whether or not the simulation catches them.
"""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.planting import AGENT, CLIENT, SCHEDULER, SESSION, PlantedBug

NEW_BUGS: Dict[str, PlantedBug] = {
    # Scheduler: credit, bounds, references ---------------------------------------------------------------------------
    "a client may have one task less in flight than it was granted": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.peers.client_flow:ClientFlow.allowed",
        "left = self._tasks_enforced - self.tasks_in_flight",
        "left = self._tasks_enforced - self.tasks_in_flight - 1",
    ),
    "tasks that wait for others do not count as waiting": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.acceptance:Acceptance._room",
        "self._state.waiting()",
        "len(self._state.ready)",
    ),
    "the bytes of an object are given back to its owner, not to who was charged": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.task_outcomes:TaskOutcomes.forget_object",
        "self._state.clients.get(record.charged_to)",
        "self._state.clients.get(record.owner)",
    ),
    "the objects behind a missing one are not referenced": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.acceptance:Acceptance._reference_objects",
        "missing[index] = object_id",
        "missing[index] = object_id; break",
    ),
    "compaction drops the payloads of tasks that are at workers": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.batches:TaskBatch.compact",
        "if state not in FINAL_STATES]",
        "if state == TaskState.QUEUED]",
    ),
    "the index of tasks forgets its first 64 batches": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.first_ids:FirstIds.remove",
        "if not self._counts[place]:",
        "if len(self._chunks) > 1:",
    ),
    "the offered and the free capabilities of a worker are one table": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.peers.worker_session:WorkerSession.__init__",
        "self._free = dict(self.capabilities)",
        "self._free = self.capabilities",
    ),
    # Scheduler: who gets what, and when ------------------------------------------------------------------------------
    "a worker that dropped a cancelled task is not looked at": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.cancellation:Cancellation.on_task_cancel_confirm",
        "self._placement.on_load_changed(worker)",
        "pass",
    ),
    "the turn of a client does not end": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.ready_class:ReadyClass.count_turn",
        "self._turns.rotate(-1)",
        "pass",
    ),
    "a client that submits again goes before those who wait": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.ready_class:ReadyClass._join_turns",
        "self._turns.append(client)",
        "self._turns.appendleft(client)",
    ),
    "few tasks too many at a worker are never asked back": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.rebalance:Rebalance.rebalance",
        "count = -(-surplus * free_slots // (free_slots + donor.slots))",
        "count = surplus * free_slots // (free_slots + donor.slots)",
    ),
    "a worker is idle only if it has no task at all": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.workers_with_room:WorkersWithRoom.on_load_changed",
        "if worker.assigned < worker.slots + worker.slots_given_up:",
        "if not worker.assigned:",
    ),
    "a client that fetched its large results stays held": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.object_reactions:ObjectReactions._let_go",
        "self._flow.hold_or_resume(session)",
        "pass",
    ),
    # Scheduler: messages, times, objects -----------------------------------------------------------------------------
    "the confirmation that a task runs is held back behind results": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.client_messages:flush_client",
        "if client.running_ids:",
        "if client.running_ids and not client.outbox._messages:",
    ),
    "a peer is told the time-out of the other role": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.peers.handshake:welcome",
        "int(session.timeout_seconds * 1000)",
        "int((settings.client_timeout_seconds + settings.worker_timeout_seconds - session.timeout_seconds) * 1000)",
    ),
    "who waits for an object whose source is gone waits for ever": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.object_reactions:ObjectReactions.on_session_gone",
        "self._state.objects.give_up(record)",
        "pass",
    ),
    "spilling is tried again at once when the disk is full": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.object_memory:ObjectMemory.on_spill_failed",
        "self._retry_at = now + RETRY_SECONDS",
        "self._retry_at = now",
    ),
    # Client ----------------------------------------------------------------------------------------------------------
    "who waits for credit is not let in when there is some": PlantedBug(
        "client", f"{CLIENT}.client_core:ClientCore._on_task_echo", "self._let_in()", "pass"
    ),
    "released tasks are counted as released bytes": PlantedBug(
        "client",
        f"{CLIENT}.credit:Credit.on_task_echo",
        "echo.tasks_released, echo.bytes_released",
        "echo.tasks_released, echo.tasks_released",
    ),
    "the arguments of a task are let go before the task is sent": PlantedBug(
        "client",
        f"{CLIENT}.client_core:ClientCore._submit",
        "self._add(future, task.function, task.payload, needs, task.options)\n"
        "        self._post(task.dependencies, task.arguments_bytes)",
        "self._post(task.dependencies, task.arguments_bytes)\n"
        "        self._add(future, task.function, task.payload, needs, task.options)",
    ),
    "tasks are sent again beyond the bytes that the scheduler takes": PlantedBug(
        "client",
        f"{CLIENT}.recovery:_count_taken",
        "if count >= tasks_left or bytes_left <= 0:",
        "if count >= tasks_left:",
    ),
    "a task is left out where tasks that are sent again fill two messages": PlantedBug(
        "client", f"{CLIENT}.outbox:_parts", "start, part_bytes = index, 0", "start, part_bytes = index + 1, 0"
    ),
    # Session ---------------------------------------------------------------------------------------------------------
    "a peer reconnects without a pause": PlantedBug(
        "session",
        f"{SESSION}.peer_session:PeerSession._pause",
        "self._attempt_at = now + self._pause_seconds * (0.75 + 0.5 * self._random())",
        "self._attempt_at = now",
    ),
    "a peer beats in the interval of its time-out": PlantedBug(
        "session",
        f"{SESSION}.peer_session:PeerSession._beat",
        "self._beat_at = now + self._heartbeat_interval_seconds",
        "self._beat_at = now + self._silence_timeout_seconds",
    ),
    "a peer looks for its scheduler for ever": PlantedBug(
        "session",
        f"{SESSION}.peer_session:PeerSession._check_patience",
        "if now < self._patience_ends_at:",
        "if True:",
    ),
    # Agent -----------------------------------------------------------------------------------------------------------
    "tasks that have started are given back": PlantedBug(
        "agent", f"{AGENT}.task_queue:TaskQueue.take_newest", "if batch.traits.has_started:", "if False:"
    ),
    "tasks of one function are joined whatever their options": PlantedBug(
        "agent",
        f"{AGENT}.task_queue:HeldTasks.absorb",
        "self.traits != other.traits",
        "self.traits.function != other.traits.function",
    ),
    "the slot of a blocked task stays reserved": PlantedBug(
        "agent",
        f"{AGENT}.processor_pool:ProcessorPool.begin_turn",
        "and now - state.suspended_since < BLOCKED_SLOT_SECONDS",
        "and now >= state.suspended_since",
    ),
    "a processor that dies at once is replaced without a pause": PlantedBug(
        "agent", f"{AGENT}.processor_pool:ProcessorPool._spawn", "if self._early_deaths:", "if False:"
    ),
    "only one chunk is dealt in a turn": PlantedBug(
        "agent",
        f"{AGENT}.task_flow:TaskFlow.finish_turn",
        "while self.queue.count and self._deal(now):\n        pass",
        "if self.queue.count:\n        self._deal(now)",
    ),
}
