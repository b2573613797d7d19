"""Plans for tests: a change of a table elsewhere looks for rows here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from rollview.rows import arrow_type
from rollview.sources.postgres import PostgresSource
from rollview.sources.source import Lookup, Table
from rollview.testing.lookup_suite import first_plan

Keys = Mapping[str, tuple[str, Sequence[Any]]]
"""By column: a Spark type and values."""


def planned(source: PostgresSource, sql: str, keys: Keys) -> tuple[Lookup, ...]:
    """What a change of `w.probe`, the view's first table, looks up; its columns are the keys."""
    probe = Table("w", "probe", tuple(keys), types=tuple(kind for kind, _ in keys.values()))
    values = {name: pa.array(listed, arrow_type(kind)) for name, (kind, listed) in keys.items()}
    return first_plan(source, sql, [probe, *source.tables()], values)
