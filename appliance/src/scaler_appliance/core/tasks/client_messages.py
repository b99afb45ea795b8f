"""What a client is sent at the end of a burst."""

from __future__ import annotations

from array import array

from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.state import SchedulerState
from scaler_protocol import messages as m


def flush_client(state: SchedulerState, client: ClientSession) -> None:
    """Sent in this order, because `running` precedes the result, and `notFound` follows it."""
    # SCL-SCH-020
    if client.running_ids:
        outcomes = bytes([m.CancelOutcome.RUNNING]) * len(client.running_ids)
        state.send(client.peer, m.TaskCancelConfirm(ids=client.running_ids, outcomes=outcomes))
        client.running_ids = array("Q")
    for message, payload in client.outbox.drain():
        state.send(client.peer, message, payload)
    if client.confirmed_ids:
        outcomes = bytes(client.confirmed_outcomes)
        state.send(client.peer, m.TaskCancelConfirm(ids=client.confirmed_ids, outcomes=outcomes))
        client.confirmed_ids = array("Q")
        client.confirmed_outcomes = bytearray()
    if client.spilled_objects:
        state.send(client.peer, m.ObjectInstruction(action=m.ObjectAction.SPILL, ids=client.spilled_objects))
        client.spilled_objects = array("Q")
    if client.ended_objects:
        state.send(client.peer, m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=client.ended_objects))
        client.ended_objects = array("Q")
    renewal = client.flow.renewal(client.last_task_id)
    if renewal is not None:
        state.send(client.peer, renewal)
