"""The specification's invalid messages: each costs its sender the session, with the verdict that it should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List

import pytest
from scheduler_harness import Harness

from scaler_appliance.core.effects import PeerError
from scaler_protocol import MalformedMessageError, decode
from scaler_protocol import messages as m

INVALID = Path(__file__).resolve().parents[3] / "protocol-spec/vectors/invalid"


def names() -> List[str]:
    return sorted(path.name[: -len(".json")] for path in INVALID.glob("*.json"))


@pytest.mark.parametrize("name", names())
def test_an_invalid_message_is_refused_and_does_not_affect_others(harness: Harness, name: str) -> None:
    verdict = json.loads((INVALID / f"{name}.json").read_bytes())
    header = (INVALID / f"{name}.bin").read_bytes()
    other_client, worker, client = harness.client(), harness.worker(), harness.client()
    sender = worker if verdict.get("sender") == "worker" else client
    payload = INVALID / f"{name}.payload.bin"
    try:
        message = decode(header)
    except MalformedMessageError as error:
        assert verdict["level"] == "header"
        harness.core.on_peer_error(harness.now, sender.name, PeerError(m.RefusalReason.MALFORMED, str(error)))
    else:
        assert verdict["level"] == "message"
        harness.core.on_message(harness.now, sender.name, message, payload.read_bytes())
    harness.state.check_invariants()
    harness.tick()

    assert sender.take_refusal(m.RefusalReason[verdict["verdict"].upper()])
    assert other_client.session in harness.state.clients
    assert sender.session not in {**harness.state.clients, **harness.state.workers}
    harness.nothing_else_was_sent()
