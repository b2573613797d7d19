"""`rollview register`: views as tables of a Spark catalog."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from rollview.cli.project_context import opened, project_options
from rollview.cli.terminal import plain, print_json, results


@click.command()
@click.argument("schema")
@click.argument("views", nargs=-1, metavar="[VIEW]...")
@click.option("--print", "only_print", is_flag=True, help="Print the statements, and run none of them.")
@project_options
def register(
    schema: str, views: tuple[str, ...], only_print: bool, project_file: Path, as_json: bool
) -> None:
    """Make views known to a Spark catalog, as external tables.

    SCHEMA is a schema of the catalog, or CATALOG.SCHEMA; it must exist. Without names, all views are
    registered. A table is a name for the folder of its view: nothing is copied, and readers see each step
    when it is committed. Repeat the command when views were added. A table that is something else is left
    alone, and then nothing is registered.

    Without --print, the catalog is the one of the project's Spark, which needs Delta's connector. For any
    other one, --print gives statements that Spark, Databricks or Unity Catalog take.

    \b
    rollview register reports --print
    rollview register main.reports sales_by_state --print
    """
    with opened(project_file, "registering") as at:
        found = at.project.register(schema, *views, dry_run=only_print)
    if as_json:
        print_json({"tables": [plain(each) for each in found]})
        return
    console = results()
    for each in found:
        if only_print:
            console.print(Text(f"{each.statement};"), soft_wrap=True)
        else:
            done = "registered" if each.is_new else "was registered before"
            console.print(Text.assemble((each.table, "bold"), f" {done}: {each.location}"), soft_wrap=True)
