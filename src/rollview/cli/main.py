"""`rollview`: the group of commands, and how errors reach the user."""

from __future__ import annotations

import json
import sys

import click

from rollview import __version__
from rollview.cli.demo import demo
from rollview.cli.simulate import simulate
from rollview.errors import InputError, RollviewError


class _Group(click.Group):
    """Turns rollview's errors into a message and an exit code: 2 for bad input, 1 otherwise."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except RollviewError as error:
            if "--json" in sys.argv:
                record = {"error": error.message, "thing": error.thing, "hint": error.hint}
                click.echo(json.dumps(record, ensure_ascii=False), err=True)
            else:
                click.secho("error: ", fg="red", bold=True, nl=False, err=True)
                click.echo(error.message, err=True)
                if error.hint:
                    click.secho(f"  hint: {error.hint}", fg="cyan", err=True)
            raise SystemExit(2 if isinstance(error, InputError) else 1) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="rollview")
def main() -> None:
    """Materialized views that stay true to databases you do not own.

    Exit codes: 0 done, 1 a check failed, 2 bad input (nothing was changed).
    """


main.add_command(demo)
main.add_command(simulate)
