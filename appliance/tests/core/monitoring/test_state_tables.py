"""The state in tables shows what there is, a row each."""

from __future__ import annotations

from array import array

from scheduler_harness import Harness

from scaler_appliance.core.monitoring.state_tables import state_tables
from scaler_protocol import messages as m


def test_there_is_a_row_for_each_thing() -> None:
    harness = Harness()
    client, worker = harness.client(), harness.worker(slots=1)
    function = client.create(1, b"function")
    client.submit([1, 2], function=function)
    client.submit_after(3, 1)
    client.submit([4], function_name="unknown", codec="json")

    tables = state_tables(harness.state)

    (row,) = tables["scheduler"]
    assert (row["clients"], row["workers"], row["slots"], row["objects"]) == (1, 1, 1, 1)
    assert (row["waiting"] + row["running"], row["succeeded"]) == (4, 0)
    (row,) = tables["clients"]
    assert (row["session"], row["peer"]) == (client.session, client.name.hex())
    assert (row["unfinished"], row["held"]) == (4, False)
    (row,) = tables["workers"]
    assert (row["session"], row["slots"], row["assigned"] > 0) == (worker.session, 1, True)
    rows = {row["first_task"]: row for row in tables["batches"]}
    assert (rows[1]["function"], rows[1]["tasks"]) == (f"{function:016x}", 2)
    assert sum(row["assigned"] for row in rows.values()) == tables["workers"][0]["assigned"]
    assert sum(row["open"] for row in tables["dispatches"]) == tables["workers"][0]["assigned"]
    (row,) = tables["dependants"]
    assert (row["task"], row["waits_for"]) == (3, "1")
    (row,) = tables["objects"]
    assert (row["id"], row["size"], row["place"], row["references"]) == (f"{function:016x}", 8, "core", 1)
    assert sum(row["waiting"] for row in tables["ready queues"]) == len(harness.state.ready)


def test_a_graph_has_a_row_while_it_runs() -> None:
    harness = Harness()
    client = harness.client()
    function = client.create(1, b"function")
    graph = m.GraphTask(
        ids=array("Q", [1, 2]),
        payload_sizes=array("I", [0, 0]),
        functions=array("Q", [function] * 2),
        targets=array("I", [1]),
    )
    client.send(graph)

    (row,) = state_tables(harness.state)["graphs"]

    assert (row["client"], row["first_task"], row["nodes"]) == (client.session, 1, 2)
    assert row["queued"] + row["cancelled"] == 2
