"""`rollview explain`: the very plan that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from rollview.cli.project_context import opened, project_options
from rollview.cli.status_tables import worked
from rollview.cli.terminal import plain, print_json, results

if TYPE_CHECKING:
    from rollview.service.explain import Explanation
    from rollview.service.explain_parts import Part

_SHOWN = 100


@click.command()
@click.argument("view", required=False)
@click.option(
    "--sql",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Explain the view in this file, which need not be the project's, before it is created.",
)
@project_options
def explain(view: str | None, file: Path | None, project_file: Path, as_json: bool) -> None:
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
    with opened(project_file, may_be_new=True) as at:
        found = at.project.explain(view) if view is not None else at.project.explain_sql(file or "")
    if as_json:
        paths = [{**plain(path), "sub_queries": path.sub_queries} for path in found.paths]
        print_json({**plain(found), "paths": paths})
    else:
        _print(results(), found)


def _print_part(console: Console, part: Part, is_stage: bool) -> None:
    def line(text: Text | str) -> None:
        console.print(Text.assemble("    ", text), soft_wrap=True)

    told = f"{part.operator}: {part.sentence}"
    console.print(Text.assemble(f"  {part.name}  ", (f"{part.method}, ", "bold"), told), soft_wrap=True)
    if is_stage:
        line(Text(part.sql if len(part.sql) <= _SHOWN else f"{part.sql[:_SHOWN]} …", style="dim"))
    asked = f"; a change asks {', '.join(part.asks) or 'nobody'}" if part.method != "full" else ""
    line(f"reads {', '.join(part.reads)}{asked}")
    if part.stored is not None:
        line(f"stores {part.stored.rows:,} rows, {part.stored.bytes:,} bytes")
    for cost in part.costs:
        line(Text.assemble((cost.code, "yellow"), f" {cost.sentence}"))
        line(Text(f"  to avoid it: {cost.suggestion}", style="dim"))


def _print(console: Console, found: Explanation) -> None:
    def section(title: str) -> None:
        console.print(Text(f"\n{title}", style="bold"))

    def line(text: str) -> None:
        console.print(Text(f"  {text}"), soft_wrap=True)

    kind = found.full or "incremental: the cost follows the size of the change, not of the base tables"
    if any(part.costs for part in found.parts):
        kind += ", except where a part below says otherwise"
    console.print(Text.assemble((found.view, "bold"), f"  policy {found.policy}, {kind}"))
    for notice in found.notices:
        console.print(Text.assemble(("note: ", "yellow"), notice), soft_wrap=True)
    section("parts, from the top")
    for number, part in enumerate(found.parts):
        _print_part(console, part, number > 0)
    section("normal form")
    for each in found.normal_form.rstrip().splitlines():
        line(each)
    section("join graph")
    for each in found.join_graph:
        line(each)
    section("sub-queries per update")
    for path in found.paths:
        rounds = "; then ".join(" and ".join(each) for each in path.rounds) or "nothing"
        count = "1 sub-query" if path.sub_queries == 1 else f"{path.sub_queries} sub-queries"
        line(f"{path.relation}: {count}: {rounds}")
        for other in path.spared:
            line(f"  none for rows that come or go in a transaction that leaves {other} alone (foreign key)")
        if path.keeps_key:
            changed = f", or change in {', '.join(path.shown)} alone" if path.shown else ""
            when = "if nothing else changes, and they are quickly found in the view, which has their key"
            line(f"  none for rows that go{changed}, {when}")
    section("algorithm")
    line(f"{found.algorithm}: {found.why}")
    if found.work.steps:
        line(f"here, since it was loaded: {worked(found.work)}")
    verdicts = dict.fromkeys(verdict for name, verdict in found.others if name != found.algorithm)
    for verdict in verdicts:
        names = [name for name, each in found.others if each == verdict and name != found.algorithm]
        console.print(Text(f"  {verdict}: {', '.join(names)}", style="dim"), soft_wrap=True)
