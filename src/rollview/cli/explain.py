"""`rollview explain`: the very plan that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from rollview.cli.project_context import opened, project_options
from rollview.cli.terminal import plain, print_json, results

if TYPE_CHECKING:
    from rollview.service.explain import Explanation


@click.command()
@click.argument("view")
@project_options
def explain(view: str, project_file: Path, as_json: bool) -> None:
    """Explain how a view is maintained, and why.

    Prints the normal form, the join graph, the algorithm and why it was chosen, the sub-queries that one
    update of each relation sends to which source, and what would be recomputed in full and why. Works for
    view files that have not been set up yet, too.

    \b
    rollview explain sale_lines
    """
    with opened(project_file, may_be_new=True) as at:
        found = at.project.explain(view)
    if as_json:
        paths = [{**plain(path), "sub_queries": path.sub_queries} for path in found.paths]
        print_json({**plain(found), "paths": paths})
    else:
        _print(results(), found)


def _print(console: Console, found: Explanation) -> None:
    def section(title: str) -> None:
        console.print(Text(f"\n{title}", style="bold"))

    def line(text: str) -> None:
        console.print(Text(f"  {text}"), soft_wrap=True)

    kind = found.full or "incremental: the cost follows the size of the change, not of the base tables"
    console.print(Text.assemble((found.view, "bold"), f"  policy {found.policy}, {kind}"))
    for notice in found.notices:
        console.print(Text.assemble(("note: ", "yellow"), notice), soft_wrap=True)
    section("normal form")
    for each in found.normal_form.rstrip().splitlines():
        line(each)
    section("operators, from the top")
    for name, kept in found.operators:
        line(f"{name}: {kept}")
    section("join graph")
    for each in found.join_graph:
        line(each)
    section("sub-queries per update")
    for path in found.paths:
        rounds = "; then ".join(" and ".join(each) for each in path.rounds) or "nothing"
        count = "1 sub-query" if path.sub_queries == 1 else f"{path.sub_queries} sub-queries"
        line(f"{path.relation}: {count}: {rounds}")
    section("algorithm")
    line(f"{found.algorithm}: {found.why}")
    verdicts = dict.fromkeys(verdict for name, verdict in found.others if name != found.algorithm)
    for verdict in verdicts:
        names = [name for name, each in found.others if each == verdict and name != found.algorithm]
        console.print(Text(f"  {verdict}: {', '.join(names)}", style="dim"), soft_wrap=True)
