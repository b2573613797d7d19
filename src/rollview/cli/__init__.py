"""The command line."""

from rollview.cli.main import main

__all__ = ["main"]
