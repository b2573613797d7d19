"""The tables of docs/reference/metrics.md, made from the code: `python tests/monitoring/metrics_page.py`."""

from __future__ import annotations

import re
from pathlib import Path

from rollview.monitoring import metrics
from rollview.monitoring.metrics import Metric

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
SECTIONS = {
    "The project": metrics.BUILD_INFO,
    "Sources": metrics.SOURCE_VERSION,
    "Views": metrics.VIEW_INFO,
    "Consumers": metrics.CONSUMER_CSN,
    "What the process did": metrics.TRANSACTIONS,
}
"""Each with the first metric of it."""

DECLARED = [each for each in vars(metrics).values() if isinstance(each, Metric)]


def row(metric: Metric) -> str:
    """A line of a table."""
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    name = f"{metric.name}_total" if metric.kind == "counter" else metric.name
    return f"| `{name}` | {metric.kind} |{f' {labels} ' if labels else ' '}| {metric.help} |"


def tables() -> dict[str, str]:
    """The table of each section."""
    found: dict[str, list[str]] = {}
    for metric in DECLARED:
        for section, first in SECTIONS.items():
            if metric is first:
                found[section] = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
        found[list(found)[-1]].append(row(metric))
    return {section: "\n".join(lines) for section, lines in found.items()}


def page_text(text: str) -> str:
    """The page with its tables as they should be."""
    for section, table in tables().items():
        text = re.sub(
            rf"(?ms)^(## {re.escape(section)}\n.*?)^\| metric .*?(?=^(?!\|))",
            lambda found, table=table: found[1] + table + "\n",
            text,
        )
    return text


if __name__ == "__main__":
    PAGE.write_text(page_text(PAGE.read_text("utf-8")), encoding="utf-8")
