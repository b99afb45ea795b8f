"""Tables of a cluster: sorted, filtered, cut."""

from __future__ import annotations

import json
from typing import Any, Dict, List

import pytest
from ui.browsing import query, told_state

from scaler_appliance.ui.pages.entity_pages import actors, clients, functions, graphs, objects, workers
from scaler_appliance.ui.pages.queries import QueryError
from scaler_appliance.ui.pages.tables import BigNumber, EntityTable

PAGES = {
    "workers": workers,
    "functions": functions,
    "clients": clients,
    "objects": objects,
    "graphs": graphs,
    "actors": actors,
}


def column(body: Dict[str, Any], name: str) -> List[Any]:
    return [row[name] for row in body["rows"]]


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_page_is_json_also_before_anything_is_known(page: str) -> None:
    for steps in (0, 3):
        state, _ = told_state(steps)
        body = PAGES[page](state, query())
        assert json.loads(json.dumps(body))["matching"] == len(body["rows"])
        assert bool(body["rows"]) == bool(steps)


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_column_sorts_both_ways(page: str) -> None:
    state, _ = told_state()
    for name in PAGES[page](state, query())["rows"][0]:
        up = column(PAGES[page](state, query(sort=name)), name)
        down = column(PAGES[page](state, query(sort=f"-{name}")), name)
        assert sorted(map(str, up)) == sorted(map(str, down))
        if isinstance(up[0], (int, float)):
            assert up == sorted(up)
            assert down == sorted(up, reverse=True)


def test_workers_are_cut_to_what_is_shown_and_all_are_counted() -> None:
    state, _ = told_state(workers=250)

    body = workers(state, query(sort="-session", offset=10, limit=3))

    assert column(body, "session") == [1239, 1238, 1237]
    assert (body["total"], body["matching"], body["offset"], body["limit"]) == (250, 250, 10, 3)


def test_a_filter_wants_all_its_words_whatever_their_case() -> None:
    state, _ = told_state(workers=250)

    assert column(workers(state, query(filter="WORKER-1007")), "name") == ["worker-1007"]
    body = workers(state, query(filter="host-07 gpu=2"))
    assert (body["matching"], body["total"]) == (0, 250)
    assert workers(state, query(filter="host-10 gpu=2"))["matching"] == 5


def test_a_worker_says_what_it_has_run_for_longest() -> None:
    state, _ = told_state(workers=2, slots=2)

    body = workers(state, query(limit=1))

    processors = state.cluster.workers[1000].processors
    longest = max(processors, key=lambda each: each.task_microseconds(state.now))
    assert body["rows"][0]["function"] == state.cluster.functions[longest.task_function].name
    assert body["rows"][0]["busy"] == body["rows"][0]["processors"] == 2


def test_workers_are_expanded_on_request() -> None:
    state, _ = told_state(workers=3, slots=2)

    body = workers(state, query(expand="1001,4711"))

    assert list(body["expanded"]) == ["1001"]
    assert [each["process_id"] for each in body["expanded"]["1001"]] == [100100, 100101]
    assert body["expanded"]["1001"][0]["function"] in {"numpy.linalg.svd", "score_model"}


def test_numbers_of_64_bits_are_texts_and_sort_as_numbers() -> None:
    table = EntityTable({"id": lambda number: BigNumber(number)}, "id", ["id"])

    assert column(table.body([2**63, 9, 10], query()), "id") == ["9", "10", str(2**63)]


def test_what_has_no_value_comes_last_both_ways() -> None:
    state, _ = told_state()
    function = state.cluster.functions[2]
    function.durations = {}
    function.finished = 0

    for sort in ("p50_us", "-p50_us"):
        rows = functions(state, query(sort=sort))["rows"]
        assert rows[-1]["function"] == 2
        assert rows[-1]["p95_us"] is None
        assert rows[-1]["mean_us"] is None
        assert rows[0]["p50_us"] > 0


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"sort": "nmae"}, "did you mean name?"),
        ({"sort": "--name"}, "there is no"),
        ({"offset": "x"}, "'x' is not a whole number from 0"),
        ({"offset": "9" * 30}, "not a whole number from 0"),
        ({"limit": "-1"}, "limit: '-1' is not a whole number from 1 to 1000"),
        ({"limit": "0"}, "not a whole number from 1 to 1000"),
        ({"limit": "100000"}, "not a whole number from"),
        ({"filter": "x" * 2000}, "longer than"),
        ({"expand": "1,x"}, "sessions"),
        ({"expand": ",".join(["1000"] * 5000)}, "longer than"),
    ],
)
def test_a_wrong_query_is_named(parameters: Dict[str, str], text: str) -> None:
    state, _ = told_state()

    with pytest.raises(QueryError, match=text.replace("?", r"\?")):
        workers(state, query(**parameters))


def test_actors_say_where_they_are_or_why_they_are_lost() -> None:
    state, _ = told_state(workers=3)
    body = actors(state, query(sort="actor"))
    assert column(body, "worker_name") == ["", "", "worker-1000"]
    assert column(body, "state") == ["waiting", "lost", "alive"]
    assert column(actors(state, query(filter="was lost with")), "name") == ["<i>Pool</i>"]
    assert column(actors(state, query(filter="visits")), "actor") == [str(1 << 40)]
