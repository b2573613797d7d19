"""A view that is kept at the server itself: triggers apply the delta in the transaction that made it.

The groups of the view are rows of a table, each with its sums and its extremes; whoever changes a group keeps
others from it until it commits. That is the price of the policy `immediate`, and not the only one: writers of
tables that are joined lock the keys that their rows lead to (`key_locks`), and read what is there when they
have the locks.

A least or greatest value follows rows that come. Where one goes that is as far out, the group is computed
again from the tables, by who holds it. It may have changed without its sums: so it is written even if no sum
changes, or somebody with an older snapshot would compute it from that.

A statement may change two tables, or call another one that does, by a cascade. Each then joins its rows with
the others as they were when it began: what was applied since, while it was open, is saved and taken off. An
extreme is computed from what is there now, and finds it so when the open statement comes to its turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rollview.sources.deltas import AppliedView, column_at
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import quote, text_literal
from rollview.sources.postgres.deltas.kept_columns import KeptColumns, function_of
from rollview.sources.postgres.deltas.key_locks import TRACES, KeyLocks
from rollview.sources.postgres.deltas.shown_view import ShownView
from rollview.sources.postgres.deltas.triggers import (
    EVENTS,
    ROW_SIGN,
    JoinedRows,
    delta_name,
    function_statement,
    rows_of,
    written,
)
from rollview.sources.postgres.partitions import PARTITIONED

_ADDED = "(CASE WHEN abs(({0})::numeric) < 1e38 THEN ({0})::numeric END)"
"""What Spark has room for: NaN and larger numbers stop the view in the lake, and must leave no trace here."""

_INTO = " INTO rollview_gone, rollview_stale"


@dataclass(frozen=True)
class ApplyPlan:
    """The tables, functions and triggers of one view, or of one input of a UNION ALL."""

    address: Address
    rows: JoinedRows
    view: AppliedView
    before: tuple[JoinedRows, ...] = ()

    @property
    def _name(self) -> str:
        return delta_name(self.rows.definition)

    def _object(self, suffix: str) -> str:
        return f"{quote(self.address.delta_schema)}.{quote(f'{self._name}_{suffix}')}"

    @property
    def shown_name(self) -> str:
        """What readers at the server name in SQL; empty where another input shows it."""
        if not self.view.shown:
            return ""
        first = self.view.before[0] if self.view.before else self.rows.definition
        return f"{quote(self.address.delta_schema)}.{quote(first.name)}"

    @cached_property
    def _columns(self) -> KeptColumns:
        return KeptColumns(self.rows, self.view)

    @property
    def _shown(self) -> ShownView:
        earlier = zip(self.before, self.view.before, strict=True)
        plans = [ApplyPlan(self.address, rows, each.applied) for rows, each in earlier if each.applied]
        inputs = (*plans, self)
        return ShownView(
            self.shown_name,
            tuple(each._columns for each in inputs),
            tuple(each._object("state") for each in inputs),
            self._object("text"),
            self._object("whole"),
        )

    @property
    def obstacle(self) -> str:
        """Why the server cannot keep the view as Spark computes it; empty if it can."""
        return self._columns.obstacle or self._shown.obstacle

    @property
    def _is_joined(self) -> bool:
        return len(self.rows.structures) > 1

    @property
    def _locks(self) -> KeyLocks:
        return KeyLocks(self._name, self._object(TRACES), self._object("check"), self.rows)

    # What is installed.

    @property
    def triggers(self) -> set[str]:
        """The names of its triggers."""
        kinds = ("begin", "apply") if self._is_joined else ("apply",)
        own = {self._trigger(kind, event) for kind in kinds for event in EVENTS}
        return own | {self._trigger("empty", "TRUNCATE")}

    def _trigger(self, kind: str, event: str) -> str:
        return f"rollview_{self._name}_{kind}_{event[0].lower()}"

    def statements(self) -> Iterator[str]:
        """What creates all of it again, and fills it with the view as it is; writers wait for the end."""
        state, open_rows, traces = self._object("state"), self._object("open"), self._object(TRACES)
        yield f"DROP TABLE IF EXISTS {state}, {open_rows}, {traces} CASCADE"
        yield self._state_table(state)
        yield f"ALTER TABLE {state} ADD PRIMARY KEY (rollview_key)"
        if self._is_joined:
            yield self._open_table(open_rows)
            yield from self._locks.statements()
            yield from self._begin_statements()
        for place, table in self.rows.tables.items():
            function = self._object(f"apply_{place}")
            yield f"DROP FUNCTION IF EXISTS {function}() CASCADE"
            yield function_statement(function, self._body(place))
            yield f"REVOKE ALL ON FUNCTION {function}() FROM PUBLIC"
            for event, (transition, _) in EVENTS.items():
                trigger = quote(self._trigger("apply", event))
                for name in written(table):
                    yield (
                        f"CREATE TRIGGER {trigger} AFTER {event} ON {name} REFERENCING {transition}"
                        f" FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
                    )
        yield from self._empty_statements()
        yield self._fill().replace(_INTO, "")
        if self.shown_name:
            yield from self._shown.statements()

    def _fill(self) -> str:
        """What fills an empty table of groups."""
        # From the last place of a table, as those behind the changed one see it as it was before.
        place = self.rows.places_of(0)[-1]
        whole = f"SELECT 1::int2 AS {ROW_SIGN}, * FROM {rows_of(self.rows.structures[place])}"
        return self._apply([place], whole, is_whole=True)

    def _empty_statements(self) -> Iterator[str]:
        """Statements that empty the view when a table is truncated: each row joins one of its rows.

        It is truncated as well, so that also rows go which an older snapshot does not see. Where only a
        partition is, what is left is computed again, by somebody who sees all that is there.
        """
        function = self._object("empty")
        lines = ["#variable_conflict use_column", "DECLARE", "    rollview_gone bytea[];"]
        lines += ["    rollview_stale bytea[];", "BEGIN", f"    TRUNCATE {self._object('state')};"]
        partitioned = [table for table in self.rows.tables.values() if table.kind == PARTITIONED]
        if partitioned:
            roots = ", ".join(f"{table.id}" for table in self.rows.tables.values())
            name = self.rows.definition.name
            message = f"view {name} is kept immediately, and this transaction sees an older state"
            lines += [
                f"    IF TG_RELID NOT IN ({roots}) THEN",
                "        IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN",
                f"            RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = {text_literal(message)},"
                " HINT = 'truncate the partition at READ COMMITTED';",
                "        END IF;",
                f"        {self._fill()};",
                "    END IF;",
            ]
        lines += ["    RETURN NULL;", "END"]
        yield f"DROP FUNCTION IF EXISTS {function}() CASCADE"
        yield function_statement(function, "\n".join(lines))
        yield f"REVOKE ALL ON FUNCTION {function}() FROM PUBLIC"
        for table in self.rows.tables.values():
            for each in written(table):
                yield (
                    f"CREATE TRIGGER {quote(self._trigger('empty', 'TRUNCATE'))} AFTER TRUNCATE"
                    f" ON {each} FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
                )

    def _begin_statements(self) -> Iterator[str]:
        """The statements that count open statements."""
        function = self._object("begin")
        count = f"coalesce(nullif(current_setting('{self._setting('open')}', true), ''), '0')::int + 1"
        body = (
            f"BEGIN\n    PERFORM set_config('{self._setting('open')}', ({count})::text, true);\n"
            "    RETURN NULL;\nEND"
        )
        yield f"DROP FUNCTION IF EXISTS {function}() CASCADE"
        yield function_statement(function, body)
        yield f"REVOKE ALL ON FUNCTION {function}() FROM PUBLIC"
        for table in self.rows.tables.values():
            for name in written(table):
                for event in EVENTS:
                    yield (
                        f"CREATE TRIGGER {quote(self._trigger('begin', event))} BEFORE {event}"
                        f" ON {name} FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
                    )

    def _setting(self, word: str) -> str:
        return f"rollview.{word}_{self._name}"

    def _state_table(self, name: str) -> str:
        columns = ["''::bytea AS rollview_key"]
        columns += [f"{each.sql} AS k{number}" for number, each in enumerate(self._columns.keys)]
        columns += [f"0::numeric AS s{number}" for number in range(len(self._columns.sums))]
        columns += [f"{each.sql} AS e{number}" for number, each in enumerate(self._columns.extremes)]
        return f"CREATE TABLE {name} AS SELECT {', '.join(columns)} FROM {self._all_tables()} WITH NO DATA"

    def _all_tables(self) -> str:
        return ", ".join(f"{each.qualified} AS r{place}" for place, each in enumerate(self.rows.structures))

    def _open_table(self, name: str) -> str:
        columns = ["0::int2 AS place", f"0::int2 AS {ROW_SIGN}"]
        for number, (place, column) in enumerate(self.rows.definition.columns):
            columns.append(f"r{place}.{quote(column)} AS {column_at(number)}")
        return f"CREATE TABLE {name} AS SELECT {', '.join(columns)} FROM {self._all_tables()} WITH NO DATA"

    # What is done behind a statement.

    def _body(self, place: int) -> str:
        lines = ["#variable_conflict use_column", "DECLARE", "    rollview_gone bytea[];"]
        lines += ["    rollview_stale bytea[];", "    rollview_locks int8[];"]
        lines += ["    rollview_open int := 0;", "BEGIN"]
        opened, saved = self._setting("open"), self._setting("saved")
        places = self.rows.places_of(place)
        if self._is_joined:
            lines += [
                f"    rollview_open := current_setting('{opened}')::int - 1;",
                f"    PERFORM set_config('{opened}', rollview_open::text, true);",
            ]
        if self.rows.structures[place].kind == PARTITIONED:
            # What was detached keeps its triggers.
            root = self.rows.structures[place].id
            lines.append(f"    IF TG_RELID = {root} OR pg_partition_root(TG_RELID) = {root} THEN")
        for event, (_, rows) in EVENTS.items():
            # A trigger has no other tables than its own, so it must not even meet their names.
            lines += [f"    IF TG_OP = '{event}' THEN IF EXISTS ({rows}) THEN"]
            if self._is_joined:
                lines += [f"        {line}" for each in places for line in self._locks.acquire(each, rows)]
                lines += [
                    f"        IF current_setting('{saved}', true) = '1' THEN",
                    f"            {self._apply(places, rows, self._object('open'))};",
                    "        ELSE",
                    f"            {self._apply(places, rows)};",
                    "        END IF;",
                    "        IF rollview_open > 0 THEN",
                    *(f"            {self._save(each, rows)};" for each in places),
                    f"            PERFORM set_config('{saved}', '1', true);",
                    "        END IF;",
                ]
            else:
                lines.append(f"        {self._apply(places, rows)};")
            lines.append("    END IF; END IF;")
        if self.rows.structures[place].kind == PARTITIONED:
            lines.append("    END IF;")
        if self.view.extremes:
            lines += ["    IF rollview_stale IS NOT NULL THEN", f"        {self._again()};", "    END IF;"]
        lines += [
            "    IF rollview_gone IS NOT NULL THEN",
            f"        DELETE FROM {self._object('state')}",
            f"        WHERE rollview_key = ANY(rollview_gone) AND {self._count} = 0;",
            "    END IF;",
        ]
        if self._is_joined:
            lines += [
                f"    IF rollview_open = 0 AND current_setting('{saved}', true) = '1' THEN",
                f"        DELETE FROM {self._object('open')};",
                f"        PERFORM set_config('{saved}', '', true);",
                "    END IF;",
            ]
        return "\n".join([*lines, "    RETURN NULL;", "END"])

    @property
    def _count(self) -> str:
        """The column that counts the rows of a group."""
        return f"s{[each.name for each in self.view.sums].index(self.view.rows)}"

    def _save(self, place: int, rows: str) -> str:
        """Keeps the rows of a statement for those that were begun before it and are still open."""
        into = ", ".join(["place", ROW_SIGN, *self.rows.saved_columns(place)])
        own = map(quote, self.rows.definition.relations[place].columns)
        taken = ", ".join([f"{place}::int2", ROW_SIGN, *own])
        return f"INSERT INTO {self._object('open')} ({into}) SELECT {taken} FROM ({rows}) AS d"

    def _joined(self, place: int, rows: str, saved: str) -> str:
        """What changed rows at a place join, with keys, what is summed, and what may be an extreme."""
        sign, joined = self.rows.of_changed(place, saved, rows)
        taken = [f"({sign})::int8 AS rollview_times"]
        taken += [f"{each.sql} AS k{number}" for number, each in enumerate(self._columns.keys)]
        taken += [f"{_ADDED.format(each.sql)} AS m{number}" for number, each in enumerate(self._columns.sums)]
        taken += [f"{each.sql} AS v{number}" for number, each in enumerate(self._columns.extremes)]
        conditions = self._columns.conditions()
        if conditions:
            joined += (" AND " if " WHERE " in joined else " WHERE ") + " AND ".join(conditions)
        return f"SELECT {', '.join(taken)} FROM {joined}"

    def _apply(self, places: Sequence[int], rows: str, saved: str = "", is_whole: bool = False) -> str:
        """The statement that adds what changed rows do to their groups, in order of the groups.

        The extremes of a group are stale if a value went that is as far out.
        """
        keys = [f"k{number}" for number in range(len(self._columns.keys))]
        sums = [f"s{number}" for number in range(len(self._columns.sums))]
        extremes = [f"e{number}" for number in range(len(self._columns.extremes))]
        parts = [
            f"trim_scale({name})" if self._columns.is_numeric(number) else name
            for number, name in enumerate(keys)
        ]
        key = f"sha256(convert_to(jsonb_build_array({', '.join(parts)})::text, 'UTF8'))"
        added = [
            f"coalesce(sum(rollview_times * m{number}), 0) AS {name}" for number, name in enumerate(sums)
        ]
        for number, each in enumerate(self.view.extremes):
            value = f"{function_of(each)}(v{number})"
            added.append(f"{value} FILTER (WHERE rollview_times > 0) AS e{number}")
            added.append(f"{value} FILTER (WHERE rollview_times < 0) AS t{number}")
        grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
        names = ", ".join(["rollview_key", *keys, *sums, *extremes])
        is_changed = " OR ".join(f"{name} <> 0" for name in sums) if not extremes or is_whole else "true"
        updates = [f"{name} = t.{name} + excluded.{name}" for name in sums]
        updates += [
            f"{name} = {'least' if each.is_least else 'greatest'}(t.{name}, excluded.{name})"
            for name, each in zip(extremes, self.view.extremes, strict=True)
        ]
        further = [
            f"g.t{number} {'<=' if each.is_least else '>='} u.e{number}"
            for number, each in enumerate(self.view.extremes)
        ]
        joined = " UNION ALL ".join(self._joined(each, "d", saved) for each in places)
        kept = "".join(f", t.{name}" for name in extremes)
        stale = (
            f"array_agg(u.rollview_key) FILTER (WHERE {' OR '.join(further)})" if further else "NULL::bytea[]"
        )
        again = " JOIN g USING (rollview_key)" if further else ""
        return (
            f"WITH d AS ({rows}), j AS ({joined}),"
            f" g AS (SELECT {', '.join([f'{key} AS rollview_key', *keys, *added])} FROM j{grouped}),"
            f" u AS (INSERT INTO {self._object('state')} AS t ({names})"
            f" SELECT {names} FROM g WHERE {is_changed} ORDER BY rollview_key"
            f" ON CONFLICT (rollview_key) DO UPDATE SET {', '.join(updates)}"
            f" RETURNING t.rollview_key, t.{self._count} = 0 AS is_gone{kept})"
            f" SELECT array_agg(u.rollview_key) FILTER (WHERE is_gone), {stale}"
            f"{_INTO} FROM u{again}"
        )

    def _again(self) -> str:
        """Computes the extremes of groups from the tables, as they are now; others wait for those groups."""
        state = self._object("state")
        place = self.rows.places_of(0)[-1]
        whole = f"(SELECT 1::int2 AS {ROW_SIGN}, * FROM {rows_of(self.rows.structures[place])})"
        joined = self._joined(place, whole, "")
        met = [
            f"({each.sql} = q.k{number} OR ({each.sql} IS NULL AND q.k{number} IS NULL))"
            for number, each in enumerate(self._columns.keys)
        ]
        if met:
            joined += (" AND " if " WHERE " in joined else " WHERE ") + " AND ".join(met)
        values = [
            f"{function_of(each)}(v{number}) AS e{number}" for number, each in enumerate(self.view.extremes)
        ]
        names = [f"e{number}" for number in range(len(self.view.extremes))]
        return (
            f"UPDATE {state} AS t SET {', '.join(f'{name} = f.{name}' for name in names)}"
            f" FROM (SELECT q.rollview_key, {', '.join(f'a.{name}' for name in names)} FROM {state} AS q"
            f" CROSS JOIN LATERAL (SELECT {', '.join(values)} FROM ({joined}) AS j) AS a"
            f" WHERE q.rollview_key = ANY(rollview_stale)) AS f WHERE t.rollview_key = f.rollview_key"
        )
