"""Frames that the real Cap'n Proto wrote, checked in under vectors/: what interpreters without pycapnp are held to."""

from __future__ import annotations

from pathlib import Path

import pytest
from codec_samples import SAMPLES, sample

from scaler_protocol import decode, decode_struct, encode
from scaler_protocol import messages as m

VECTORS = Path(__file__).parent / "vectors"
each_sample = pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)


@each_sample
def test_a_frame_of_one_segment(message):
    frame = (VECTORS / f"{type(message).__name__}.bin").read_bytes()
    assert frame[:4] == b"\0\0\0\0"
    assert decode(frame) == message
    assert encode(decode(frame)) == encode(message)


@each_sample
def test_a_frame_of_many_segments(message):
    frame = (VECTORS / f"{type(message).__name__}.segments.bin").read_bytes()
    assert frame[:4] != b"\0\0\0\0"
    assert decode(frame) == message


def test_a_failure():
    frame = (VECTORS / "Failure.bin").read_bytes()
    assert decode_struct(m.Failure, frame) == sample(m.Failure)


@pytest.mark.parametrize("name", ["Task", "TaskResult", "Heartbeat", "TaskCancel", "BalanceResponse"])
def test_the_hot_messages_are_written_byte_for_byte_as_capnp_does(name):
    (message,) = (each for each in SAMPLES if type(each).__name__ == name)
    assert encode(message) == (VECTORS / f"{name}.bin").read_bytes()


def test_the_vectors_are_up_to_date():
    pytest.importorskip("capnp", reason="pycapnp is not installed", exc_type=ImportError)
    from make_vectors import vectors

    assert {path.name: path.read_bytes() for path in VECTORS.glob("*.bin")} == vectors(), "run make_vectors.py"
