"""Changed handshakes end in ZmtpError, and nothing that was changed is taken for honest. See handshake_fuzzing.py."""

from __future__ import annotations

from typing import Any

import pytest
from codec_samples import repetitions
from wire.handshake_fuzzing import STEPS, HandshakeFuzzer

from scaler_protocol.host.sodium import SodiumBox
from scaler_protocol.wire.curve import TAG_BYTES, ForgedError, SealedFrames

INPUTS = 8000


def test_changed_handshakes_open_nothing() -> None:
    fuzzer = HandshakeFuzzer()
    for number in range(repetitions(INPUTS)):
        fuzzer.run(number)
    reached = {outcome.partition(":")[0] for outcome in fuzzer.outcomes}
    assert reached == set(STEPS)


def test_an_end_that_looks_at_no_tags_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = SodiumBox.open

    def open_without_tag(self: SodiumBox, nonce: bytes, data: Any, start: int = 0) -> bytes:
        try:
            return opened(self, nonce, data, start)
        except ForgedError:
            if nonce.startswith(b"CurveZMQHELLO"):
                raise  # by which a server finds out which of its keys is meant
            # What seals also opens: both add the same stream.
            return bytes(self.seal(nonce, b"", bytes(data)[start + TAG_BYTES :])[TAG_BYTES:])

    monkeypatch.setattr(SodiumBox, "open", open_without_tag)
    with pytest.raises(AssertionError):
        _run_until_it_fails()


def test_an_end_that_crashes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_without_looking(self: SealedFrames, data: bytes, start: int = 0, stop: int = 0) -> Any:
        raise IndexError

    monkeypatch.setattr(SealedFrames, "open", open_without_looking)
    with pytest.raises(IndexError):
        _run_until_it_fails()


def _run_until_it_fails() -> None:
    fuzzer = HandshakeFuzzer()
    for number in range(INPUTS):
        fuzzer.run(number)
