"""Look-ups answered from files: the matching rows if they can be read now, or a scan for Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from rollview.sources.files.key_filter import KeyFilter, key_filters
from rollview.sources.source import Lookup, Rows, run_plan


class State(Protocol):
    """A table at one state."""

    @property
    def types(self) -> Mapping[str, str]:
        """Its columns with their Spark SQL types."""

    def everything(self, columns: Sequence[str]) -> Rows:
        """All rows: these columns and `_count`."""

    def matching(self, columns: Sequence[str], filters: Sequence[KeyFilter], now: bool) -> Rows:
        """At least the rows that pass every filter; `now`: as an Arrow table."""


def look_up_all(plan: Sequence[Lookup], state: State) -> tuple[Rows, ...]:
    """The rows of every look-up of one table, all at this state."""
    parents = {lookup.parent for lookup in plan}

    def find(lookup: Lookup, keys: pa.Table | None) -> Rows:
        filters = () if keys is None else key_filters(keys, state.types)
        if not filters:
            return state.everything(lookup.columns)
        return state.matching(lookup.columns, filters, now=plan.index(lookup) in parents)

    return run_plan(plan, find)
