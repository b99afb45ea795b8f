"""The messages of recorded conversations are read, and written again as they were."""

from __future__ import annotations

import pytest
from trace_files import lines_of, names

from scaler_protocol import MalformedMessageError, decode, encode


@pytest.mark.parametrize("name", names())
def test_a_recorded_conversation_is_read(name: str) -> None:
    for line in lines_of(name):
        if line.message == "closed":
            continue
        header, *payload = line.frames
        assert len(payload) <= 1
        if line.message:
            message = decode(header)
            assert type(message).__name__ == line.message
            assert encode(message) == header
        else:
            with pytest.raises(MalformedMessageError):
                decode(header)
