"""The refusal of a position that capture has not come to."""

from __future__ import annotations

from rollview.errors import PointError


def not_captured(site: str, position: str, reached: str) -> PointError:
    """For a position behind what has been captured of a site."""
    return PointError(
        f"{site} has not been captured up to {position} yet, but up to {reached}",
        subject=position,
        hint="run `rollview capture` first",
    )
