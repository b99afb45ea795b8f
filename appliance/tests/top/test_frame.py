"""Frames as users see them."""

from __future__ import annotations

from typing import List, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from top.sample import actors, clients, cluster, counts, functions, status, workers

from scaler_appliance.feed.cluster_model import ClusterModel
from scaler_appliance.top import text
from scaler_appliance.top.frame import FeedSource, Size, render
from scaler_appliance.top.lines import ALARM, NOTICE, STOPPED, plain, width_of
from scaler_appliance.top.rows import COLUMNS
from scaler_appliance.top.view import View
from scaler_protocol import messages as m

ADDRESS = "ipc:///tmp/127.0.0.1_2345_monitor"
HERE = FeedSource(ADDRESS)
FIRST_VIEW = View()

A_FRAME = """\
scheduler        | task_manager                | object_manager      | scheduler_sent         | scheduler_received
      cpu   0.0% |   unassigned      0         |        objects  215 |  HeartbeatEcho 283,701 |          Heartbeat 283,701
      rss 130.1m |      running      2         |          bytes 3.5m |           Task  54,660 |               Task  53,764
       up    1 h |      success 53,704 5,000/s |        on_disk   0b |     TaskResult  53,766 |
  clients      2 |       failed     14   1.0/s |                     |                        |
    slots      3 |     canceled     48         |                     |                        |
--------------------------------------------------------------------------------------------------------------------------
Shortcuts: worker[n] agt_cpu[C] agt_rss[M] cpu[c] rss[m] free[f] sent[w] queued[d] lag[l]

Total 3 worker(s)
                  worker agt_cpu agt_rss [cpu]    rss free sent queued   lag ITL | client_manager tasks finished
2732888|sd-1e7d-dfba|108    0.0%  111.8m  0.7% 111.0m    1    0      0 0.7ms 100 | 72|laptop|etl     20   50,000
2732890|sd-1e7d-dfba|d26    0.5%  111.8m  0.5% 113.3m    0    1      0 0.7ms 110 | 71|laptop         10   50,000
2732885|sd-1e7d-dfba|56b    0.0%  111.8m  0.0% 111.2m    0    1      0 0.7ms 110 |
                                                                                 | func_to_num_tasks tasks per s median
                                                                                 | prepare              12   100  1.1ms
                                                                                 | score                 2   100  1.1ms"""  # noqa: E501


def shown(
    what: Optional[ClusterModel] = None,
    view: View = FIRST_VIEW,
    source: FeedSource = HERE,
    columns: int = 100,
    lines: Optional[int] = None,
) -> List[str]:
    return plain(render(what or cluster(), view, source, Size(columns, lines)).lines)


def names(frame: List[str]) -> List[str]:
    """Of the workers in a frame, from above."""
    return [line.split(" ")[0].split("|")[2] for line in frame if line.startswith(("2732", "10|"))]


def test_a_frame_of_a_small_cluster() -> None:
    before = status(1, tasks=counts(unassigned=0, running=2, success=48_704, failed=13, canceled=48))
    frame = shown(cluster(before, status(2, **clients("", "etl"), **functions("prepare", "score"))), columns=122)
    assert "\n".join(frame) == A_FRAME


def test_the_header_of_the_sorted_column_stands_in_brackets() -> None:
    assert "[rss]" in shown(view=View(sort="rss"))[10]
    assert "[^worker]" in shown(view=View(sort="worker", is_reversed=True))[10]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("worker", ["108", "56b", "d26"]),
        ("cpu", ["108", "d26", "56b"]),
        ("rss", ["d26", "56b", "108"]),
        ("agt_cpu", ["d26", "56b", "108"]),
        ("free", ["108", "d26", "56b"]),
        ("sent", ["d26", "56b", "108"]),
    ],
)
def test_rows_are_sorted_the_largest_first_and_names_from_a_to_z(sort: str, order: List[str]) -> None:
    assert names(shown(view=View(sort=sort))) == order


def test_every_column_sorts_both_ways() -> None:
    for column in COLUMNS:
        if column.key:
            up = names(shown(view=View(sort=column.title)))
            down = names(shown(view=View(sort=column.title, is_reversed=True)))
            assert sorted(up) == sorted(down) == ["108", "56b", "d26"]


def test_a_filter_looks_for_names_hosts_and_process_ids_whatever_their_case() -> None:
    assert names(shown(view=View(wanted="D26"))) == ["d26"]
    assert names(shown(view=View(wanted="2732885"))) == ["56b"]
    assert len(names(shown(view=View(wanted="SD-1E7D")))) == 3
    frame = shown(view=View(wanted="unknown"))
    assert names(frame) == []
    assert "filter: unknown  (Esc clears it)" in frame
    assert "Total 3 worker(s); 0 rows match" in frame


def test_a_filter_that_is_typed_has_a_cursor() -> None:
    assert "filter: ab_" in shown(view=View(wanted="ab", is_typing=True))


@pytest.mark.parametrize("lines", [None, 30, 8])
def test_an_insecure_scheduler_is_announced_above_all_other_notices(lines: Optional[int]) -> None:
    insecure = cluster(status(is_insecure=True, waiting_reasons=["no worker has 'gpu'"]))
    frame = render(insecure, View(wanted="d26"), HERE, Size(100, lines)).lines
    (place,) = [place for place, each in enumerate(plain(frame)) if "INSECURE" in each]
    assert plain(frame)[place] == " INSECURE: all who reach this scheduler can run programs as its user (--insecure)"
    assert frame[place][0].style == ALARM
    assert place < next(place for place, each in enumerate(plain(frame)) if each.startswith("filter: "))


def test_a_scheduler_with_keys_has_no_such_notice() -> None:
    assert not any("INSECURE" in each for each in shown())


def test_the_notice_of_an_insecure_scheduler_is_not_dimmed_when_figures_are_old() -> None:
    source = FeedSource(ADDRESS, silent_seconds=30, is_connected=False)
    frame = render(cluster(status(is_insecure=True)), FIRST_VIEW, source, Size(100, 30)).lines
    assert [each[0].style for each in frame if "INSECURE" in each[0].text] == [ALARM]


def test_nothing_was_heard_yet() -> None:
    frame = shown(ClusterModel(), source=FeedSource(ADDRESS, silent_seconds=3.2, is_connected=False))
    assert f"waiting for {ADDRESS}, for 3 s" in frame
    assert not any("Is it" in line for line in frame)
    late = shown(ClusterModel(), source=FeedSource(ADDRESS, silent_seconds=30, is_connected=False))
    assert "Check that this is the monitor address, which a scheduler logs when it starts" in late


def test_why_nothing_is_heard_is_said() -> None:
    reason = f"no permission to connect to {ADDRESS} (Permission denied): the socket belongs to ann"
    source = FeedSource(ADDRESS, silent_seconds=30, is_connected=False, reason=reason)
    for frame in (shown(ClusterModel(), source=source), shown(source=source)):
        assert reason[:100] in frame
        assert not any("Is it" in line for line in frame)


def styles(source: FeedSource, view: View = FIRST_VIEW) -> List[str]:
    """Of all spans that are no blanks or notices."""
    lines = render(cluster(), view, source, Size(100, 24)).lines
    return [span.style for line in lines for span in line if span.text.strip() and span.style != NOTICE]


def test_a_scheduler_that_fell_silent_leaves_its_last_figures_and_they_are_dim() -> None:
    source = FeedSource(ADDRESS, silent_seconds=12.3, is_connected=False)
    frame = shown(source=source)
    assert f"waiting for {ADDRESS}, silent for 12 s: the figures are old" in frame
    assert len(names(frame)) == 3
    assert set(styles(source)) == {STOPPED}
    assert STOPPED not in styles(HERE)


def test_figures_of_a_pause_are_dim() -> None:
    assert set(styles(HERE, View(is_paused=True))) == {STOPPED}


@settings(deadline=None)
@given(
    slots=some.integers(0, 64),
    tasks=some.integers(0, 200),
    bits=some.lists(some.integers(0, 7), max_size=70),
    beaten=some.integers(0, 500),
)
def test_what_is_said_of_a_worker_never_contradicts_itself(
    slots: int, tasks: int, bits: List[int], beaten: int
) -> None:
    told = status(of_workers={"tasks": [tasks, 0, 0], "queued": [beaten, 0, 0]})
    told.new_workers[0].slots = slots
    count = len(bits)
    told.processors = m.ProcessorColumns(
        workers=[1] * count,
        process_ids=range(1, count + 1),
        states=bytes(bits),
        **{name: [0] * count for name in PROCESSOR_FIGURES},
    )
    worker = cluster(told).workers[1]
    assert 0 <= worker.busy <= min(worker.slots, worker.tasks)
    assert worker.busy + worker.suspended + worker.waiting == worker.tasks
    assert worker.waiting == 0 or worker.busy == worker.slots, "nothing waits beside a free slot"
    assert (worker.tasks == 0) == (worker.busy + worker.suspended + worker.waiting == 0)


PROCESSOR_FIGURES = (
    "cpu_permille", "resident_bytes", "queued", "task_clients", "task_ids", "task_functions", "task_microseconds",
)  # fmt: skip


def test_a_pause_says_so() -> None:
    frame = shown(view=View(is_paused=True), source=FeedSource(ADDRESS, paused_seconds=5))
    assert "paused for 5 s; press space to continue" in frame


def test_why_tasks_wait_is_said() -> None:
    reasons = [f"no worker has gpu{number}" for number in range(5)]
    frame = shown(cluster(status(waiting_reasons=reasons)), lines=40)
    assert [line for line in frame if "wait" in line or "more" in line] == [
        "tasks wait: no worker has gpu0",
        "tasks wait: no worker has gpu1",
        "tasks wait: no worker has gpu2",
        "and 2 more reasons, which --once shows",
    ]
    assert "tasks wait: no worker has gpu4" in shown(cluster(status(waiting_reasons=reasons)))


def test_units_to_come_and_pools_that_are_paused_are_said() -> None:
    frame = shown(
        cluster(status(unit_notes=["2 units of the pool gpu are pending (Resources)", "cpu is \x1b[1mpaused"]))
    )
    assert "units: 2 units of the pool gpu are pending (Resources)" in frame
    assert "units: cpu is \ufffd[1mpaused" in frame


def test_many_notes_of_pools_leave_room_for_the_table() -> None:
    notes = [f"the pool {number} is paused" for number in range(5)]
    frame = shown(cluster(status(unit_notes=notes)), lines=40)
    assert [line for line in frame if "pool" in line or "more" in line] == [
        "units: the pool 0 is paused",
        "units: the pool 1 is paused",
        "units: the pool 2 is paused",
        "and 2 more notes, which --once shows",
    ]
    assert "units: the pool 4 is paused" in shown(cluster(status(unit_notes=notes)))


def test_outcomes_that_are_rare_are_shown_once_they_happen() -> None:
    assert not any("lost" in line for line in shown())
    frame = shown(cluster(status(tasks=counts(success=1, lost=3))))
    assert any("lost 3" in line for line in frame)


def test_workers_that_leave_or_do_not_read_are_counted() -> None:
    frame = shown(cluster(status(of_workers={"states": bytes([1, 2, 3])})))
    assert "Total 3 worker(s); 2 leaving; 2 do not read their messages" in frame
    draining = bytes([2 | m.DrainCause.SIGNAL << 2, 2 | m.DrainCause.IDLE << 2, 2 | 7 << 2])
    frame = shown(cluster(status(of_workers={"states": draining})))
    assert "Total 3 worker(s); 3 leaving (idle, signal)" in frame


def test_the_scheduler_says_where_it_is() -> None:
    assert "Total 3 worker(s), at tcp://10.0.0.1:2345" in shown(cluster(status(address="tcp://10.0.0.1:2345")))


def test_a_worker_without_processors_has_a_row() -> None:
    frame = shown(cluster(status(processors=None, of_workers={"processors": [0] * 3})))
    assert sum(line.split()[3:5] == ["-", "-"] for line in frame) == 3
    assert "Total 3 worker(s), 0 processors" in frame


def test_what_is_gone_from_above_and_below_can_be_scrolled_to() -> None:
    many = cluster(status(**workers([f"w{number:02}" for number in range(60)])))
    view = View(sort="worker")
    first = render(many, view, FeedSource(ADDRESS), Size(100, 24))
    assert len(first.lines) == 24
    assert first.extent.rows == 60
    page = first.extent.page
    last = plain(render(many, view._replace(offset=1000), FeedSource(ADDRESS), Size(100, 24)).lines)
    assert "|w59" in last[-1]
    assert f"|w{60 - page}" in last[24 - page]


@pytest.mark.exhaustive_on_pypy
def test_narrow_terminals_lose_sections_and_columns_in_order() -> None:
    full = cluster(status(1), status(2, **clients(""), **functions("prepare")))

    def widest_without(piece: str) -> int:
        return max(size for size in range(20, 200) if piece not in " ".join(shown(full, columns=size)[8:]).split())

    def widest_without_section(title: str) -> int:
        return max(size for size in range(30, 200) if title not in shown(full, columns=size)[0])

    sections = ["object_manager", "scheduler_received", "scheduler_sent"]
    assert sorted(sections, key=widest_without_section, reverse=True) == sections
    columns = ["client_manager", "ITL", "agt_rss", "agt_cpu", "lag", "free", "queued", "rss", "sent"]
    assert sorted(columns, key=widest_without, reverse=True) == columns


def test_the_column_that_is_sorted_by_stays() -> None:
    assert "[lag]" in "\n".join(shown(view=View(sort="lag"), columns=34))


@settings(deadline=None)
@given(
    columns=some.integers(1, 220),
    lines=some.integers(1, 60),
    name=some.text(max_size=40),
    view=some.builds(
        View,
        sort=some.sampled_from([column.title for column in COLUMNS if column.key]),
        is_reversed=some.booleans(),
        wanted=some.text(max_size=3),
        offset=some.integers(0, 100),
        is_typing=some.booleans(),
        is_paused=some.booleans(),
        shows_help=some.booleans(),
    ),
    is_connected=some.booleans(),
)
def test_a_frame_of_anything_fits_any_terminal(
    columns: int, lines: int, name: str, view: View, is_connected: bool
) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        name = "x"
    played = cluster(
        status(
            **workers([name] * 40),
            **clients(name, "b"),
            **functions(name, "g"),
            waiting_reasons=[name] * 5,
            tasks=counts(success=2**63, failed=3),
        )
    )
    frame = render(played, view, FeedSource(ADDRESS, 3.0, is_connected), Size(columns, lines))
    assert len(frame.lines) <= lines
    for line in frame.lines:
        assert width_of(line) <= columns
    for line_text in plain(frame.lines):
        assert text.safe(line_text) == line_text


def test_help_tells_all_keys_and_columns() -> None:
    frame = shown(view=View(shows_help=True))
    for column in COLUMNS:
        assert any(line.strip().startswith(column.title) for line in frame)
    assert any("quit" in line for line in frame)
    assert any(line.strip().startswith("running") for line in frame)
    least = shown(view=View(shows_help=True), lines=24, columns=80)
    assert "press any key to go back" in least[0]
    assert any(line.strip().startswith(COLUMNS[-2].title) for line in least), "keys and columns fit a small terminal"


def test_actors_stand_below_functions_with_their_place_and_why_one_is_lost_above() -> None:
    seen = cluster(status(1, **clients("", "etl"), **functions("prepare", "score"), **actors()))
    frame = shown(seen, columns=150)
    assert "lost: Pool: the actor Pool was lost with its worker, w on h: it is silent" in frame
    beside = [line.partition(" | ")[2].rstrip() for line in frame]
    start = next(number for number, line in enumerate(beside) if line.startswith("actor_to"))
    heading, counter, model, pool = beside[start : start + 4]
    assert heading.split() == ["actor_to_num_calls", "at", "calls", "finished"]
    assert counter.split() == ["Counter", "'visits'", "56b", "120", "5,000"]
    assert model.split() == ["Model", "waiting", "2", "0"]
    assert pool.split() == ["Pool", "lost", "0", "7"]
    assert any(line.startswith("func_to_num_tasks") for line in beside[:start])


@pytest.mark.parametrize("lines", range(1, 40))
def test_actors_leave_room_for_clients_and_functions(lines: int) -> None:
    seen = cluster(status(1, **clients("", "etl"), **functions("prepare", "score"), **actors()))
    frame = shown(seen, columns=150, lines=lines)
    assert len(frame) <= lines
