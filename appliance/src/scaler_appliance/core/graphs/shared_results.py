"""Results that waiting tasks need, as they are kept until these tasks are ready."""

from __future__ import annotations

from typing import Union

from scaler_appliance.core.objects.object_records import ObjectRecord
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.state import SchedulerState
from scaler_protocol import messages as m
from scaler_protocol.session.ids import FIRST_SCHEDULER_NUMBER, object_id_of

SHARED_RESULT_BYTES = 1024
FAN_OUT_BYTES = 256 * 1024
"""A result of at least the former size, whose copies would exceed the latter, is sent to each worker once."""

MAXIMUM_RESULTS_BYTES = 1 << 30  # of one task's predecessors, inline
MAXIMUM_OBJECTS = 0xFFFF  # of one task


def keep_result(
    state: SchedulerState, client: ClientSession, content: bytes, codec: str, dependants: int, references: int = 0
) -> Union[bytes, int]:
    """The form in which to keep a small result: its bytes; or an object that tasks refer to, if many need it, or if it
    should be on disk.

    Parameters:
        references: to such an object, at first; 0: one for each dependant.
    """
    size = len(content)
    if size < SHARED_RESULT_BYTES or (size * dependants < FAN_OUT_BYTES and not state.budget.is_short):
        return content
    object_id = object_id_of(client.number, FIRST_SCHEDULER_NUMBER | next(state.object_numbers))
    record = ObjectRecord(object_id, client.number, size, m.ObjectKind.VALUE, "", codec, client.tenant)
    record.held = False
    record.references = references or dependants
    state.objects.add(record)
    state.objects.keep_content(record, content)
    return object_id
