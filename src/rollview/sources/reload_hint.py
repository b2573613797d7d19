"""The way out where a source has lost its past: the command that reloads its views, as it can be typed."""

from __future__ import annotations

from shlex import quote


def reload_hint(subject: str) -> str:
    """For a source, or for a table or column whose name begins with that of its source."""
    source = subject.partition(".")[0]
    return f"run `rollview setup --reload {quote(source)}`, which reloads the views that read {source}"


def setup_hint(table: str) -> str:
    """For a table that has lost changes, while others of its source go on."""
    return f"run `rollview setup`, which reloads the views that read {table}"
