"""What readers at the server see of a view that is kept there: a view over the tables of its groups.

Averages are computed here, and all else that follows from what is kept. The inputs of a UNION ALL are put
together here, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rollview.sources.deltas import AppliedView, Formula, OfGroup, OfTable
from rollview.sources.postgres.connections import quote, text_literal
from rollview.sources.postgres.deltas.formulas import DOUBLE_TEXT, WHOLE, NotAlike, Term, sum_kind, term_of
from rollview.sources.postgres.deltas.kept_columns import KeptColumns, function_of
from rollview.sources.postgres.deltas.triggers import quoted
from rollview.sources.postgres.partitions import PARTITIONED
from rollview.sources.postgres.structure import Structure


@dataclass(frozen=True)
class ShownView:
    """The view with the columns and the tables of its inputs; the names of two functions that it may use."""

    name: str
    inputs: tuple[KeptColumns, ...]
    tables: tuple[str, ...]
    text: str
    whole: str

    @property
    def view(self) -> AppliedView:
        """The last input says what is shown."""
        return self.inputs[-1].view

    @property
    def obstacle(self) -> str:
        """Why the server cannot show it as Spark computes it; empty if it can."""
        for each in self.view.shown:
            try:
                self._term(each.formula)
            except NotAlike as error:
                return f"{error} of its column {each.name} is left to Spark"
        return ""

    @cached_property
    def _kept(self) -> dict[str, Term]:
        """What is kept of a group, as readers see it."""
        found = {}
        for number, key in enumerate(self.view.keys):
            found[key.name] = self._shown_key(number)
        for number, named in enumerate(self.view.sums):
            term = Term(f"t.s{number}", _kind_of([each.sums[number] for each in self.inputs]))
            value = term.shown if term.kind in WHOLE else term.sql
            # A single group is there without rows.
            value = value if self.view.keys else f"coalesce({value}, 0)"
            found[named.name] = Term(value, sum_kind(term))
        for number, extreme in enumerate(self.view.extremes):
            term = Term(f"t.e{number}", _kind_of([each.extremes[number] for each in self.inputs]))
            found[extreme.name] = Term(term.shown, term.kind)
        return found

    def _shown_key(self, number: int) -> Term:
        kind = _kind_of([each.keys[number] for each in self.inputs])
        term = Term(f"t.k{number}", kind)
        is_column = len(self.inputs) == 1 and isinstance(self.view.keys[number].formula, OfTable)
        return term if is_column else Term(term.shown, kind)

    def _term(self, formula: Formula) -> Term:
        def leaf(each: OfTable | OfGroup) -> Term:
            assert isinstance(each, OfGroup)
            return self._kept[each.name]

        return term_of(formula, leaf)

    def statements(self) -> Iterator[str]:
        """What creates the view, with the functions that it uses."""
        yield f"DROP VIEW IF EXISTS {self.name}"
        columns = []
        for named in self.view.shown:
            term = self._term(named.formula)
            value = term.sql if isinstance(named.formula, OfGroup) else term.shown
            columns.append(f"{value} AS {quote(named.name)}")
        query = f"SELECT {', '.join(columns)} FROM {self._source()}".replace(DOUBLE_TEXT, self.text)
        if self.text in query:
            yield (
                f"CREATE OR REPLACE FUNCTION {self.text}(float8) RETURNS text LANGUAGE sql IMMUTABLE STRICT"
                " SET extra_float_digits = 1 AS 'SELECT $1::text'"
            )
        yield self._whole_function()
        query += f" WHERE (SELECT {self.whole}())"
        yield f"CREATE VIEW {self.name} AS {query}"

    def _source(self) -> str:
        """What is kept of all groups, as a table `t`; of the inputs of a UNION ALL together."""
        source = f"{self.tables[0]} AS t" if len(self.tables) == 1 else f"({self._together()}) AS t"
        if not self.view.is_grouped:
            return f"{source}, generate_series(1, {self._kept[self.view.rows].sql})"
        return source if self.view.keys else f"(SELECT 1) AS one LEFT JOIN {source} ON true"

    def _together(self) -> str:
        """The groups of all inputs, by their keys; texts are the same by their bytes alone."""
        keys = [f"k{number}" for number in range(len(self.view.keys))]
        sums = [f"s{number}" for number in range(len(self.view.sums))]
        extremes = [f"e{number}" for number in range(len(self.view.extremes))]
        kinds = [each.kind for each in self.inputs[-1].keys]
        taken = [
            f'{name} COLLATE "C" AS {name}' if kind == "string" else name
            for name, kind in zip(keys, kinds, strict=True)
        ]
        columns = ", ".join([*taken, *sums, *extremes])
        union = " UNION ALL ".join(f"SELECT {columns} FROM {table}" for table in self.tables)
        added = [*keys, *(f"sum({name}) AS {name}" for name in sums)]
        for name, each in zip(extremes, self.view.extremes, strict=True):
            added.append(f"{function_of(each)}({name}) AS {name}")
        grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"SELECT {', '.join(added)} FROM ({union}) AS u{grouped}"

    def _whole_function(self) -> str:
        """What fails where rows came or went without any trigger of ours.

        Partitions are attached and detached with their rows. A statement that names the parent of a table
        fires triggers of the parent alone.
        """
        tables = [table for each in self.inputs for table in each.rows.structures]
        checks: list[str] = []
        for table in {table.id: table for table in tables}.values():
            checks += self._partitions_check(table) if table.kind == PARTITIONED else []
            checks += _parent_check(table)
        body = "\n".join(["BEGIN", *checks, "    RETURN true;", "END"])
        return (
            f"CREATE OR REPLACE FUNCTION {self.whole}() RETURNS boolean LANGUAGE plpgsql STABLE"
            f" SET search_path = pg_catalog, pg_temp AS {quoted(body)}"
        )

    def _partitions_check(self, table: Structure) -> list[str]:
        known = ", ".join(map(text_literal, attached(table)))
        condition = (
            "(SELECT coalesce(array_agg(i.inhrelid::int8 || ' ' || i.xmin ORDER BY i.inhrelid), '{}')"
            " FROM pg_inherits i"
            f" JOIN pg_partition_tree({table.id}::oid::regclass) t ON i.inhrelid = t.relid)"
            f" IS DISTINCT FROM ARRAY[{known}]::text[]"
        )
        message = f"partitions of {table.name} came or went since {self.name} was filled"
        return _raised_if(condition, message, "run rollview setup")


def _parent_check(table: Structure) -> list[str]:
    condition = f"EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = {table.id})"
    message = f"{table.name} is a part of another table, whose statements fire no trigger of it"
    return _raised_if(condition, message, "use rollview.policy = deferred")


def _raised_if(condition: str, message: str, hint: str) -> list[str]:
    return [
        f"    IF {condition} THEN",
        f"        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = {text_literal(message)},",
        f"            HINT = {text_literal(hint)};",
        "    END IF;",
    ]


def attached(table: Structure) -> list[str]:
    """The partitions of a table, each with the transaction that attached it: it may leave and come back."""
    return [f"{each.id} {each.xmin}" for each in sorted(table.partitions, key=lambda each: each.id)]


def _kind_of(terms: Sequence[Term]) -> str:
    """The type of values that come from several inputs of a UNION ALL."""
    kinds = list(dict.fromkeys(term.kind for term in terms))
    if len(kinds) == 1:
        return kinds[0]
    if all(kind in WHOLE for kind in kinds):
        return max(kinds, key=WHOLE.index)
    raise NotAlike(f"a value that is {' or '.join(kinds)}")
