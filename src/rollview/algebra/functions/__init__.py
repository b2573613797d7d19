"""The functions that expressions may call, on values: Spark SQL's meaning with ANSI mode on.

NULL in is NULL out, except where a function is about NULL. AND, OR, IF and COALESCE are not here: they stop
early, so they are compiled, not called. `FUNCTIONS` is the list; casts are found by their type's name.
"""

from rollview.algebra.functions.dates import Date, Timestamp
from rollview.algebra.functions.null import Value
from rollview.algebra.functions.registry import FUNCTIONS, function_named

__all__ = ["FUNCTIONS", "Date", "Timestamp", "Value", "function_named"]
