"""The dashboard and the alerts speak of metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ui.browsing import told_state

from scaler_appliance.ui.metrics import Metrics
from scaler_protocol import messages as m

yaml = pytest.importorskip("yaml", reason="PyYAML is a tool of development, on CPython")
FOLDER = Path(__file__).resolve().parents[3] / "packaging/grafana"
DOCUMENTATION = Path(__file__).resolve().parents[3] / "docs/monitoring.md"
METRIC = re.compile(r"\bscaler_[a-z_]+\b")
LABELS = re.compile(r"\{([^{}]*)\}")
OF_THE_SCRAPE = {"instance", "job"}


@pytest.fixture(scope="module")
def labels_by_metric() -> Dict[str, Set[str]]:
    state, feed = told_state(steps=5)
    feed.scheduler.pools = [m.PoolDemand(pool="cpu")]
    feed.step()
    found: Dict[str, Set[str]] = {}
    for family in text_string_to_metric_families(Metrics(state).text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions_of(value: Any) -> Iterator[str]:
    """All that stands under a key `expr`, and queries of variables."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, str) and key in ("expr", "query"):
                yield inner
            yield from expressions_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions_of(inner)


def expressions(name: str) -> List[str]:
    text = (FOLDER / name).read_text(encoding="utf-8")
    return list(expressions_of(json.loads(text) if name.endswith(".json") else yaml.safe_load(text)))


@pytest.mark.parametrize("name", ["scaler.json", "alerts.yaml"])
def test_every_metric_exists_with_its_labels(name: str, labels_by_metric: Dict[str, Set[str]]) -> None:
    found = expressions(name)
    assert len(found) > 5
    for expression in found:
        names = METRIC.findall(expression)
        assert not set(names) - labels_by_metric.keys(), expression
        for selector in LABELS.findall(expression):
            wanted = set(re.findall(r"(\w+)\s*[=!]", selector)) - OF_THE_SCRAPE
            assert not wanted or any(wanted <= labels_by_metric[each] for each in names), expression


def test_counters_are_read_as_rates(labels_by_metric: Dict[str, Set[str]]) -> None:
    for name in ("scaler.json", "alerts.yaml"):
        for expression in expressions(name):
            for metric in re.findall(r"(\w*\(?)(scaler_[a-z_]+_(?:total|bucket|sum|count))", expression):
                assert metric[0] in ("rate(", "increase("), expression


def test_panels_do_not_lie_on_each_other() -> None:
    panels = json.loads((FOLDER / "scaler.json").read_text(encoding="utf-8"))["panels"]
    cells: Set[Any] = set()
    for panel in panels:
        place = panel["gridPos"]
        taken = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        cells |= taken


def test_the_documentation_names_every_metric_and_no_other(labels_by_metric: Dict[str, Set[str]]) -> None:
    table = DOCUMENTATION.read_text(encoding="utf-8").partition("## Prometheus")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| `(scaler_[a-z_]+)", table, re.MULTILINE))
    families = {
        name.replace("_bucket", "").replace("_count", "").replace("_sum", "")
        for name in labels_by_metric
        if not name.startswith("scaler_ui_process")
    }
    assert named == families
