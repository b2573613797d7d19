"""From the text of a view to its tree of operators; and what the text alone says: names, properties, lineage.

It runs the passes of `sql`, and `operators` translates what they leave. All who have a view's text use it.
"""

from rollview.operators.translation import Types
from rollview.planning.column_lineage import ColumnLineage, Origin, Use, column_lineage
from rollview.planning.namespace import Namespace, in_namespace, without_own_qualifier
from rollview.planning.parse import UNTYPED, parse_view
from rollview.planning.references import (
    has_idle_order,
    named_columns,
    names_given,
    occurrences,
    referenced_names,
    starred_names,
    unknown_functions,
    view_name,
)
from rollview.planning.render import render
from rollview.planning.table_properties import TableDescription, description_of
from rollview.planning.temporary_views import is_temporary, with_temporary_views

__all__ = [
    "UNTYPED",
    "ColumnLineage",
    "Namespace",
    "Origin",
    "TableDescription",
    "Types",
    "Use",
    "column_lineage",
    "description_of",
    "has_idle_order",
    "in_namespace",
    "is_temporary",
    "named_columns",
    "names_given",
    "occurrences",
    "parse_view",
    "referenced_names",
    "render",
    "starred_names",
    "unknown_functions",
    "view_name",
    "with_temporary_views",
    "without_own_qualifier",
]
