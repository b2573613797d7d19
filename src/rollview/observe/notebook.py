"""A project, its status, explanations and answers in a notebook: HTML, without scripts or colours.

Text takes the colours of the notebook, so that it can be read in light and dark themes. Every value is
escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from rollview.observe.state import ProjectState

MOST_ROWS = 50
_CELL = (
    "padding:2px 12px 2px 0;text-align:{};border-bottom:1px solid rgba(128,128,128,.35);vertical-align:top"
)
_TABLE = "border-collapse:collapse;background:transparent;color:inherit;margin:4px 0 8px 0"


def project_html(name: str, state: ProjectState) -> str:
    """A project: what it shows."""
    rows = [
        (each.name, each.state, each.materialized, each.high_water, seconds_text(each.lag_seconds))
        for each in state.views
    ]
    views = table_html(("view", "state", "shows csn", "high-water mark", "lag"), rows, numbers=(2, 3, 4))
    sources = ", ".join(each.site for each in state.sources)
    return page_html(f"{name} at csn {state.last_csn}", f"sources: {sources}", views)


def rows_html(rows: pa.Table) -> str:
    """The first rows of a table."""
    shown = rows.slice(0, MOST_ROWS)
    columns = [column.to_pylist() for column in shown.columns]
    numbers = [
        place
        for place, values in enumerate(columns)
        if any(isinstance(each, int | float) and not isinstance(each, bool) for each in values)
    ]
    shown_rows = table_html(rows.column_names, list(zip(*columns, strict=True)), numbers)
    more = rows.num_rows - shown.num_rows
    return shown_rows + (f"<p>… and {more:,} more</p>" if more else "")


def page_html(title: str, below: str, *pieces: str) -> str:
    """Pieces of HTML under a title, with a sentence above them."""
    head = f"<p><b>{escape(title)}</b></p>" if title else ""
    footer = f"<p>{escape(below)}</p>" if below else ""
    return f"<div>{head}{footer}{''.join(pieces)}</div>"


def table_html(columns: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Sequence[int] = ()) -> str:
    """Rows under headings; `numbers` are the columns that are set to the right."""

    def cells(kind: str, values: Sequence[Any]) -> str:
        return "".join(
            f'<{kind} style="{_CELL.format("right" if place in numbers else "left")}">{_cell(value)}</{kind}>'
            for place, value in enumerate(values)
        )

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', columns)}</tr></thead>"
    return f'<table style="{_TABLE}">{head}<tbody>{lines}</tbody></table>'


def _cell(value: Any) -> str:
    return '<span style="opacity:.6">NULL</span>' if value is None else escape(str(value))


def list_html(sentences: Iterable[str]) -> str:
    """Sentences with a dot before each; nothing if there are none."""
    lines = "".join(f"<li>{escape(each)}</li>" for each in sentences)
    return f"<ul>{lines}</ul>" if lines else ""


def seconds_text(seconds: float | None) -> str:
    """A duration as a cell shows it."""
    return "unknown" if seconds is None else f"{seconds:,.1f} s"
