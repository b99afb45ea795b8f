"""Code that clients ship, at the worker: notes of functions, which archives are here, processors that are dedicated."""

from __future__ import annotations

import json
import struct
from array import array
from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple

import pytest
from task_flow_bench import Bench

from scaler.values.code_notes import NO_CODE, CodeNote, Notice, add_note, notice_from_log, read_note
from scaler.values.payload import dump_function, join, load_function
from scaler.worker.agent.core.code_sets import CodeSets
from scaler.worker.agent.core.effects import ReadNote, RemoveCode, UnpackCode
from scaler.worker.agent.core.processor_pool import IDLE_ROUNDS, MAXIMUM_SPARES
from scaler.worker.agent.shell.code_folders import note_of_file
from scaler.worker.frames import ContentPlace, FrameKind
from scaler_protocol import messages as m

# Notes ---------------------------------------------------------------------------------------------------------------

DIGEST = "0123456789abcdef" * 2
NOTE = CodeNote("key", ((3, DIGEST),), {"module": "abc"})


@pytest.mark.parametrize(
    "function", [len, lambda: 1, array("d", bytes(100_000)).count], ids=["name", "code", "buffers"]
)
def test_a_function_with_a_note_loads_as_without(function: Any, tmp_path: Path) -> None:
    parts = dump_function(function, None)
    add_note(parts, NOTE)
    content = join(parts)
    (tmp_path / "content").write_bytes(content)

    assert read_note(memoryview(content)) == note_of_file(str(tmp_path / "content")) == NOTE
    assert callable(load_function(content)[0])


def test_a_function_that_needs_no_code_has_no_note() -> None:
    parts = dump_function(len, None)
    add_note(parts, NO_CODE)
    assert join(parts) == join(dump_function(len, None))
    assert read_note(join(parts)) == read_note(b"") == NO_CODE


def test_a_function_that_ends_like_a_note_is_not_taken_for_one(tmp_path: Path) -> None:
    parts: List[Any] = [b"content" + struct.pack("<I8s", 3, b"\x00scaler\x01")]
    assert read_note(parts[0]) == NO_CODE  # as an old client would have sent it
    add_note(parts, NO_CODE)
    assert read_note(join(parts)) == NO_CODE
    (tmp_path / "short").write_bytes(b"short")
    assert note_of_file(str(tmp_path / "short")) == NO_CODE


@pytest.mark.parametrize(
    "note",
    [
        ["key", [[1 << 70, DIGEST]], {}],
        ["key", [[0, DIGEST]], {}],
        ["key", [[1.5, DIGEST]], {}],
        ["key", [[1, "../../etc"]], {}],
        ["key", [[1, "\0" * 32]], {}],
        ["key", [[1, 2, 3]], {}],
        ["key", 7, {}],
        ["k" * 1000, [], {}],
        [7, [], {}],
        ["key", [], []],
        ["key", [], {"module": 7}],
        "nonsense",
        {"a": 1},
    ],
    ids=repr,
)
def test_a_malformed_note_is_none(note: Any) -> None:
    data = json.dumps(note).encode()
    assert read_note(b"pickle" + data + struct.pack("<I8s", len(data), b"\x00scaler\x01")) == NO_CODE


def test_a_note_that_is_nested_without_end_is_none() -> None:
    data = b"[" * 100_000
    assert read_note(data + struct.pack("<I8s", len(data), b"\x00scaler\x01")) == NO_CODE


def test_of_modules_without_number_there_is_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaler.values.code_notes.MAXIMUM_NOTE_BYTES", 1000)
    parts: List[Any] = [b"pickle"]
    add_note(parts, NOTE._replace(modules={f"module_{number}": "abc" for number in range(100)}))
    assert read_note(join(parts)) == NOTE._replace(modules={})


def test_a_notice_arrives_as_it_was_sent() -> None:
    notice = Notice("module x", "it differs\non two lines")
    assert notice_from_log(notice.to_log()) == notice
    assert notice_from_log("no notice") is None


# Which code is here --------------------------------------------------------------------------------------------------


class Objects:
    """Objects whose content is in memory, or in files with a name."""

    def __init__(self) -> None:
        self.contents: Dict[int, bytes] = {}
        self.paths: Dict[int, bytes] = {}
        self.forgotten: List[int] = []

    def is_available(self, object_id: int) -> bool:
        return object_id in self.contents or object_id in self.paths

    def definition(self, object_id: int) -> Optional[Tuple[int, ContentPlace, bytes]]:
        if object_id in self.paths:
            return m.ObjectKind.VALUE, ContentPlace.FILE, self.paths[object_id]
        content = self.contents.get(object_id)
        return None if content is None else (m.ObjectKind.VALUE, ContentPlace.INLINE, content)

    def forget(self, object_id: int) -> None:
        self.contents.pop(object_id, None)
        self.forgotten.append(object_id)


SESSION = 5 << 40


def function_with(key: str, *archives: Tuple[int, str]) -> bytes:
    parts: List[Any] = [b"pickle"]
    add_note(parts, CodeNote(key, archives))
    return join(parts)


def test_an_archive_is_unpacked_once_and_kept_while_a_function_or_a_processor_has_it() -> None:
    objects, effects = Objects(), []  # type: Objects, List[Any]
    first, second, other = SESSION | 1, SESSION | 2, (6 << 40) | 1
    for function in (first, second, other):
        objects.contents[function] = function_with("key", (9, DIGEST))
    code = CodeSets(objects, effects)

    assert code.missing(first) == {SESSION | 9}
    assert effects == []
    objects.contents[SESSION | 9] = b"archive"
    assert code.missing(first) == code.missing(second) == {SESSION | 9}  # while it is unpacked
    assert effects == [UnpackCode(DIGEST, ContentPlace.INLINE, b"archive")]
    assert code.on_unpacked(DIGEST, "/folder") == {SESSION | 9}
    assert SESSION | 9 not in objects.contents  # its content is in the folder
    assert code.missing(first) == code.missing(second) == code.missing(other) == set()  # another client's has the same
    assert code.contents(first) == ("key", ["/folder"])
    assert code.key(first) == code.key(other)

    assert code.forget([first, other, 77]) == set()
    code.sweep(set())
    key = code.key(second)
    assert code.forget([second]) == {key}
    code.sweep({"/folder"})
    assert len(effects) == 1
    code.sweep(set())
    assert effects[1:] == [RemoveCode(("/folder",))]


def test_an_archive_that_cannot_be_unpacked_is_tried_again_for_the_next_task() -> None:
    objects, effects = Objects(), []  # type: Objects, List[Any]
    objects.contents = {SESSION | 1: function_with("key", (9, DIGEST)), SESSION | 9: b"archive"}
    code = CodeSets(objects, effects)

    assert code.missing(SESSION | 1) == {SESSION | 9}
    assert code.on_unpacked(DIGEST, "") == {SESSION | 9}
    assert code.missing(SESSION | 1) == {SESSION | 9}
    assert len(effects) == 1  # it is fetched first


def test_an_archive_that_no_task_waits_for_any_more_goes_with_the_last_function_that_needs_it() -> None:
    objects, effects = Objects(), []  # type: Objects, List[Any]
    first, second, archive = SESSION | 1, SESSION | 2, SESSION | 9
    objects.contents = {each: function_with("key", (9, DIGEST)) for each in (first, second)}
    code = CodeSets(objects, effects)
    assert code.missing(first) == code.missing(second) == {archive}

    code.forget([first])
    assert objects.forgotten == []
    code.forget([second])
    assert objects.forgotten == [archive]
    assert effects == []


def test_code_that_is_unpacked_when_its_functions_are_gone_is_removed() -> None:
    objects, effects = Objects(), []  # type: Objects, List[Any]
    objects.contents = {SESSION | 1: function_with("key", (9, DIGEST)), SESSION | 9: b"archive"}
    code = CodeSets(objects, effects)
    code.missing(SESSION | 1)
    code.forget([SESSION | 1])
    assert objects.forgotten == []  # its file is being read

    assert code.on_unpacked(DIGEST, "/folder") == {SESSION | 9}

    assert objects.forgotten == [SESSION | 9]
    assert effects[1:] == [RemoveCode(("/folder",))]


def test_the_note_of_a_function_in_a_file_is_read_first() -> None:
    objects, effects = Objects(), []  # type: Objects, List[Any]
    objects.paths[SESSION | 1] = b"/a/path"
    code = CodeSets(objects, effects)

    assert code.missing(SESSION | 1) == code.missing(SESSION | 1) == {SESSION | 1}
    assert effects == [ReadNote(SESSION | 1, "/a/path")]
    code.on_note_read(SESSION | 1, NO_CODE)
    assert code.missing(SESSION | 1) == set()
    code.on_note_read(SESSION | 2, NOTE)  # that was forgotten in the meantime
    assert code.key(SESSION | 2) == ""


def test_one_key_with_other_archives_is_another_kind_of_code() -> None:
    objects = Objects()
    other = DIGEST[::-1]
    objects.contents = {1: function_with("key", (9, DIGEST)), 2: function_with("key", (9, other)), 3: b"no note"}
    code = CodeSets(objects, [])

    assert len({code.key(function) for function in objects.contents}) == 3
    assert code.key(3) == code.key(4) == ""


# Processors ----------------------------------------------------------------------------------------------------------


class Keys:
    """Code of which the key of a function is its id; archives are missing as a test says."""

    def __init__(self) -> None:
        self.absent: Set[int] = set()

    def key(self, function: int) -> str:
        return "" if function == 7 else f"key {function}"

    def missing(self, function: int) -> Set[int]:
        return set(self.absent)

    def contents(self, function: int) -> Tuple[str, List[str]]:
        return self.key(function), [f"folder {function}"]

    def forget(self, functions: Any) -> Set[str]:
        return {self.key(each) for each in functions} - {""}

    def forget_all(self) -> Set[str]:
        return set()

    def sweep(self, folders_in_use: Set[str]) -> None:
        self.in_use = folders_in_use


def bench_with_code(slots: int = 1) -> Bench:
    bench = Bench(slots=slots)
    bench.flow._code = Keys()
    bench.objects.available |= set(range(100, 200))
    return bench


def keys(bench: Bench) -> Keys:
    assert isinstance(bench.flow._code, Keys)
    return bench.flow._code


def run_alone(bench: Bench, instance: int, function: int) -> int:
    """Send a task, finish it, and return the processor that ran it."""
    bench.send_tasks([instance], function=function)
    ((number, chunk),) = bench.dealt()
    bench.finish(number, chunk)
    return number


def test_each_kind_of_code_has_processors_of_its_own() -> None:
    bench = bench_with_code()
    ordinary, first, second = (run_alone(bench, 10 + i, function) for i, function in enumerate((7, 100, 101)))

    assert len({ordinary, first, second}) == 3
    again = [run_alone(bench, 20 + i, function) for i, function in enumerate((100, 7, 101, 100))]
    assert again == [first, ordinary, second, first]


def test_a_processor_is_told_its_code_before_its_first_task_and_once() -> None:
    bench = bench_with_code()
    bench.send_tasks([10], function=100)
    (number,) = [number for number, received in bench.frames.items() if received]
    assert bench.kinds(number) == [FrameKind.CODE, FrameKind.DEFINE, FrameKind.TASKS]

    bench.flow.on_processor_died(number, "was ended by signal 9 (SIGKILL)", bench.now)
    bench.turn()
    assert keys(bench).in_use == set()


def test_processors_are_bounded_however_many_kinds_of_code_there_are() -> None:
    bench = bench_with_code(slots=2)
    for function in range(100, 140):
        run_alone(bench, function, function)
        alive = [state for state in bench.flow.pool.states() if not state.killed]
        assert len(alive) <= 2 + MAXIMUM_SPARES


def test_processors_end_whose_code_no_function_needs_any_more() -> None:
    bench = bench_with_code()
    idle = run_alone(bench, 10, 100)
    bench.send_tasks([11], function=101)
    ((busy, chunk),) = bench.dealt()

    bench.flow.on_object_deleted({100, 101})
    bench.turn()
    assert bench.stopped == [idle]
    bench.finish(busy, chunk)
    assert bench.stopped == [idle, busy]


def test_processors_with_other_code_end_when_they_have_been_idle_for_long() -> None:
    bench = bench_with_code()
    first, second, third = (run_alone(bench, function, function) for function in (100, 101, 102))
    for _ in range(IDLE_ROUNDS - 1):
        bench.flow.pool.retire_spares()
    assert run_alone(bench, 10, 101) == second
    bench.flow.pool.retire_spares()
    bench.turn()

    assert bench.stopped == [first, third]


def test_tasks_wait_for_the_code_of_their_function() -> None:
    bench = bench_with_code()
    keys(bench).absent = {55}
    bench.send_tasks([10, 11], function=100)
    assert bench.dealt() == [] and bench.objects.fetched == [55]

    keys(bench).absent = set()
    bench.flow.on_object_available(55)
    bench.turn()
    assert bench.dealt_ids() == [[10]]


def test_tasks_fail_whose_code_cannot_be_had_or_has_gone() -> None:
    bench = bench_with_code()
    keys(bench).absent = {55}
    bench.send_tasks([10], function=100)
    bench.flow.on_object_missing(55)
    bench.turn()
    assert bench.lost(10).kind == m.FailureKind.OBJECT_MISSING

    bench.send_tasks([11], function=100)
    bench.flow.on_code_failed([55], "the client's code is no archive")
    bench.turn()
    failure = bench.lost(11)
    assert (failure.kind, failure.message) == (m.FailureKind.FUNCTION_NOT_LOADED, "the client's code is no archive")
