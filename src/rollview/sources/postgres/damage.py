"""What happened to a captured table since setup, in words; nothing, if all of its changes are in the log.

What an owner may do without harm is no damage: new columns, wider types, indexes, defaults, constraints other
than the key, rights, comments, another tablespace, and whatever moves rows without changing them. Partitions
that come and go are no damage either: see `partitions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rollview.sources.postgres.fingerprint import Fingerprint, TableFingerprint
from rollview.sources.postgres.partitions import Partition
from rollview.sources.postgres.registration import Registered, RegisteredPartition, Registration
from rollview.sources.postgres.structure import PostgresColumn, UniqueKey, partition_obstacle
from rollview.sources.postgres.widened_types import keeps_values


@dataclass(frozen=True)
class Damage:
    """What happened to a table, or only to some of its columns, if they are named."""

    reason: str
    columns: tuple[str, ...] = ()


def combined(damages: Sequence[Damage]) -> Damage | None:
    """Several as one; what concerns all columns goes before what concerns some."""
    if whole := [each for each in damages if not each.columns]:
        return whole[0]
    columns = dict.fromkeys(column for each in damages for column in each.columns)
    reasons = dict.fromkeys(each.reason for each in damages)
    return Damage("; ".join(reasons), tuple(columns)) if columns else None


def damage_of_all(registration: Registration, now: Fingerprint, publication: str) -> str:
    """What concerns every table of a publication."""
    was = registration.publication
    if was is None or was.id != now.publication.id:
        return f"publication {publication} was replaced by another one of the same name"
    if not now.publishes_all:
        return f"publication {publication} was altered and does not publish all changes any more"
    if was != now.publication:
        return f"publication {publication} was altered, and may have published less for a while"
    return ""


def damage(table: Registered, now: Fingerprint, place: str) -> Damage | None:
    """What concerns one table; `place` is its name in the sentence."""
    found = now.tables.get(table.id)
    if found is None:
        return Damage(f"table {place} was dropped")
    if reason := _damaged_identity(table, found, place) or _damaged_membership(table, found, place):
        return Damage(reason)
    reasons = {column.name: _damaged_column(column, table, now, place) for column in table.columns}
    return combined([Damage(reason, (name,)) for name, reason in reasons.items() if reason])


def _damaged_identity(table: Registered, now: TableFingerprint, place: str) -> str:
    if (table.schema, table.relation) != (now.schema, now.name):
        return f"table {place} was renamed to {now.schema}.{now.name}"
    if now.kind != table.kind:
        return f"table {place} is not the kind of table any more that it was"
    if now.persistence != "p":
        return f"table {place} was set UNLOGGED, so its changes are not in the log"
    if table.is_partitioned:
        obstacles = (partition_obstacle(each) for each in now.partitions)
        if obstacle := next((reason for reason in obstacles if reason), ""):
            return f"table {place}: {obstacle}"
    elif now.has_children:
        return f"other tables inherit from table {place} now, and their rows are not captured"
    elif now.identity != "f":
        return f"table {place} no longer has REPLICA IDENTITY FULL, so old rows are not in the log"
    if table.key is not None and not any(_is_same(table.key, each) for each in now.keys):
        return f"the key of table {place} was dropped, or replaced: rows may not be told apart by it any more"
    return ""


def _is_same(key: UniqueKey, now: UniqueKey) -> bool:
    """Whether a key has been there all the time: who replaces an index is not told, who dropped one is."""
    if key.constraint:
        return key.constraint == now.constraint
    return set(key.columns) == set(now.columns)


def _damaged_membership(table: Registered, now: TableFingerprint, place: str) -> str:
    if now.member is None:
        return f"table {place} was taken out of the publication"
    if now.has_row_filter:
        return f"table {place} was given a row filter in the publication"
    if now.has_column_list:
        return f"table {place} was given a column list in the publication"
    if now.has_member_below:
        return f"a partition of table {place} was put into the publication by itself"
    if now.member != table.member:
        return f"table {place} was taken out of the publication and put back, or had a filter for a while"
    return ""


def _damaged_column(column: PostgresColumn, table: Registered, now: Fingerprint, place: str) -> str:
    fingerprint = now.tables[table.id]
    found = fingerprint.columns.get(column.name)
    if found is None:
        return f"column {column.name} of table {place} was dropped or renamed"
    if found.number != column.number:
        return f"column {column.name} of table {place} is another one than before"
    if not keeps_values(column, found.type_id, found.modifier):
        return f"column {column.name} of table {place} has another type than before"
    if column.exact and not found.is_deterministic:
        return f"column {column.name} of table {place} has a collation that takes unequal texts as equal"
    if any(now.labels.get(label) != version for label, version in column.labels):
        return f"a value of the enum type of column {column.name} of table {place} was renamed"
    if found.version != column.version and _is_rewritten(table, fingerprint):
        return f"table {place} was rewritten, and its column {column.name} altered: values may differ"
    return ""


def _is_rewritten(table: Registered, now: TableFingerprint) -> bool:
    """Whether ALTER TABLE has written all rows anew; of a partitioned table, those of all its partitions."""
    if not table.is_partitioned:
        return _is_moved(table, now)
    left = {each.id: each for each in now.partitions}
    known = [(each, left[each.id]) for each in table.partitions if each.id in left and each.file]
    # Without any that was there before, nothing speaks against it.
    return all(_is_moved(was, found) for was, found in known)


def _is_moved(was: Registered | RegisteredPartition, now: TableFingerprint | Partition) -> bool:
    """Whether rows are stored in another place, by ALTER TABLE if that can be told.

    It gives a table another TOAST table then, and VACUUM FULL and CLUSTER do not. Of a table that has none,
    only the file tells, and so these look alike.
    """
    return now.toast != was.toast if was.toast else now.file != was.file
