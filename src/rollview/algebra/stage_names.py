"""Names of stages: parts of a view that nobody named."""

from __future__ import annotations

STAGE_MARK = "$"
"""Between a view's name and a stage's number; no user may give such a name."""


def is_stage(name: str) -> bool:
    """Whether a view is a part of another one."""
    return STAGE_MARK in name


def owner(name: str) -> str:
    """The view that a user named: this one, or the one that a stage is a part of."""
    return name.partition(STAGE_MARK)[0]
