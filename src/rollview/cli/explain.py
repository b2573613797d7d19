"""`rollview explain`: the very plan that runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, cast

import click

from rollview.answer.requests import ExplainRequest
from rollview.cli.answers import asked_elsewhere
from rollview.cli.project_context import opened, project_options
from rollview.cli.status import cost_lines, worked
from rollview.cli.terminal import plain, plural, print_json, results

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from rollview.observe.copies import CopyAdvice, Saving
    from rollview.observe.explain import Explanation, Path
    from rollview.observe.explain_parts import Part

_SHOWN = 100


@click.command()
@click.argument("view", required=False)
@click.option(
    "--sql",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=FilePath),
    help="Explain the view in this file, which need not be the project's, before it is created.",
)
@project_options
def explain(view: str | None, file: FilePath | None, project_file: FilePath, as_json: bool) -> None:
    """Explain how a view is maintained, and why.

    Prints the parts that the view is cut into: how each is maintained, what it stores, and what costs more
    than the size of a change, with what to do about it. Then the normal form, the join graph, the sub-queries
    that one update of each relation sends to which source, the algorithm and why it was chosen. Works for
    view files that have not been set up yet, too.

    \b
    rollview explain sale_lines
    rollview explain --sql views/sale_lines.sql
    """
    if (view is None) == (file is None):
        raise click.UsageError("name a view, or a file with --sql")
    found = _explained(project_file, view, file)
    if as_json:
        paths = [{**plain(path), "sub_queries": path.sub_queries} for path in found.paths]
        print_json({**plain(found), "paths": paths})
    else:
        _print(results(), found)


def _explained(project_file: FilePath, view: str | None, file: FilePath | None) -> Explanation:
    """The explanation, as a process that runs the project gives it; or else as this one does."""
    if view is not None:
        reply = asked_elsewhere(project_file, ExplainRequest(view), "").reply
        if reply is not None:
            return cast("Explanation", reply.record)
    with opened(project_file, may_be_new=True) as at:
        return at.project.explain(view) if view is not None else at.project.explain_sql(file or "")


def _print_part(console: Console, part: Part, is_stage: bool) -> None:
    from rich.text import Text

    def line(text: Text | str) -> None:
        console.print(Text.assemble("    ", text), soft_wrap=True)

    text = f"{part.operator}: {part.sentence}"
    console.print(Text.assemble(f"  {part.name}  ", (f"{part.method}, ", "bold"), text), soft_wrap=True)
    if is_stage:
        line(Text(part.sql if len(part.sql) <= _SHOWN else f"{part.sql[:_SHOWN]} …", style="dim"))
    asked = f"; a change asks {', '.join(part.asks) or 'nobody'}" if part.method != "full" else ""
    line(f"reads {', '.join(part.reads)}{asked}")
    if part.stored is not None:
        line(f"stores {plural(part.stored.rows, 'row')}, {plural(part.stored.bytes, 'byte')}")
    for cost in part.costs:
        line(Text.assemble((cost.code, "yellow"), f" {cost.sentence}"))
        line(Text(f"  to avoid it: {cost.suggestion}", style="dim"))


def _path(path: Path) -> Iterator[str]:
    """The look-ups of one update of a relation, and the updates that need none."""
    rounds = "; then ".join(" and ".join(each) for each in path.rounds) or "nothing"
    count = "1 sub-query" if path.sub_queries == 1 else f"{path.sub_queries} sub-queries"
    yield f"{path.relation}: {count}: {rounds}"
    for other in path.spared:
        yield f"  none for rows that come or go in a transaction that leaves {other} alone (foreign key)"
    if path.keeps_key:
        changed = f", or change in {', '.join(path.shown)} alone" if path.shown else ""
        when = "if they are quickly found in the view, which has their key"
        yield f"  none for rows that go{changed}, {when}"


def _copies(advice: CopyAdvice) -> Iterator[str]:
    """The copies that would make the view self-maintaining, and which of them pay."""
    for each in advice.copies:
        where = f" where {each.condition}" if each.condition else ""
        size = ""
        if each.rows is not None and each.bytes is not None:
            size = f": at most {plural(each.rows, 'row')}, about {plural(each.bytes, 'byte')}"
        changed = f"; {plural(each.changes, 'row')} changed since the view was loaded" if each.changes else ""
        yield f"{each.table} ({', '.join(each.columns)}){where}{size}{changed}"
    if advice.together is None or advice.cheapest is None:
        yield "no look-up has been measured yet, so nothing is known of what they would save"
        return
    yield f"all of them would have saved {_saved(advice.together)}, of {plural(advice.measured, 'look-up')}"
    if not advice.cheapest.tables:
        yield "by these measurements no copy pays"
    elif len(advice.cheapest.tables) == len(advice.copies):
        yield "by these measurements all of them pay"
    else:
        names = ", ".join(advice.cheapest.tables)
        yield f"by these measurements {names} alone pays most: {_saved(advice.cheapest)}"


def _saved(saving: Saving) -> str:
    rows = f"{plural(saving.rows, 'row')} sent or found"
    time = f"{saving.seconds:.2g} s at the sources, for {saving.upkeep_seconds:.2g} s of upkeep"
    return f"{plural(saving.lookups, 'look-up')}, {rows}, {time}"


def _algorithm(found: Explanation) -> Iterator[str]:
    """The algorithm, what it has cost here, and how long its steps are."""
    yield f"{found.algorithm}: {found.why}"
    if found.work.steps:
        yield f"here, since it was loaded: {worked(found.work)}"
    yield from cost_lines(found.measured)
    if found.batch is not None:
        yield f"staleness: {found.batch.sentence}"


def _print(console: Console, found: Explanation) -> None:
    from rich.text import Text

    def section(title: str, lines: Iterable[str]) -> None:
        console.print(Text(f"\n{title}", style="bold"))
        for text in lines:
            console.print(Text(f"  {text}"), soft_wrap=True)

    kind = found.full or "incremental: the cost follows the size of the change, not of the base tables"
    if any(part.costs for part in found.parts):
        kind += ", except where a part below says otherwise"
    console.print(Text.assemble((found.view, "bold"), f"  policy {found.policy}, {kind}"))
    for notice in found.notices:
        console.print(Text.assemble(("note: ", "yellow"), notice), soft_wrap=True)
    section("parts, from the top", ())
    for number, part in enumerate(found.parts):
        _print_part(console, part, number > 0)
    section("normal form", found.normal_form.rstrip().splitlines())
    section("join graph", found.join_graph)
    section("sub-queries per update", (text for path in found.paths for text in _path(path)))
    if found.copies is not None:
        section("copies that would make it self-maintaining", _copies(found.copies))
    section("algorithm", _algorithm(found))
    verdicts = dict.fromkeys(verdict for name, verdict in found.others if name != found.algorithm)
    for verdict in verdicts:
        names = [name for name, each in found.others if each == verdict and name != found.algorithm]
        console.print(Text(f"  {verdict}: {', '.join(names)}", style="dim"), soft_wrap=True)
