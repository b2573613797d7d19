"""From SQL to a view definition in normal form, and from there to a plan."""

from rollview.operators.translation import Types
from rollview.planning.column_lineage import ColumnLineage, Origin, Use, column_lineage
from rollview.planning.parse import (
    UNTYPED,
    has_idle_order,
    named_columns,
    names_given,
    occurrences,
    parse_view,
    referenced_names,
    starred_names,
    unknown_functions,
    view_name,
)
from rollview.planning.render import render

__all__ = [
    "UNTYPED",
    "ColumnLineage",
    "Origin",
    "Types",
    "Use",
    "column_lineage",
    "has_idle_order",
    "named_columns",
    "names_given",
    "occurrences",
    "parse_view",
    "referenced_names",
    "render",
    "starred_names",
    "unknown_functions",
    "view_name",
]
