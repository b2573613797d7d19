"""From SQL to a view definition in normal form, and from there to a plan."""

from rollview.planning.parse import parse_view
from rollview.planning.render import render

__all__ = ["parse_view", "render"]
