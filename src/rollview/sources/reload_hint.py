"""The way out where a source, or a table of it, has lost its past: the command that reloads the views."""

from __future__ import annotations

from shlex import quote

RELOAD_BY_SETUP = "`rollview setup` loads the views that read it anew"
"""The way out where a single table has lost changes: setup knows which one."""


def reload_hint(subject: str) -> str:
    """For a source, or for a table or column whose name begins with that of its source."""
    source = subject.partition(".")[0]
    return f"run `rollview setup --reload {quote(source)}`, which reloads the views that read {source}"
