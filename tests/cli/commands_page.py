"""docs/reference/commands.md, made from what `--help` says: `python tests/cli/commands_page.py` writes it."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.testing import CliRunner

from rollview.cli import main
from rollview.cli.main import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"

HEAD = """\
# Commands

The help of every command (`rollview COMMAND --help`) on one page. The examples work in the project that
`rollview init` writes; the [tutorial](../tutorial.md) runs them in order.

- **Exit codes**: 0 success; 1 a check or an operation failed; 2 bad input, and nothing was changed.
- **T**, a point in time, is one of these:
  - `csn:N`: the state after the transaction with this commit sequence number;
  - `latest`: the newest state that the command can reach;
  - an ISO time, `2026-01-31T12:00:00` (local, unless it names a zone): the last csn committed by then;
  - `-1h` or `-1h30m`: that long ago, in `s`, `m`, `h` and `d`;
  - `SOURCE:POSITION`: the first csn that includes everything up to a position of a source. PostgreSQL takes
    an LSN (`crm:0/1A2B3C4`), MariaDB a GTID (`store:0-1-42`) or a place in its binary log
    (`store:FILE:OFFSET`), Delta a version of a table (`stock.orders:12`). SQLite and files have no positions.
- **D**, a duration: `500ms`, `30s`, `5 minutes`, `1h`, `7d`; a number alone is seconds.
- **`--json`** prints one JSON document on stdout; decimals and times are text. `run` prints one line per
  [event](events.md). Errors are one JSON object on stderr: `error`, `subject`, `hint`, and
  `mistakes` where [several](errors.md) are reported together.
- **`--log-file FILE`**, **`--log-level LEVEL`**, **`--log-format human|json`**: [the log](events.md#the-log).
- **`--project FILE`** names the project file or its folder; without it, `./rollview.yml`.
- Long operations show their progress on stderr if that is a terminal. An unexpected error is one line;
  `--debug` shows the full traceback.
"""


def examples(command: click.Command) -> list[str]:
    """The lines of a command's help that show how it is called."""
    lines = [line.strip() for line in (command.help or "").splitlines()]
    return [line for line in lines if line.startswith("rollview ")]


def commands_page() -> str:
    """The whole page."""
    parts = [HEAD]
    for section, commands in COMMANDS.items():
        parts.append(f"\n## {section}\n")
        for name in commands:
            said = CliRunner().invoke(main, [name, "--help"], terminal_width=100).output
            parts.append(f"\n### rollview {name}\n\n```text\n{said.rstrip()}\n```\n")
    return "".join(parts)


if __name__ == "__main__":
    os.environ.pop("COLUMNS", None)
    PAGE.write_text(commands_page(), encoding="utf-8")
