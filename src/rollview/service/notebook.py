"""How a project, its status, explanations and answers look in a notebook: HTML, without scripts or colours.

Text takes the colours of the notebook, so that it can be read on light and on dark ground; lines between rows
are a shade of the text. Every value is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from rollview.service.explain import Explanation
    from rollview.service.overview import Overview
    from rollview.service.query import Answered, AnswerPlan
    from rollview.service.status import HaltStatus, Status

MOST_ROWS = 50
_CELL = (
    "padding:2px 12px 2px 0;text-align:{};border-bottom:1px solid rgba(128,128,128,.35);vertical-align:top"
)
_TABLE = "border-collapse:collapse;background:transparent;color:inherit;margin:4px 0 8px 0"


def project_html(name: str, overview: Overview) -> str:
    """A project: what it shows."""
    rows = [
        (each.name, each.state, each.materialized, each.high_water, _seconds(each.lag_seconds))
        for each in overview.views
    ]
    views = _table(("view", "state", "shows csn", "high-water mark", "lag"), rows, numbers=(2, 3, 4))
    sources = ", ".join(each.site for each in overview.sources)
    return _page(f"{name} at csn {overview.last_csn}", f"sources: {sources}", views)


def status_html(found: Status) -> str:
    """Sources, views, and what somebody has to look at."""
    sources = _table(
        ("source", "type", "transactions", "captured", ""),
        [
            (each.site, each.kind, f"{each.version:,}", each.captured_at or "nothing yet", each.problem)
            for each in found.sources
        ],
        numbers=(2,),
    )
    views = _table(
        ("view", "state", "shows csn", "high-water mark", "lag", "valid from", "until", "last refresh"),
        [
            (
                each.name,
                each.state,
                each.materialized,
                each.high_water,
                _seconds(each.lag_seconds),
                each.valid_from or "its first load",
                each.valid_until or "now",
                "" if each.last_refresh is None else f"{each.last_refresh.kind}; {each.last_refresh.reason}",
            )
            for each in found.views
        ],
        numbers=(2, 3, 4),
    )
    halted = [
        _halted(name, each)
        for name, each in (
            *((f"source {each.site}", each.halted) for each in found.sources),
            *((f"view {each.name}", each.halted) for each in found.views),
        )
        if each is not None
    ]
    notes = [f"{each.name}: {each.note}" for each in found.views if each.note]
    notes += [f"{name}: {note}" for name, note in found.broken.items()]
    waiting = [f"{each.global_id} waits for {', '.join(each.missing)}" for each in found.waiting]
    unfinished = [each.problem or f"unfinished: {each.step}" for each in found.unfinished]
    told = _list((*halted, *notes, *waiting, *unfinished))
    return _page(f"{found.name} at csn {found.last_csn}", found.last_commit_time, sources, views, told)


def explanation_html(found: Explanation) -> str:
    """How a view is maintained: its parts, look-ups, and the algorithm."""
    parts = _table(
        ("part", "method", "operator", "reads", "costs"),
        [
            (
                each.name,
                each.method,
                f"{each.operator}: {each.sentence}",
                ", ".join(each.reads),
                "; ".join(f"{cost.code} {cost.sentence}" for cost in each.costs),
            )
            for each in found.parts
        ],
    )
    paths = _table(
        ("relation", "sub-queries per update"),
        [
            (each.relation, "; then ".join(" and ".join(some) for some in each.rounds) or "none")
            for each in found.paths
        ],
    )
    form = f'<pre style="background:transparent;color:inherit">{escape(found.normal_form.rstrip())}</pre>'
    algorithm = f"<p>{escape(f'{found.algorithm}: {found.why}')}</p>"
    kind = found.full or "incremental"
    title = f"{found.view}: policy {found.policy}, {kind}"
    return _page(title, "", _list(found.notices), parts, form, paths, algorithm)


def answer_html(found: Answered) -> str:
    """The first rows of an answer, and its valid time."""
    return _page("", _valid(found.csn, found.valid_from, found.valid_until), rows_html(found.table))


def plan_html(found: AnswerPlan) -> str:
    """From what a query would be answered."""
    inputs = _table(("input", "how"), [(each.name, each.how) for each in found.inputs])
    return _page("", _valid(found.csn, found.valid_from, found.valid_until), inputs)


def rows_html(rows: pa.Table) -> str:
    """The first rows of a table."""
    shown = rows.slice(0, MOST_ROWS)
    columns = [column.to_pylist() for column in shown.columns]
    numbers = [
        place
        for place, values in enumerate(columns)
        if any(isinstance(each, int | float) and not isinstance(each, bool) for each in values)
    ]
    table = _table(rows.column_names, list(zip(*columns, strict=True)), numbers)
    more = rows.num_rows - shown.num_rows
    return table + (f"<p>… and {more:,} more</p>" if more else "")


def _page(title: str, below: str, *pieces: str) -> str:
    head = f"<p><b>{escape(title)}</b></p>" if title else ""
    told = f"<p>{escape(below)}</p>" if below else ""
    return f"<div>{head}{told}{''.join(pieces)}</div>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Sequence[int] = ()) -> str:
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


def _list(sentences: Iterable[str]) -> str:
    lines = "".join(f"<li>{escape(each)}</li>" for each in sentences)
    return f"<ul>{lines}</ul>" if lines else ""


def _halted(name: str, halted: HaltStatus) -> str:
    return f"stopped: {name}: {halted.reason}" + (f" ({halted.hint})" if halted.hint else "")


def _seconds(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds:,.1f} s"


def _valid(csn: int, since: str, until: str) -> str:
    return f"as of csn {csn}, valid from {since or 'the first load'} until {until or 'now'}"
