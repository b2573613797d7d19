"""From SQL to a view definition in normal form, and from there to a plan."""

from rollview.operators.translation import TypesOf
from rollview.planning.parse import parse_view, referenced_names, view_name
from rollview.planning.render import render

__all__ = ["TypesOf", "parse_view", "referenced_names", "render", "view_name"]
