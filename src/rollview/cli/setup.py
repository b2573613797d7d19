"""`rollview setup`: sources prepared, views loaded, and what was done about each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
from rich.console import Console
from rich.text import Text

from rollview.cli.failures import FAILED
from rollview.cli.project_context import opened, project_options
from rollview.cli.terminal import print_json, results
from rollview.errors import NeedsAdministrator, OptionError, RollviewError, SetupIncomplete, SeveralMistakes

if TYPE_CHECKING:
    from rollview.config.results import SetupReport
    from rollview.setup.plan import SetupPlan

ALL = "all"


@click.command()
@click.option(
    "--remove", is_flag=True, help="Remove everything that setup installed at the sources. The lake stays."
)
@click.option(
    "--reload",
    multiple=True,
    metavar="NAME",
    help="Reload this view, all views of this source, or `all` views. Can be repeated.",
)
@click.option(
    "--statements",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the statements that an administrator must run, if any, to this file.",
)
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="SOURCE.SCHEMA",
    help="With --statements: write a script that lets every table of this schema, later ones too, be captured"
    " without another visit. Change nothing. Can be repeated.",
)
@click.option("--moved", is_flag=True, help="The project was moved: let it capture from where it is now.")
@click.option(
    "--copy",
    is_flag=True,
    help="The project is a copy of one that is still in use: load all views, with a capture of its own.",
)
@click.option(
    "--dry-run", is_flag=True, help="Show what setup would do, or why it would be refused. Change nothing."
)
@project_options
def setup(
    remove: bool,
    reload: tuple[str, ...],
    statements: Path | None,
    schemas: tuple[str, ...],
    dry_run: bool,
    moved: bool,
    copy: bool,
    project_file: Path,
    as_json: bool,
) -> None:
    """Prepare the sources for capture and load the views.

    Brings everything in line with the project file and the view files: installs capture for every table that
    a view reads, loads new and changed views, and drops views whose file is gone. Sources stay available
    meanwhile. It can be run again at any time. All of it is planned first: mistakes in view files are
    reported together, and all sources are asked before any of them is changed. A view that cannot be
    computed, because of a row for example, keeps no other from being set up; the exit code is then 1.

    \b
    rollview setup --dry-run
    rollview setup
    rollview setup --dry-run --reload crm
    rollview setup --reload sale_lines
    rollview setup --reload crm
    rollview setup --reload all
    rollview setup --statements for-the-administrator.sql
    rollview setup --statements for-the-administrator.sql --schema crm.public
    rollview setup --remove
    """
    given = {"--moved": moved, "--copy": copy, "--remove": remove, "--schema": bool(schemas)}
    alone = [option for option, is_given in given.items() if is_given]
    others = [*alone[1:], *(["--reload"] if reload else []), *(["--dry-run"] if dry_run else [])]
    if alone and others:
        raise OptionError(f"{alone[0]} and {others[0]} contradict each other", hint="use one of them")
    if remove:
        _remove(project_file, as_json)
        return
    if schemas:
        _write_schemas(project_file, schemas, statements, as_json)
        return
    names = [] if ALL in reload else list(reload) or None

    with _statements_written(statements):
        if dry_run:
            with opened(project_file, "reading the project", may_be_new=True) as at:
                plan = at.project.plan_setup(names)
            _print_plan(plan, as_json)
            if plan.stopped:
                raise SystemExit(FAILED)
            return
        with _report_printed(as_json) as done, opened(project_file, "reading the project", True) as at:
            done.append(at.project.confirm_move(is_copy=copy) if moved or copy else at.project.setup(names))


@contextmanager
def _statements_written(file: Path | None) -> Iterator[None]:
    """Writes the administrator's statements to the file, if they are why nothing was done."""
    try:
        yield
    except (NeedsAdministrator, SeveralMistakes) as refusal:
        if file is not None and (lines := _for_administrators(refusal)):
            _write(file, lines)
        raise


@contextmanager
def _report_printed(as_json: bool) -> Iterator[list[SetupReport]]:
    """Prints what was done, also if some views could not be set up; the error is raised afterwards."""
    done: list[SetupReport] = []
    incomplete: SetupIncomplete | None = None
    try:
        yield done
    except SetupIncomplete as error:
        if error.report is None:
            raise
        done.append(cast("SetupReport", error.report))
        incomplete = error
    if as_json:
        print_json(done[0])
    else:
        print_report(results(), done[0])
    if incomplete is not None:
        raise incomplete


def _remove(project_file: Path, as_json: bool) -> None:
    """Removes what setup installed."""
    with opened(project_file, "removing capture", may_be_new=True) as at:
        removed = at.project.remove()
    if as_json:
        print_json({"removed": removed})
    else:
        _print_sources(results(), removed)


def _write_schemas(
    project_file: Path, schemas: tuple[str, ...], statements: Path | None, as_json: bool
) -> None:
    """The script that lets whole schemas be captured."""
    if statements is None:
        raise OptionError("--schema needs --statements", hint="--statements names the file that is written")
    with opened(project_file, "asking the sources", may_be_new=True) as at:
        lines = at.project.schema_statements(*schemas)
    _write(statements, lines)
    if as_json:
        print_json({"statements": lines})
    else:
        results().print(Text(f"{statements}: what the administrator of {', '.join(schemas)} runs, once"))


def _write(file: Path, lines: list[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _for_administrators(refusal: RollviewError) -> list[str]:
    """The statements that are needed; those of several sources each below the name of its source."""
    if isinstance(refusal, NeedsAdministrator):
        return list(refusal.statements)
    asking = [each for each in getattr(refusal, "mistakes", ()) if isinstance(each, NeedsAdministrator)]
    named = len(asking) > 1
    return [
        line
        for each in asking
        for line in (*([f"-- source {each.subject}"] if named else []), *each.statements)
    ]


def _print_plan(plan: SetupPlan, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": True, **plan.as_data()})
        return
    console = results()
    for warning in plan.warnings:
        console.print(Text.assemble(("warning: ", "yellow"), warning))
    for line in plan.lines:
        console.print(Text(line))
    console.print(Text("dry run: nothing was changed"))


def _print_sources(console: Console, done: dict[str, list[str]]) -> None:
    for source, sentences in done.items():
        console.print(Text.assemble("source ", (source, "bold")))
        for sentence in sentences or ["nothing to do"]:
            console.print(Text(f"  {sentence}"))


def print_report(console: Console, report: SetupReport) -> None:
    """The report of setup, line by line."""
    _print_sources(console, report.sources)
    for warning in report.warnings:
        console.print(Text.assemble(("warning: ", "yellow"), warning))
    for name, reason in report.loaded.items():
        how = "computed from what was stored" if name in report.from_stored else "loaded"
        console.print(Text.assemble("view ", (name, "bold"), f": {how} ({reason})"))
    for name in report.unchanged:
        console.print(Text.assemble("view ", (name, "bold"), ": unchanged"))
    for name in report.dropped:
        console.print(Text.assemble("view ", (name, "bold"), ": dropped"))
    for name in report.stopped:
        console.print(Text.assemble("view ", (name, "bold"), (": not set up", "red")))
