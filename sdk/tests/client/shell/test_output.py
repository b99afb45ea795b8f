"""What tasks print arrives at the client that asked for it, in order, marked by task."""

from __future__ import annotations

import sys
import threading
from typing import Any, Dict, List, Tuple

import pytest
from sdk_tasks import identity

from scaler import Client
from scaler.client import TaskOutput
from scaler.client.shell.output import OutputChannel
from scaler_protocol import MAXIMUM_HEADER_BYTES
from scaler_protocol import messages as m

TIMEOUT_SECONDS = 30.0


def talk(name: str, lines: int) -> str:
    for number in range(lines):
        print(name, number)
        print(name, "problem", number, file=sys.stderr)
    return name


def collected(outputs: List[TaskOutput]) -> Dict[Tuple[int, str], str]:
    """The text of each task and stream."""
    texts: Dict[Tuple[int, str], str] = {}
    for output in outputs:
        key = output.task_id, output.stream
        texts[key] = texts.get(key, "") + output.text
    return texts


def test_output_is_handed_to_a_callback_in_order_and_by_task(address: str) -> None:
    outputs: List[TaskOutput] = []
    with Client(address=address, stream_output=outputs.append) as client:
        futures = [client.submit(talk, f"task-{number}", 200) for number in range(20)]
        assert [future.result(TIMEOUT_SECONDS) for future in futures] == [f"task-{number}" for number in range(20)]
    texts = collected(outputs)
    for number, future in enumerate(futures):
        name = f"task-{number}"
        assert texts[future.task_id, "stdout"] == "".join(f"{name} {line}\n" for line in range(200))
        assert texts[future.task_id, "stderr"] == "".join(f"{name} problem {line}\n" for line in range(200))
        mine = "".join(output.text for output in outputs if output.task_id == future.task_id)
        assert mine == "".join(f"{name} {line}\n{name} problem {line}\n" for line in range(200)), "streams in order"


def test_output_is_printed_behind_the_number_of_its_task(any_address: str, capsys: Any) -> None:
    with Client(address=any_address, stream_output=True) as client:
        first, second = client.submit(talk, "a", 2), client.submit(print, "no end", end="")
        first.result(TIMEOUT_SECONDS)
        second.result(TIMEOUT_SECONDS)
    shown = capsys.readouterr()
    assert sorted(shown.out.splitlines()) == ["[task 0] a 0", "[task 0] a 1", "[task 1] no end"]
    assert shown.err.splitlines() == ["[task 0] a problem 0", "[task 0] a problem 1"]


def test_what_is_printed_controls_no_terminal_and_keeps_its_colours(capsys: Any) -> None:
    channel = OutputChannel()
    text = "\x1b[31mred\x1b[0m \x1b[2J\x1b]52;c;cm0=\x07\x9b2J\u202e\n10 %\r20 %\n"
    channel.on_task_log(m.TaskLog(id=7, stream=1, text=text))
    channel.close()
    assert capsys.readouterr().out.split("\n") == [
        "[task 7] \x1b[31mred\x1b[0m \\u001b[2J\\u001b]52;c;cm0=\\u0007\\u009b2J\\u202e",
        "[task 7] 10 %",
        "[task 7] 20 %",
        "",
    ]


def test_a_task_may_print_more_at_once_than_a_message_takes(address: str) -> None:
    most = MAXIMUM_HEADER_BYTES + 1
    with Client(address=address, stream_output=lambda output: None) as client:
        client.submit(lambda: print("x" * most)).result(TIMEOUT_SECONDS)  # and it has cost no worker its connection


def test_only_who_asks_gets_output(any_address: str, capsys: Any) -> None:
    with Client(address=any_address) as client:
        silent = client.submit(talk, "silent", 1)
        loud = client.options(stream_output=True).submit(talk, "loud", 1)
        assert (silent.result(TIMEOUT_SECONDS), loud.result(TIMEOUT_SECONDS)) == ("silent", "loud")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("[task 1] loud 0\n", "[task 1] loud problem 0\n")


def test_what_a_failing_task_and_a_maps_items_printed_arrives(any_address: str) -> None:
    def say(number: int) -> None:
        print("item", number)
        if number == 99:
            raise LookupError

    outputs: List[TaskOutput] = []
    with Client(address=any_address, stream_output=outputs.append) as client:
        with pytest.raises(LookupError):
            client.map(say, range(100))
    assert "item 99\n" in "".join(output.text for output in outputs)


def test_a_callback_that_blocks_or_raises_harms_no_task(any_address: str) -> None:
    may_go_on = threading.Event()
    seen: List[TaskOutput] = []

    def slow(output: TaskOutput) -> None:
        seen.append(output)
        may_go_on.wait(TIMEOUT_SECONDS)
        raise RuntimeError("of the callback")

    with Client(address=any_address, stream_output=slow) as client:
        futures = [client.submit(talk, "x", 3) for _ in range(10)]
        assert [future.result(TIMEOUT_SECONDS) for future in futures] == ["x"] * 10
        assert client.submit(identity, 1).result(TIMEOUT_SECONDS) == 1
        may_go_on.set()
    assert "".join(output.text for output in seen).count("x 2\n") == 10


def test_a_callback_may_use_the_client(any_address: str) -> None:
    results: List[int] = []
    done = threading.Event()

    def ask(output: TaskOutput) -> None:
        results.append(client.options(stream_output=False).submit(len, output.text).result(TIMEOUT_SECONDS))
        done.set()

    with Client(address=any_address, stream_output=ask) as client:
        client.submit(print, "four").result(TIMEOUT_SECONDS)
        assert done.wait(TIMEOUT_SECONDS)
    assert results == [len("four\n")]


def test_output_that_is_not_read_is_bounded(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr("scaler.client.shell.output.MAXIMUM_WAITING_BYTES", 1000)
    may_go_on = threading.Event()
    taken: List[str] = []

    def slow(output: TaskOutput) -> None:
        may_go_on.wait(TIMEOUT_SECONDS)
        taken.append(output.text)

    channel = OutputChannel()
    channel.callback = slow
    for _ in range(100):
        channel.on_task_log(m.TaskLog(id=1, stream=1, text="x" * 100))
    may_go_on.set()
    channel.close()
    assert taken == ["x" * 100] * 10
    assert "9000 characters" in caplog.text
