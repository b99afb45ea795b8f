"""The suite's codec: encoding, decoding, newer and older schemas, and invalid frames."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path
from typing import Any, Dict

import pytest

from scaler_conformance.codec.faulty_frames import faulty_headers, mutated
from scaler_conformance.codec.other_schemas import FIELDS_OF_YESTERDAY, tomorrow, yesterday
from scaler_conformance.codec.schema_codec import SCHEMA, Message, UnreadableMessageError

PROTOCOL = Path(__file__).resolve().parents[3] / "protocol-spec"
TASK: Dict[str, Any] = {"ids": [1, 2], "functionName": "x", "options": {"priority": -3, "profiling": True}}


def decoded(frame: bytes) -> Message:
    return Message(*SCHEMA.decode([frame]))


@pytest.mark.parametrize("segmented", [False, True])
def test_what_was_written_is_read(segmented: bool) -> None:
    message = decoded(SCHEMA.encode("Task", TASK, segmented))

    assert message.type == "Task"
    assert (message.ids, message.functionName, message.options.priority) == ([1, 2], "x", -3)
    assert message.attempt == 0
    assert "options=(priority=-3, profiling=True)" in repr(message)


def test_segments_are_many() -> None:
    assert SCHEMA.encode("Task", TASK, True)[0] >= 3
    assert SCHEMA.encode("Task", TASK)[0] == 0


def test_a_field_that_is_not_there_is_named() -> None:
    with pytest.raises(AttributeError, match="this struct has no field idz"):
        decoded(SCHEMA.encode("Task", TASK)).idz
    with pytest.raises(KeyError, match="no message Tusk"):
        SCHEMA.encode("Tusk", {})


def test_tomorrow_has_more_and_is_read_today() -> None:
    message = decoded(tomorrow().encode("Task", {**TASK, "addedNumber": 5, "addedText": "news"}))
    assert message.ids == [1, 2]

    assert decoded(tomorrow().encode("DisconnectRequest", {"reason": "unheardOf"})).reason.startswith("#")
    with pytest.raises(UnreadableMessageError):
        decoded(tomorrow().encode("UnheardOf", {"text": "x"}))


def test_yesterday_has_less_and_is_read_today() -> None:
    short, whole = yesterday().encode("Welcome", {"session": 3}), SCHEMA.encode("Welcome", {"session": 3})

    assert len(short) < len(whole)
    assert decoded(short).session == 3
    assert decoded(short).objectDirectory == ""


def test_yesterday_lacks_each_field_that_the_changelog_names() -> None:
    """So each of them has cases in which the other side does not know it."""
    text = (PROTOCOL / "CHANGELOG.md").read_text(encoding="utf-8")
    added = re.findall(r"`([A-Z]\w+)\.(\w+)`", text)
    assert ("SchedulerStatus", "isInsecure") in added
    for struct, field in added:
        had = FIELDS_OF_YESTERDAY.get(struct, 0)
        assert had and ordinals_of(struct)[field] >= had, f"{struct}.{field} is to be missing in FIELDS_OF_YESTERDAY"


def ordinals_of(struct: str) -> Dict[str, int]:
    """Of the fields of a struct, by name."""
    text = "".join(path.read_text(encoding="utf-8") for path in (PROTOCOL / "schema").glob("*.capnp"))
    body = re.search(rf"(?ms)^struct {struct} [^{{]*\{{(.*?)^\}}", text)
    assert body is not None, struct
    return {name: int(number) for name, number in re.findall(r"(\w+) @(\d+) :", body[1])}


def test_faulty_headers_are_no_messages() -> None:
    readable = []
    for header in faulty_headers(SCHEMA.encode("Heartbeat", {"sequence": 1})):
        try:
            readable.append(decoded(header).type)
        except UnreadableMessageError:
            pass

    # Cap'n Proto itself forgives bytes behind the message, and takes a null root for a struct of defaults.
    assert readable == ["Heartbeat", "Hello"]


def test_mutations_follow_from_the_seed() -> None:
    good = [SCHEMA.encode("Task", TASK), SCHEMA.encode("Heartbeat", {"sequence": 1})]

    def first(seed: int) -> Any:
        return list(itertools.islice(mutated(good, random.Random(seed)), 500))

    assert first(1) == first(1) != first(2)
    for frames in first(3):
        SCHEMA.type_of(frames[0])
        try:
            SCHEMA.decode(frames)
        except UnreadableMessageError:
            pass
