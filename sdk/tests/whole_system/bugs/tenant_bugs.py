"""Bugs that let tenants mix, or get more than is theirs."""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.planting import SCHEDULER, PlantedBug

TENANT_BUGS: Dict[str, PlantedBug] = {
    # Isolation -------------------------------------------------------------------------------------------------------
    "a worker runs the tasks of any tenant": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.peers.worker_session:WorkerSession.serves",
        "self.tenant == tenant or self.tenant == ANY_TENANT",
        "True",
    ),
    "a client reads the objects of any tenant": PlantedBug(
        "scheduler", f"{SCHEDULER}.peers.sessions:Session.may_read_of", "self.tenant == tenant", "True"
    ),
    "a task may need the objects of any tenant": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.object_table:ObjectTable.refer",
        "record.held and record.tenant == tenant and",
        "record.held and",
    ),
    "a large result stays with the tenant of its worker": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.worker_reports:WorkerReports._transfer_objects",
        "self._state.objects.hand_over(record, client.tenant)",
        "pass",
    ),
    "a monitor sees the clients of any tenant": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.monitoring.status_columns:_Contents.of",
        "self.clients.of(lambda each: each.tenant == tenant)",
        "self.clients",
    ),
    "clients are told how busy all workers are": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.monitoring.info_requests:InfoRequests.on_request",
        "if sees_all(client.grant):",
        "if True:",
    ),
    "heartbeats are answered with the slots of all tenants": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.scheduler_core:SchedulerCore._on_heartbeat",
        "state.slots_for(session.tenant)",
        "state.total_slots",
    ),
    # Shares and quotas -----------------------------------------------------------------------------------------------
    "the tenant that has had most has the next turn": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.task_placement:Placement._next_tenant",
        "turns.index(min(turns))",
        "turns.index(max(turns))",
    ),
    "other tenants' priorities count for what a blocked worker gets": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.tenant_shares:count_as_urgent",
        "held_needs.tenant != needs.tenant",
        "False",
    ),
    "the quota of tasks at workers is not looked at": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.tenant_shares:TenantShares.room_of",
        "if most < 0:",
        "if True:",
    ),
    "tasks that leave a worker are still counted for the quota": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.tenant_shares:TenantShares.count_running",
        "if tenant in self.limits:",
        "if tenant in self.limits and count > 0:",
    ),
    "a task that waits for nested ones counts for the quota": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.tenant_shares:TenantShares.room_of",
        "+ self._blocked_of(tenant)",
        "",
    ),
    "the quota of waiting tasks is that of all tenants": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.waiting_quotas:WaitingQuota.room",
        "state.unfinished_of(tenant) - state.shares.running_of(tenant) - counted",
        "0",
    ),
    "the quota of objects is not looked at": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.object_reactions:ObjectReactions._exceeds_quota",
        "self._state.objects.usage_of(session.tenant).size_bytes + size > limits.maximum_object_bytes",
        "False",
    ),
}

QUIET_TENANT_BUGS: Dict[str, PlantedBug] = {
    "more urgent tasks of other tenants pass those at a shared worker for ever": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.tenant_shares:would_pass",
        "held_needs.tenant != needs.tenant",
        "False",
    ),
    "a task takes the slot of a worker that offers more although another one is free": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.free_slots:FreeSlots._least_to_spare",
        "len(worker.capabilities) > fewest",
        "False",
    ),
}
