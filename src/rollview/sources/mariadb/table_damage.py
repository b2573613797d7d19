"""What has become of a captured table, found by looking at it: is it still what capture relies on?

The log tells of changes at the transaction in which they were made. What it does not tell, such as the
work of a session that did not log, shows here.
"""

from __future__ import annotations

from rollview.sources.mariadb.damage import Damage, combined
from rollview.sources.mariadb.redefinition import keeps_characters, keeps_values
from rollview.sources.mariadb.registered import Registered
from rollview.sources.mariadb.structure import Structure
from rollview.sources.mariadb.types import MariaDBColumn


def table_damage(registered: Registered, present: Structure | None) -> Damage | None:
    """Why a table is not the registered one any more; None if nothing that matters has changed."""
    if present is None:
        return Damage("it is gone, or it is no ordinary table any more")
    if present.hazards:
        return Damage(present.hazards[0])
    if registered.key and registered.key not in [columns for _, columns in present.keys]:
        return Damage(f"its key {registered.key_name}, by which rows are told apart, is gone")
    columns = {column.name: column for column, _ in present.columns}
    return combined(
        Damage(reason, (column.name,))
        for column, _ in registered.columns
        if (reason := _column_damage(column, columns.get(column.name)))
    )


def _column_damage(column: MariaDBColumn, present: MariaDBColumn | None) -> str:
    if present is None:
        return f"its column {column.name} is gone"
    if present.generated != column.generated:
        return f"its column {column.name} is computed in another way"
    if not keeps_values(column.declared, present.declared):
        return f"its column {column.name} is {present.declared} and was {column.declared}"
    if not keeps_characters(column, present.charset):
        return f"its column {column.name} has the character set {present.charset}"
    return ""
