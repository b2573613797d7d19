"""A view that is kept at the server itself: triggers apply the delta in the transaction that made it.

The groups of the view are rows of a table, each with its sums; whoever changes a group keeps others from it
until it commits. That is the price of the policy `immediate`, and not the only one: where tables are joined,
two writers that do not see each other's rows would both miss what these join to. So each locks the join keys
that its rows lead to, hop by hop, before it looks at them, and reads what is there when it has the locks. A
writer with an older snapshot could not see that, and is refused.

A statement may change two tables, or call another one that does, by a cascade. Each then joins its rows with
the others as they were when it began: what was applied since, while it was open, is saved and taken off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rollview.sources.deltas import AppliedView, Summed, column_at
from rollview.sources.postgres.address import Address
from rollview.sources.postgres.connections import quote, text_literal
from rollview.sources.postgres.delta_triggers import delta_name, function_statement
from rollview.sources.postgres.joined_rows import EVENTS, ROW_SIGN, JoinedRows, Reached
from rollview.sources.postgres.structure import PostgresColumn

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_KEYS = (*_INTEGERS, "string", "date", "boolean", "timestamp_ntz")
_BUCKETS = 1024
_LONGEST_NAME = 63


@dataclass(frozen=True)
class ApplyPlan:
    """The tables, functions and triggers of one view."""

    address: Address
    rows: JoinedRows
    view: AppliedView

    @property
    def _name(self) -> str:
        return delta_name(self.rows.definition)

    def _object(self, suffix: str) -> str:
        return f"{quote(self.address.delta_schema)}.{quote(f'{self._name}_{suffix}')}"

    @property
    def shown_name(self) -> str:
        """What readers at the server name in SQL."""
        return f"{quote(self.address.delta_schema)}.{quote(self.rows.definition.name)}"

    @property
    def _is_joined(self) -> bool:
        return len(self.rows.structures) > 1

    @property
    def obstacle(self) -> str:
        """Why the server cannot keep the view as Spark computes it; empty if it can."""
        if len(self.rows.tables) < len(self.rows.structures):
            return "it joins a table with itself"
        if len(self.rows.definition.name.encode()) > _LONGEST_NAME:
            return "its name is longer than names at the server can be"
        for place, relation in enumerate(self.rows.definition.relations):
            if len(self.rows.conditions(place)) < len(relation.conditions):
                return f"a condition on {relation.table.name} is tested otherwise at the server than in Spark"
        for left, left_column, right, right_column in self.rows.definition.equalities:
            for column in (self.rows.column(left, left_column), self.rows.column(right, right_column)):
                if not _is_exact(column):
                    return f"column {column.name} is compared otherwise at the server than in Spark"
        for name, place, own in self.view.keys:
            if not _is_exact(self.rows.column(place, own)):
                return f"values of {name} are told apart otherwise at the server than in Spark"
        for each in self.view.sums:
            kind = "int" if each.place is None else self.rows.column(each.place, each.column).type
            if not each.counted and kind not in _INTEGERS and not kind.startswith("decimal"):
                return f"a sum of {each.column}, which is a {kind}, is not exact"
        return ""

    @property
    def triggers(self) -> set[str]:
        """The names of its triggers."""
        kinds = ("begin", "apply") if self._is_joined else ("apply",)
        own = {self._trigger(kind, event) for kind in kinds for event in EVENTS}
        return own | {self._trigger("empty", "TRUNCATE")}

    def _trigger(self, kind: str, event: str) -> str:
        return f"rollview_{self._name}_{kind}_{event[0].lower()}"

    def statements(self) -> Iterator[str]:
        """What makes all of it anew, and fills it with the view as it is; writers wait for the end of it."""
        state, open_rows = self._object("state"), self._object("open")
        yield f"DROP TABLE IF EXISTS {state}, {open_rows} CASCADE"
        yield self._state_table(state)
        yield f"ALTER TABLE {state} ADD PRIMARY KEY (rollview_key)"
        if self._is_joined:
            yield self._open_table(open_rows)
            yield from self._begin_statements()
        for place, table in self.rows.tables.items():
            function = self._object(f"apply_{place}")
            yield f"DROP FUNCTION IF EXISTS {function}() CASCADE"
            yield function_statement(function, self._body(place))
            yield f"REVOKE ALL ON FUNCTION {function}() FROM PUBLIC"
            for event, (transition, _) in EVENTS.items():
                trigger = quote(self._trigger("apply", event))
                yield (
                    f"CREATE TRIGGER {trigger} AFTER {event} ON {table.qualified} REFERENCING {transition}"
                    f" FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
                )
        yield from self._empty_statements()
        first = self.rows.structures[0].qualified
        whole = self._apply(0, f"SELECT 1::int2 AS {ROW_SIGN}, * FROM ONLY {first}")
        yield whole.replace(" INTO rollview_gone", "")
        yield f"DROP VIEW IF EXISTS {self.shown_name}"
        yield f"CREATE VIEW {self.shown_name} AS {self._shown(state)}"

    def _empty_statements(self) -> Iterator[str]:
        """What empties the view where a table is truncated: every row of it is joined with one of that table.

        It is truncated as well, so that also rows go which an older snapshot does not see.
        """
        function = self._object("empty")
        yield f"DROP FUNCTION IF EXISTS {function}() CASCADE"
        yield function_statement(
            function, f"BEGIN\n    TRUNCATE {self._object('state')};\n    RETURN NULL;\nEND"
        )
        yield f"REVOKE ALL ON FUNCTION {function}() FROM PUBLIC"
        for table in self.rows.tables.values():
            yield (
                f"CREATE TRIGGER {quote(self._trigger('empty', 'TRUNCATE'))} AFTER TRUNCATE"
                f" ON {table.qualified} FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
            )

    def _begin_statements(self) -> Iterator[str]:
        """What counts the statements that are open."""
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
            for event in EVENTS:
                yield (
                    f"CREATE TRIGGER {quote(self._trigger('begin', event))} BEFORE {event}"
                    f" ON {table.qualified} FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
                )

    def _setting(self, word: str) -> str:
        return f"rollview.{word}_{self._name}"

    def _keys(self) -> list[str]:
        return [f"r{place}.{quote(column)}" for _, place, column in self.view.keys]

    def _measures(self) -> list[str]:
        return [_measure(each) for each in self.view.sums]

    def _state_table(self, name: str) -> str:
        columns = ["''::bytea AS rollview_key"]
        columns += [f"{each} AS k{number}" for number, each in enumerate(self._keys())]
        columns += [f"0::numeric AS s{number}" for number in range(len(self.view.sums))]
        tables = [f"{each.qualified} AS r{place}" for place, each in enumerate(self.rows.structures)]
        return f"CREATE TABLE {name} AS SELECT {', '.join(columns)} FROM {', '.join(tables)} WITH NO DATA"

    def _open_table(self, name: str) -> str:
        columns = ["0::int2 AS place", f"0::int2 AS {ROW_SIGN}"]
        for number, (place, column) in enumerate(self.rows.definition.columns):
            columns.append(f"r{place}.{quote(column)} AS {column_at(number)}")
        tables = [f"{each.qualified} AS r{place}" for place, each in enumerate(self.rows.structures)]
        return f"CREATE TABLE {name} AS SELECT {', '.join(columns)} FROM {', '.join(tables)} WITH NO DATA"

    def _body(self, place: int) -> str:
        """What is done behind a statement."""
        lines = ["#variable_conflict use_column", "DECLARE", "    rollview_gone bytea[];"]
        lines += ["    rollview_open int := 0;", "BEGIN"]
        opened, saved = self._setting("open"), self._setting("saved")
        if self._is_joined:
            lines += [
                f"    rollview_open := current_setting('{opened}')::int - 1;",
                f"    PERFORM set_config('{opened}', rollview_open::text, true);",
            ]
        for event, (_, rows) in EVENTS.items():
            # A trigger has no other tables than its own, so it must not even meet their names.
            lines += [f"    IF TG_OP = '{event}' THEN IF EXISTS ({rows}) THEN"]
            if self._is_joined:
                lines += [*self._isolation_check(), *self._locks(place, rows)]
                lines += [
                    f"        IF current_setting('{saved}', true) = '1' THEN",
                    f"            {self._apply(place, rows, self._object('open'))};",
                    "        ELSE",
                    f"            {self._apply(place, rows)};",
                    "        END IF;",
                    "        IF rollview_open > 0 THEN",
                    f"            {self._save(place, rows)};",
                    f"            PERFORM set_config('{saved}', '1', true);",
                    "        END IF;",
                ]
            else:
                lines.append(f"        {self._apply(place, rows)};")
            lines.append("    END IF; END IF;")
        zero = f"s{[each.name for each in self.view.sums].index(self.view.rows)} = 0"
        lines += [
            "    IF rollview_gone IS NOT NULL THEN",
            f"        DELETE FROM {self._object('state')}",
            f"        WHERE rollview_key = ANY(rollview_gone) AND {zero};",
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

    def _isolation_check(self) -> list[str]:
        name = self.rows.definition.name
        return [
            "        IF current_setting('transaction_isolation') <> 'read committed' THEN",
            "            RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE ="
            f" {text_literal(f'view {name} is kept immediately, and this transaction sees an older state')},"
            f" HINT = {text_literal('use READ COMMITTED for it, or give the view the policy ipda')};",
            "        END IF;",
        ]

    def _save(self, place: int, rows: str) -> str:
        """Keeps the rows of a statement for those that were begun before it and are still open."""
        columns = [
            (column_at(number), quote(column))
            for number, (there, column) in enumerate(self.rows.definition.columns)
            if there == place
        ]
        into = ", ".join(["place", ROW_SIGN, *(name for name, _ in columns)])
        taken = ", ".join([f"{place}::int2", ROW_SIGN, *(own for _, own in columns)])
        return f"INSERT INTO {self._object('open')} ({into}) SELECT {taken} FROM ({rows}) AS d"

    def _locks(self, position: int, rows: str) -> Iterator[str]:
        """Locks the keys by which rows are joined, hop by hop; writers of one side share theirs."""
        steps = self.rows.reached(position)
        for number, step in enumerate(steps):
            kind = "pg_advisory_xact_lock_shared" if _is_shared(self.rows, step) else "pg_advisory_xact_lock"
            texts = [_text(other, f"r{step.parent}") for _, other in step.on]
            known = " AND ".join(f"r{step.parent}.{quote(other.name)} IS NOT NULL" for _, other in step.on)
            edge = f"{self._name}/{min(step.place, step.parent)}/{max(step.place, step.parent)}"
            bucket = f"hashtextextended(concat_ws('|', {', '.join(texts)}), 0) & {_BUCKETS - 1}"
            key = f"hashtextextended(concat_ws('/', {text_literal(edge)}, {bucket}), 0)"
            yield (
                f"        PERFORM {kind}(l.k) FROM (SELECT DISTINCT {key} AS k"
                f" FROM ({rows}) AS r{position}{self._path(steps[:number], position, step.parent)}"
                f" WHERE {known} ORDER BY 1) AS l;"
            )

    def _path(self, steps: list[Reached], position: int, place: int) -> str:
        """The joins that lead from the changed rows to a relation."""
        found, wanted = list[str](), place
        while wanted != position:
            step = next(each for each in steps if each.place == wanted)
            table = self.rows.structures[wanted].qualified
            found.insert(0, f" JOIN ONLY {table} AS r{wanted} ON {step.condition}")
            wanted = step.parent
        return "".join(found)

    def _apply(self, place: int, rows: str, saved: str = "") -> str:
        """The statement that adds what changed rows do to their groups, in order of the groups."""
        sign, joined = self.rows.of_changed(place, saved)
        keys = [f"k{number}" for number in range(len(self.view.keys))]
        sums = [f"s{number}" for number in range(len(self.view.sums))]
        taken = [f"({sign})::int8 AS rollview_times"]
        taken += [f"{each} AS k{number}" for number, each in enumerate(self._keys())]
        taken += [f"{each} AS m{number}" for number, each in enumerate(self._measures())]
        parts = [
            _text(self.rows.column(there, column), "", f"k{number}")
            for number, (_, there, column) in enumerate(self.view.keys)
        ]
        key = f"sha256(convert_to(jsonb_build_array({', '.join(parts)})::text, 'UTF8'))"
        added = [
            f"coalesce(sum(rollview_times * m{number}), 0) AS {name}" for number, name in enumerate(sums)
        ]
        grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
        names = ", ".join(["rollview_key", *keys, *sums])
        changed = " OR ".join(f"{name} <> 0" for name in sums)
        updates = ", ".join(f"{name} = t.{name} + excluded.{name}" for name in sums)
        zero = f"s{[each.name for each in self.view.sums].index(self.view.rows)} = 0"
        return (
            f"WITH d AS ({rows}), j AS (SELECT {', '.join(taken)} FROM {joined}),"
            f" g AS (SELECT {', '.join([f'{key} AS rollview_key', *keys, *added])} FROM j{grouped}),"
            f" u AS (INSERT INTO {self._object('state')} AS t ({names}) SELECT {names} FROM g WHERE {changed}"
            f" ORDER BY rollview_key ON CONFLICT (rollview_key) DO UPDATE SET {updates}"
            f" RETURNING t.rollview_key, t.{zero.replace(' = 0', '')} = 0 AS is_gone)"
            " SELECT array_agg(rollview_key) FILTER (WHERE is_gone) INTO rollview_gone FROM u"
        )

    def _shown(self, state: str) -> str:
        """The view as readers see it."""
        stored = {name: f"t.k{number}" for number, (name, _, _) in enumerate(self.view.keys)}
        for number, each in enumerate(self.view.sums):
            is_whole = each.counted or self.rows.column(each.place or 0, each.column).type in _INTEGERS
            value = f"t.s{number}::int8" if is_whole else f"t.s{number}"
            stored[each.name] = f"coalesce({value}, 0)" if each.counted and not self.view.keys else value
        columns = []
        for shown in self.view.shown:
            value = stored[shown.stored]
            if shown.unless_zero:
                value = f"CASE WHEN {stored[shown.unless_zero]} <> 0 THEN {value} END"
            columns.append(f"{value} AS {quote(shown.name)}")
        source = f"{state} AS t"
        if not self.view.is_grouped:
            source += f", generate_series(1, {stored[self.view.rows]})"
        elif not self.view.keys:
            source = f"(SELECT 1) AS one LEFT JOIN {state} AS t ON true"
        return f"SELECT {', '.join(columns)} FROM {source}"


def _measure(each: Summed) -> str:
    """What is summed, as SQL text."""
    if each.place is None:
        return "1"
    column = f"r{each.place}.{quote(each.column)}"
    return f"({column} IS NOT NULL)::int" if each.counted else column


def _is_exact(column: PostgresColumn) -> bool:
    """Whether two values are the same at the server where they are in Spark, and have one text."""
    is_plain = column.type in _KEYS or column.type.startswith("decimal")
    return is_plain and column.exact and (column.type != "string" or column.kind in ("text", "varchar"))


def _text(column: PostgresColumn, alias: str, name: str = "") -> str:
    """A value of a key, such that equal ones have the same text."""
    place = name or f"{alias}.{quote(column.name)}"
    return f"trim_scale({place})" if column.kind == "numeric" else place


def _is_shared(rows: JoinedRows, step: Reached) -> bool:
    """Whether writers that come from the parent's side share its locks: the side that has more rows per key.

    Then those from the other side exclude everybody.
    """

    def is_key(place: int, columns: set[str]) -> bool:
        key = rows.structures[place].key
        return bool(key) and set(key) <= columns

    own = is_key(step.place, {column.name for column, _ in step.on})
    parent = is_key(step.parent, {column.name for _, column in step.on})
    return step.parent < step.place if own == parent else own
