"""Whether a column that was given another type still holds all its values, each as it was.

Only what the server does without rewriting the table is of interest: whatever rewrites it may have a USING
clause, of which nothing is known. So integers that become wider are no case of this. A wider column may get
values that do not fit the registered type; that is noticed when one of them comes.
"""

from __future__ import annotations

from rollview.sources.postgres.structure import PostgresColumn

_TEXT, _VARCHAR, _NUMERIC = 25, 1043, 1700
_TIMES = (1083, 1114, 1184)
_HEADER = 4
_SCALE_BITS = 0x7FF


def keeps_values(column: PostgresColumn, type_id: int, modifier: int) -> bool:
    """Whether every value of a column is, unchanged, one of a type with its modifier (−1: none)."""
    was, had = column.type_id, column.modifier
    if (was, had) == (type_id, modifier):
        return True
    if was in (_TEXT, _VARCHAR) and type_id in (_TEXT, _VARCHAR):
        return modifier < 0 or 0 <= had <= modifier
    if was != type_id or had < 0:
        return False
    if was == _NUMERIC:
        return modifier < 0 or (_scale(had) == _scale(modifier) and had <= modifier)
    return was in _TIMES and (modifier < 0 or had <= modifier)


def _scale(modifier: int) -> int:
    """The digits behind the point, packed below those of the precision."""
    return modifier - _HEADER & _SCALE_BITS
