"""The dashboard and the alerts: they use metrics and labels that exist, and Prometheus understands them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollview.cli import main
from rollview.monitoring import metrics
from rollview.monitoring.metrics import Metric

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "monitoring" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "monitoring" / "grafana" / "rollview.json"
PAGE = ROOT / "docs" / "how-to" / "monitoring.md"

OF_PROMETHEUS = {"job", "instance"}
LABELS = {
    **{
        name: {*each.labels, *(["le"] if name.endswith("_bucket") else [])}
        for each in vars(metrics).values()
        if isinstance(each, Metric)
        for name in each.sample_names
    },
    "process_resident_memory_bytes": set(),
    "process_cpu_seconds_total": set(),
    "up": set(),
}
"""Of every sample that an expression may name."""

_FUNCTIONS = {"rate", "increase", "sum", "min", "max", "deriv", "time", "histogram_quantile", "label_values"}
_WORDS = {"by", "on", "unless", "and", "or", "offset"}


def _wrong(expression: str) -> list[str]:
    """What an expression names and nobody knows."""
    wrong = []
    named = set()
    plain = re.sub(r'"[^"]*"', '""', expression)
    for name, matchers in re.findall(r"([a-z_][a-z0-9_]+)\b(?:\{([^}]*)\})?", plain):
        if name in LABELS:
            named.add(name)
            used = set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", matchers))
            wrong += [f"{name}{{{label}}}" for label in used - LABELS[name] - OF_PROMETHEUS]
    known = set().union(*(LABELS[name] for name in named), OF_PROMETHEUS) if named else set()
    without = re.sub(r"\{[^}]*\}|\[[^]]*\]|\$\w+", "", plain)
    for words in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", without):
        wrong += [label for label in re.split(r"[,\s]+", words.strip()) if label not in known]
    rest = re.sub(r"\b(?:by|on)\s*\([^)]*\)", "", without)
    for word in re.findall(r"[a-z_][a-z0-9_]*", re.sub(r"\b\d+(?:e\d+)?[smhd]?\b", "", rest)):
        if word not in LABELS and word not in _FUNCTIONS and word not in _WORDS and word not in known:
            wrong.append(word)
    return wrong if named else [*wrong, "no metric"]


def _rules() -> list[dict[str, Any]]:
    content = yaml.safe_load(ALERTS.read_text("utf-8"))
    return [rule for group in content["groups"] for rule in group["rules"]]


def _panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return found


def _expressions() -> Iterator[tuple[str, str]]:
    for panel in _panels():
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def test_what_nobody_knows_is_found() -> None:
    assert _wrong('sum by (kind) (rate(rollview_errors_total{job=~"$job"}[$__rate_interval]))') == []
    assert _wrong("rollview_no_such_metric > 0") == ["rollview_no_such_metric", "no metric"]
    assert _wrong('rollview_view_csn{source="crm"}') == ["rollview_view_csn{source}"]
    assert _wrong("sum by (source) (rollview_view_csn)") == ["source"]
    assert _wrong("rollview_errors > 0") == ["rollview_errors", "no metric"]


# Alerts.


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule["alert"])
def test_alerts_name_what_exists_and_say_what_to_do(rule: dict[str, Any]) -> None:
    assert _wrong(rule["expr"]) == []
    assert set(rule["annotations"]) == {"summary", "description"}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    labels = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    used = [LABELS[name] for name in LABELS if re.search(rf"\b{name}\b", rule["expr"])]
    assert labels <= set().union(*used) | OF_PROMETHEUS
    for command in re.findall(r"`rollview ([a-z]+)", rule["annotations"]["description"]):
        assert command in main.list_commands(None)  # type: ignore[arg-type]


def test_every_alert_is_explained() -> None:
    explained = re.findall(r"^\| `(Rollview\w+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert explained == [rule["alert"] for rule in _rules()]


# The dashboard.


def test_the_dashboard_can_be_imported() -> None:
    board = json.loads(DASHBOARD.read_text("utf-8"))
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= board.keys()
    assert "id" not in board, "an id belongs to one Grafana"
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    names = {each["name"] for each in board["templating"]["list"]}
    for panel in board["panels"]:
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith("."), panel["title"]
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            assert set(re.findall(r"\$(?!__)(\w+)", target["expr"])) <= names
    for variable in board["templating"]["list"][1:]:
        assert _wrong(variable["definition"]) == [], variable["name"]
        label = variable["definition"].rpartition(",")[2].strip(" )")
        metric = re.findall(r"rollview_\w+", variable["definition"])[0]
        assert label in LABELS[metric] | OF_PROMETHEUS


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in _panels():
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, (panel["title"], taken.get((x, y)))
                taken[x, y] = panel["title"]


@pytest.mark.parametrize(("title", "expression"), list(_expressions()), ids=lambda text: str(text)[:30])
def test_panels_name_what_exists(title: str, expression: str) -> None:
    assert _wrong(expression) == []


def test_legends_name_labels_that_are_left() -> None:
    for panel in _panels():
        for target in panel.get("targets", []):
            used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            kept = re.search(r"by \(([^)]*)\)", target["expr"])
            own = [LABELS[name] for name in LABELS if re.search(rf"\b{name}\b", target["expr"])]
            known = set(kept[1].split(", ")) if kept else set().union(*own) | OF_PROMETHEUS
            assert used <= known, panel["title"]


# As Prometheus sees it.


@pytest.fixture(scope="module")
def promtool() -> str:
    """The checker that comes with Prometheus; `scripts/servers` installs it."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed: `make servers` does that")
    return found


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ALERTS.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_understands_the_alerts(promtool: str) -> None:
    assert f"{len(_rules())} rules found" in _run(promtool, "check", "rules", str(ALERTS))


def test_alerts_fire_when_they_should(promtool: str) -> None:
    _run(promtool, "test", "rules", "alerts_test.yml")


def test_prometheus_understands_the_panels(promtool: str, tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, (_, expression) in enumerate(_expressions())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in _run(promtool, "check", "rules", str(file))
    rules[0]["expr"] = "sum(rollview_ready"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    with pytest.raises(AssertionError, match="parse error"):
        _run(promtool, "check", "rules", str(file))
