"""The command line: one module per activity, loaded when one of its commands is called.

Uses `project` and what it gives back; nothing below it directly.
Entry point of the `rollview` command.
"""

from rollview.cli.main import main

__all__ = ["main"]
