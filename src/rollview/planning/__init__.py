"""From SQL to a view definition in normal form, and from there to a plan."""

from rollview.planning.parse import parse_view

__all__ = ["parse_view"]
