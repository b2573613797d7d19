"""`rollview`: the group of commands. Each is loaded when it is called, because most import Spark."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any

import click

from rollview.cli.failures import fail
from rollview.version import __version__

COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Start here": {
        "demo": (
            "rollview.cli.demo:demo",
            "See rollview at work on two real databases in a temporary folder.",
        ),
        "init": ("rollview.cli.demo:init", "Write a small, commented project that works."),
        "setup": ("rollview.cli.setup:setup", "Prepare the sources for capture and load the views."),
    },
    "Maintain": {
        "run": ("rollview.cli.run:run", "Capture, propagate and apply, by policy, until stopped."),
        "capture": ("rollview.cli.drivers:capture", "Record what the sources committed in the change logs."),
        "propagate": ("rollview.cli.drivers:propagate", "Compute the delta of a view from the change logs."),
        "apply": ("rollview.cli.drivers:apply", "Roll a stored view along its delta."),
        "refresh": ("rollview.cli.drivers:refresh", "Refresh views to the same point in time."),
        "release": (
            "rollview.cli.drivers:release",
            "Stop waiting for missing parts of a global transaction.",
        ),
        "recover": (
            "rollview.cli.backup:recover",
            "Move a mismatched lake aside and reload every view.",
        ),
        "backup": ("rollview.cli.backup:backup", "Copy the lake and its catalog to an empty folder."),
        "restore": (
            "rollview.cli.backup:restore",
            "Put a backup in the place of the lake and its catalog.",
        ),
        "move-catalog": (
            "rollview.cli.backup:move_catalog",
            "Move the catalog to the database that the project file names.",
        ),
        "move-lake": ("rollview.cli.backup:move_lake", "Move the lake, with its history, to another place."),
        "register": (
            "rollview.cli.register:register",
            "Make views known to a Spark catalog, as external tables.",
        ),
        "condense": (
            "rollview.cli.drivers:condense",
            "Replace a range of a view delta with its net effect.",
        ),
    },
    "Inspect": {
        "ui": ("rollview.cli.ui:ui", "Show the project in a web browser."),
        "status": ("rollview.cli.status:status", "Show the state of sources and views."),
        "read": (
            "rollview.cli.read:read",
            "Print the rows of a view, as stored or as of another point in time.",
        ),
        "deltas": ("rollview.cli.read:deltas", "Print what each transaction did to a view."),
        "consumers": (
            "rollview.cli.read:consumers",
            "List those who read view deltas, or forget one of them.",
        ),
        "query": (
            "rollview.cli.query:query",
            "Query views and relations that are valid at the same point in time.",
        ),
        "why": (
            "rollview.cli.why:why",
            "Explain rows of a view: what changed them, and what they are made of.",
        ),
        "explain": ("rollview.cli.explain:explain", "Explain how a view is maintained, and why."),
        "verify": ("rollview.cli.verify:verify", "Recompute views and report the rows that differ."),
    },
    "Try algorithms": {
        "simulate": (
            "rollview.lab.commands.simulate:simulate",
            "Run an algorithm through many interleavings and report its consistency level.",
        ),
    },
}
"""By section: the command's name, its module, and its line in `rollview --help`."""


QUICK = frozenset({"status", "read", "deltas", "consumers", "explain"})
"""Commands that are over before it pays to look for garbage: nearly all that they make is modules."""
_OBJECTS_MADE = 100_000


def _collect_seldom(context: click.Context) -> None:
    """Has Python look for garbage after many objects, while the command lasts."""
    context.call_on_close(partial(gc.set_threshold, *gc.get_threshold()))
    gc.set_threshold(_OBJECTS_MADE)


def _remember(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def callback(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.find_root().meta[f"rollview.{name}"] = value

    return callback


DEBUG = click.Option(
    ["--debug"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_remember("debug"),
    help="Show Spark's own messages, and the full traceback of an unexpected error.",
)


class _Commands(click.Group):
    """Loads commands by name, and turns errors into a message and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        places = {name: place for section in COMMANDS.values() for name, (place, _) in section.items()}
        if cmd_name not in places:
            return None
        module, _, attribute = places[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        if DEBUG not in command.params:
            command.params.append(DEBUG)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-"):
            close = get_close_matches(name, self.list_commands(ctx), 1)
            hint = f"did you mean `rollview {close[0]}`?" if close else "`rollview --help` lists them"
            raise click.UsageError(f"there is no command `{name}`; {hint}", ctx)
        if name in QUICK:
            _collect_seldom(ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for section, commands in COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl([(name, summary) for name, (_, summary) in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (Exception, KeyboardInterrupt) as error:
            fail(error, ctx)
            raise


@click.group(
    "rollview",
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="rollview")
def main() -> None:
    """Materialized views that stay in sync with databases that other teams own.

    \b
    rollview demo                 # see it work
    rollview init shop            # a project of your own to experiment with

    `rollview COMMAND --help` explains a command. Exit codes: 0 success, 1 a check or an operation failed,
    2 bad input (nothing was changed).
    """
    # Before Arrow is imported: its own allocator would keep memory of threads that ended long ago.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
