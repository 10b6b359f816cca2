"""The dashboard and the alert rules against the metrics of a real server, and against the documentation."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from querator import Client
from tests.crash.server import server_in
from tests.docs.pages import ROOT, page, quoted, table

DASHBOARD = ROOT / "deploy/grafana/querator.json"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"

# Labels that Prometheus itself adds, and the metric of its own.
BY_PROMETHEUS = {"instance", "job"}
OF_PROMETHEUS = {"up": set[str]()}

_SELECTOR = re.compile(r"\b((?:querator|process)_\w+|up)\b(?:\{([^}]*)\})?")
_GROUPING = re.compile(r"\bby \(([^)]*)\)")


class Expression(NamedTuple):
    where: str
    text: str


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def variables() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["templating"]["list"]
    return found


def expressions() -> Iterator[Expression]:
    for rule in alerts():
        yield Expression(rule["alert"], rule["expr"])
    for panel in panels():
        for target in panel["targets"]:
            yield Expression(panel["title"], target["expr"])


async def shown_metrics(folder: Path) -> dict[str, set[str]]:
    """The labels of every sample that a server shows that was used, by the sample's name."""
    async with server_in(folder) as server, aiohttp.ClientSession() as session:
        await server.start()
        async with Client(server.url) as client:
            await client.create_queue("mail")
            await client.produce("mail", "a")
        async with session.get(f"{server.url}/metrics") as answer:
            text = await answer.text()
    shown: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            shown.setdefault(sample.name, set()).update(sample.labels)
    return shown | OF_PROMETHEUS


async def test_every_metric_that_is_used_is_shown(tmp_path: Path) -> None:
    """The expressions of alerts, panels and variables name only metrics and labels that a server shows."""
    shown = await shown_metrics(tmp_path)
    queries = [Expression(each["name"], each["definition"]) for each in variables() if each["type"] == "query"]
    for where, text in [*expressions(), *queries]:
        selectors = _SELECTOR.findall(text)
        assert selectors, where
        there: set[str] = set(BY_PROMETHEUS)
        for metric, matchers in selectors:
            assert metric in shown, f"{where}: no server shows {metric}"
            there |= shown[metric]
            unknown = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) - shown[metric] - BY_PROMETHEUS
            assert not unknown, f"{where}: {metric} has no {unknown}"
        grouped = {label.strip() for labels in _GROUPING.findall(text) for label in labels.split(",")}
        assert grouped <= there, f"{where}: no {grouped - there}"


def test_legends_name_labels_that_are_left() -> None:
    """A legend names only labels by which its expression groups, or that Prometheus adds."""
    for panel in panels():
        for target in panel["targets"]:
            grouped = {label.strip() for labels in _GROUPING.findall(target["expr"]) for label in labels.split(",")}
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert named <= (grouped or BY_PROMETHEUS), panel["title"]


def test_panels_can_be_told_apart_and_do_not_overlap() -> None:
    """Each panel has an id and a title of its own within its row, a unit, and room of its own on a grid of 24 columns."""
    everything = json.loads(DASHBOARD.read_text())["panels"]
    ids = [panel["id"] for panel in everything]
    assert len(ids) == len(set(ids))
    for panel in panels():
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24, panel["title"]
    for one, other in combinations((panel["gridPos"] for panel in everything), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or apart, (one, other)


def test_the_dashboard_is_by_instance_and_queue() -> None:
    """Every panel follows the choice of instances, and every panel of a queue that of queues."""
    assert [each["name"] for each in variables()] == ["datasource", "instance", "queue"]
    for panel in panels():
        for target in panel["targets"]:
            for metric, matchers in _SELECTOR.findall(target["expr"]):
                assert 'instance=~"$instance"' in matchers, (panel["title"], metric)
                assert ('queue=~"$queue"' in matchers) == metric.startswith("querator_queue_"), panel["title"]


def test_alerts_are_those_of_the_documentation() -> None:
    """The table of alerts names every rule with its severity, and every rule says what it means and what to do."""
    documented = {quoted(alert)[0]: severity for alert, severity, _ in table(page("docs/operations.md"), "### Alerts")}
    assert documented == {rule["alert"]: rule["labels"]["severity"] for rule in alerts()}
    assert all(rule["annotations"].keys() == {"summary", "description"} for rule in alerts())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (apt-get install prometheus)")
def test_prometheus_reads_every_expression(tmp_path: Path) -> None:
    """Prometheus itself takes the rules, and the expressions of the dashboard as if they were rules."""
    rules = [
        {"record": f"panel:{index}", "expr": as_prometheus_gets_it(text)}
        for index, (_, text) in enumerate(expressions())
    ]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    for path in (ALERTS, tmp_path / "panels.yml"):
        checked = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def as_prometheus_gets_it(text: str) -> str:
    return text.replace("$__rate_interval", "5m").replace("$instance", ".*").replace("$queue", ".*")
