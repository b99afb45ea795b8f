"""Frames survive the way through a stream socket, however it cuts them."""

from __future__ import annotations

import random
import socket
import struct
from array import array
from typing import Iterator, List, Tuple

import pytest

from scaler.worker import frames
from scaler.worker.frame_reader import FrameReader
from scaler.worker.frames import ContentPlace, Frame, FrameError, FrameKind, ResultsFlag, TasksFlag

Ends = Tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


def read_all(reader: FrameReader) -> List[Frame]:
    found: List[Frame] = []
    while True:
        frame = reader.next()
        if frame is None:
            return found
        found.append(frame)


def test_a_chunk_of_tasks_arrives_as_it_was_sent(ends: Ends) -> None:
    writer, stream = ends
    ids, sizes = array("Q", [5, 2**64 - 1]), array("I", [1, 3])
    counts, dependencies = array("H", [0, 2]), array("Q", [8, 9])
    writer.sendall(
        frames.join(
            frames.tasks_frame(
                function=77,
                first_position=12,
                client=4,
                attempt=2,
                priority=-3,
                flags=TasksFlag.PROFILING,
                ids=ids,
                sizes=sizes,
                payload=memoryview(b"abcd"),
                dependency_counts=counts,
                dependencies=dependencies,
            )
        )
    )
    reader = FrameReader(stream)
    reader.fill()
    [frame] = read_all(reader)
    chunk = frames.parse_tasks(frame.flags, frame.body)

    assert (chunk.function, chunk.first_position, chunk.client, chunk.attempt) == (77, 12, 4, 2)
    assert chunk.priority == -3
    assert (chunk.task_count, chunk.flags) == (2, TasksFlag.PROFILING | TasksFlag.DEPENDENCIES)
    assert (chunk.ids, chunk.sizes) == (ids, sizes)
    assert (chunk.dependency_counts, chunk.dependencies) == (counts, dependencies)
    assert chunk.body[chunk.payload_offset :] == b"abcd"


def test_results_with_all_columns_arrive_as_they_were_sent(ends: Ends) -> None:
    profiles = (array("Q", [1, 2]), array("Q", [3, 4]), array("Q", [5, 6]))
    data = frames.join(
        frames.results_frame(
            first_position=9,
            busy_microseconds=17,
            payloads=[b"one", b""],
            statuses=b"\x00\x01",
            large=b"\x01\x00",
            profiles=profiles,
        )
    )
    size, kind, flags = struct.unpack_from("<IHH", data)
    results = frames.parse_results(flags, data[8:])

    assert kind == FrameKind.RESULTS
    assert size == len(data) - 8
    assert flags == ResultsFlag.STATUSES | ResultsFlag.LARGE | ResultsFlag.PROFILES
    assert (results.first_position, results.busy_microseconds, list(results.sizes)) == (9, 17, [3, 0])
    assert (results.statuses, results.large, results.profiles) == (b"\x00\x01", b"\x01\x00", profiles)
    assert bytes(results.payload) == b"one"


def test_the_small_frames_say_what_they_were_told() -> None:
    def body(buffers: frames.Buffers) -> bytes:
        return frames.join(buffers)[8:]

    object_id, kind, place, content = frames.parse_define(
        body(frames.define_frame(3, 1, ContentPlace.FILE, b"/a/path"))
    )
    assert (object_id, kind, place, bytes(content)) == (3, 1, ContentPlace.FILE, b"/a/path")
    assert list(frames.parse_drop(body(frames.drop_frame([1, 2])))) == [1, 2]
    assert frames.parse_collect_garbage(body(frames.collect_garbage_frame(99))) == 99
    assert frames.parse_object_directory(body(frames.object_directory_frame("/tmp/ü"))) == "/tmp/ü"
    assert frames.parse_given_back(body(frames.given_back_frame([(1, 2), (9, 3)]))) == [(1, 2), (9, 3)]
    assert frames.parse_log(body(frames.log_frame(7, 2, "text"))) == (7, 2, "text")
    assert frames.parse_large_result(frames.large_result(1 << 40, "/x")) == (1 << 40, "/x")
    assert body(frames.signal_frame(FrameKind.STOP)) == b""


@pytest.mark.parametrize("seed", range(20))
def test_frames_arrive_whole_however_the_stream_is_cut(ends: Ends, seed: int) -> None:
    writer, stream = ends
    rng = random.Random(seed)
    sent = [rng.randbytes(rng.choice([0, 1, 7, 1000, 100_000, 700_000])) for _ in range(30)]
    data = b"".join(frames.join(frames.frame(FrameKind.DEFINE, 0, [body])) for body in sent)
    stream.setblocking(False)
    reader = FrameReader(stream)
    received: List[bytes] = []
    while data or len(received) < len(sent):
        piece = rng.choice([1, 5, 8, 100, 50_000])
        if data:
            writer.sendall(data[:piece])
            data = data[piece:]
        try:
            while reader.fill():
                received += [frame.body for frame in read_all(reader)]
        except BlockingIOError:
            pass

    assert received == sent


def test_the_end_of_the_stream_is_seen(ends: Ends) -> None:
    writer, stream = ends
    writer.close()

    assert FrameReader(stream).fill() is False


def test_a_frame_that_announces_too_much_is_an_error_and_no_allocation(
    ends: Ends,
) -> None:
    writer, stream = ends
    writer.sendall(struct.pack("<IHH", frames.MAXIMUM_BODY_BYTES + 1, FrameKind.RESULTS, 0))
    reader = FrameReader(stream)
    reader.fill()

    with pytest.raises(FrameError, match="announces"):
        reader.next()


def test_a_frame_too_large_to_be_sent_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAXIMUM_BODY_BYTES", 100)

    with pytest.raises(FrameError, match="101 bytes"):
        frames.frame(FrameKind.DEFINE, 0, [bytes(1), bytes(100)])


def test_columns_that_end_early_are_an_error() -> None:
    data = frames.join(frames.results_frame(first_position=1, busy_microseconds=0, payloads=[b"", b""]))

    with pytest.raises(FrameError, match="columns"):
        frames.parse_results(0, data[8:-1])
    with pytest.raises(FrameError, match="columns"):
        frames.parse_results(ResultsFlag.STATUSES, data[8:])
