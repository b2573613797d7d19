"""How the state of sources and views looks in a terminal."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rollview.catalog import Work
    from rollview.service.status import HaltStatus, Status, ViewStatus

_STYLES = {"running": "green", "stopped": "red"}


def print_status(console: Console, found: Status) -> None:
    """The whole status as a few tables."""
    when = f" ({found.last_commit_time})" if found.last_commit_time else ""
    console.print(Text.assemble((found.name, "bold"), f" at csn {found.last_csn}{when}\n"))
    _print_sources(console, found)
    _print_views(console, found.views)
    _print_times(console, found.views)
    for name, halted in (
        *((f"source {each.site}", each.halted) for each in found.sources),
        *((f"view {each.name}", each.halted) for each in found.views),
    ):
        if halted is not None:
            _print_halted(console, name, halted)
    for view in found.views:
        if view.note:
            console.print(Text.assemble(("note: ", "yellow"), f"{view.name}: {view.note}"))
        if view.new_columns:
            told = f"{view.name}: `SELECT *` does not show what came after setup: "
            take = f"; `rollview setup --reload {quote(view.name)}` takes it in"
            console.print(Text.assemble(("note: ", "yellow"), told, ", ".join(view.new_columns), take))
    for name, note in found.broken.items():
        console.print(Text.assemble(("note: ", "yellow"), f"{name}: {note}"))
    for name in found.missing:
        told = f"{name} has a file, but is not set up: `rollview setup` loads it"
        console.print(Text.assemble(("note: ", "yellow"), told))
    for each in found.waiting:
        holds = f"{', '.join(each.present)} held up since {each.since}"
        told = f"global transaction {each.global_id} waits for {', '.join(each.missing)}; {holds}"
        console.print(Text.assemble(("waiting: ", "yellow"), told))
        console.print(Text(f"  if that part never arrives: rollview release {each.global_id}", style="dim"))
    for step in found.unfinished:
        told = step.problem or f"{step.step}; the next run finishes it"
        console.print(Text.assemble(("unfinished: ", "yellow"), told))
        if step.hint:
            console.print(Text(f"  hint: {step.hint}", style="dim"))


def _print_halted(console: Console, name: str, halted: HaltStatus) -> None:
    since = f" since {halted.since}" if halted.since else ""
    place = f", from csn {halted.csn} on" if halted.csn else ""
    told = f"{name}{since}{place}: {halted.reason}"
    console.print(Text.assemble(("stopped: ", "red"), told))
    if halted.hint:
        console.print(Text(f"  hint: {halted.hint}", style="dim"))


def _table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def _print_sources(console: Console, found: Status) -> None:
    table = _table("source", "type", "transactions", "captured", right=("transactions",))
    for site in found.sources:
        name = Text(site.site, style="bold")
        merged = f" ({site.merged:,} may stand for several)" if site.merged else ""
        table.add_row(name, site.kind, f"{site.version:,}{merged}", site.captured_at or "nothing yet")
    console.print(table)
    for site in found.sources:
        how = ", ".join(f"{key}: {value}" for key, value in site.how.items())
        told = Text(site.problem, style="red") if site.problem else Text(how, style="dim")
        console.print(Text.assemble((f"{site.site}: ", "dim"), told))
    console.print()


def _print_views(console: Console, views: tuple[ViewStatus, ...]) -> None:
    numbers = ("shows csn", "high-water mark", "behind", "lag")
    table = _table("view", "state", *numbers, "readable", right=numbers)
    for view in views:
        table.add_row(
            Text(view.name, style="bold"),
            Text(view.state, style=_STYLES.get(view.state, "")),
            f"{view.materialized}",
            f"{view.high_water}",
            Text(f"{view.behind_csn:,}", style="" if view.behind_csn else "green"),
            f"{view.lag_seconds:,.1f} s",
            ", ".join(
                f"csn {oldest} to {newest}"
                for oldest, newest in (
                    *((span.oldest, span.newest) for span in reversed(view.spans)),
                    (view.oldest, view.high_water),
                )
            ),
        )
    console.print(table, "")


def worked(work: Work) -> str:
    """What propagation has cost, in words."""
    told = f"{work.steps:,} steps, {work.lookups:,} look-ups, {work.rows_found:,} rows found"
    if work.spared:
        why = "they join nothing, came and went in a step, or the view answered itself"
        told += f"; {work.spared:,} changes were not looked up: {why}"
    if work.in_doubt:
        told += f"; {work.in_doubt:,} transactions were in doubt, and computed anew"
    return told


def _print_times(console: Console, views: tuple[ViewStatus, ...]) -> None:
    """The valid time of each view, and what its last refresh did."""
    for view in views:
        valid = f"valid from {view.valid_from or 'its first load'} until {view.valid_until or 'now'}"
        console.print(Text.assemble((view.name, "bold"), f": {view.policy}, {valid}"))
        if view.last_refresh is not None:
            last = view.last_refresh
            rows = f", {last.rows:,} rows" if last.rows >= 0 else ""
            what = f"{last.kind}, csn {last.from_csn} → {last.to_csn}{rows}, {last.seconds:.1f} s"
            console.print(Text(f"  last refresh: {what}; {last.reason}", style="dim"))
        if view.work.steps:
            console.print(Text(f"  propagated: {worked(view.work)}", style="dim"))
        if view.schedule:
            console.print(Text(f"  schedule: {view.schedule}, next due {view.next_due}", style="dim"))
        for number, each in enumerate(view.consumers):
            behind = f"csn {each.csn}, {view.high_water - each.csn:,} behind the high-water mark"
            kept = "; the delta is kept for it" if number == 0 else ""
            console.print(Text(f"  consumer {each.name}: {behind}{kept}", style="dim"))
        if (whole := view.last_recomputed) is not None:
            what = f"csn {whole.from_csn} → {whole.to_csn}, {whole.seconds:.1f} s; {whole.reason}"
            console.print(Text(f"  last recomputed: {what}", style="dim"))
