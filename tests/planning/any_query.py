"""Random queries of any shape, nested as deep as one likes, over the tables of `test_oracle_duckdb`.

Every query has the columns k, x (numbers) and w (a word), so that any of them can stand wherever another one
can. They are in the part of SQL that means the same in Spark and DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

BASES = (
    "SELECT k, x, word AS w FROM north.t",
    "SELECT k, y AS x, word AS w FROM north.u",
    "SELECT k, z AS x, 'a' AS w FROM south.v",
)


class AnyQuery:
    """Random SQL; every choice comes from one seeded source."""

    def __init__(self, random: Random, bases: Sequence[str] = BASES) -> None:
        self.random = random
        self.bases = tuple(bases)
        self.rules: tuple[Callable[[int], str], ...] = (
            self.filtered,
            self.projected,
            self.joined,
            self.joined,
            self.joined_using,
            self.chained,
            self.existing,
            self.contained,
            self.scalar,
            self.marked,
            self.grouped,
            self.grouped,
            self.of_all,
            self.having,
            self.distinct,
            self.united,
            self.united,
            self.with_cte,
            self.lateral,
            self.constants,
            self.asking_groups,
            self.asking_joins,
            self.rows_contained,
        )

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def query(self, depth: int) -> str:
        """A query with at most so many operators on top of each other."""
        if depth <= 0:
            return self.pick(*self.bases)
        return self.random.choice(self.rules)(depth)

    def below(self, depth: int) -> str:
        return self.query(self.random.randint(0, depth - 1))

    def condition(self, *aliases: str) -> str:
        one, other = self.random.choice(aliases), self.random.choice(aliases)
        return self.pick(
            f"{one}.x {self.pick('=', '<>', '<', '>=')} {other}.k",
            f"{one}.w {self.pick('=', '<>', '<')} {other}.w",
            f"{one}.x IS {self.pick('', 'NOT ')}NULL",
            f"coalesce({one}.w, 'a') = 'a'",
            f"{one}.k {self.pick('=', '>', '<=')} {self.pick('0', '1', '2')}",
        )

    def filtered(self, depth: int) -> str:
        return f"SELECT k, x, w FROM ({self.below(depth)}) a WHERE {self.condition('a')}"

    def projected(self, depth: int) -> str:
        outputs = self.pick(
            "x AS k, k + 1 AS x, w", "k, k AS x, upper(w) AS w", "k, coalesce(x, 0) AS x, 'b' AS w"
        )
        return f"SELECT {outputs} FROM ({self.below(depth)}) a"

    def joined(self, depth: int) -> str:
        kind = self.pick("", "LEFT", "RIGHT", "FULL", "LEFT")
        on = self.pick("a.k = b.k", "a.k = b.x", "a.k = b.k AND a.w = b.w", "a.w IS NOT DISTINCT FROM b.w")
        if self.random.random() < 0.4:
            on += f" AND {self.condition('a', 'b')}"
        outputs = self.pick("a.k, b.x, a.w", "b.k, a.x, b.w", "coalesce(a.k, b.k) AS k, a.x, b.w")
        where = f" WHERE {self.condition('a', 'b')}" if self.random.random() < 0.3 else ""
        items = f"({self.below(depth)}) a {kind} JOIN ({self.below(depth)}) b ON {on}"
        return f"SELECT {outputs} FROM {items}{where}"

    def joined_using(self, depth: int) -> str:
        kind = self.pick("", "LEFT", "RIGHT", "FULL")
        return (
            f"SELECT k, a.x, b.w FROM ({self.below(depth)}) a {kind} JOIN ({self.below(depth)}) b USING (k)"
        )

    def chained(self, depth: int) -> str:
        joins = [
            f"{self.pick('LEFT', 'LEFT', 'FULL', '')} JOIN ({self.query(0)}) {own} ON {own}.k = {other}"
            for own, other in (("b", self.pick("a.k", "a.x")), ("c", "b.x"), ("d", self.pick("a.k", "c.x")))
        ]
        return (
            f"SELECT a.k, {self.pick('b.x, c.w', 'd.x, b.w')} FROM ({self.below(depth)}) a {' '.join(joins)}"
        )

    def existing(self, depth: int) -> str:
        correlated = self.pick(
            "b.k = a.k", "b.k = a.k AND b.x <> a.x", "b.x = a.k AND b.w = 'a'", "b.k > a.x", "TRUE"
        )
        test = f"{self.pick('', 'NOT ')}EXISTS (SELECT 1 FROM ({self.below(depth)}) b WHERE {correlated})"
        more = self.pick("", f" AND {self.condition('a')}")
        return f"SELECT k, x, w FROM ({self.below(depth)}) a WHERE {test}{more}"

    def contained(self, depth: int) -> str:
        where = self.pick("", " WHERE b.w = a.w", f" WHERE {self.condition('b')}")
        inner = f"SELECT {self.pick('b.k', 'b.x', 'max(b.x)')} FROM ({self.below(depth)}) b{where}"
        test = f"a.{self.pick('k', 'x')} {self.pick('', 'NOT ')}IN ({inner})"
        return f"SELECT k, x, w FROM ({self.below(depth)}) a WHERE {test}"

    def scalar(self, depth: int) -> str:
        function = self.pick(
            "max(b.x)", "count(*)", "sum(b.x) + 1", "min(b.k)", "count(b.x) * 2", "coalesce(max(b.x), -1)"
        )
        where = self.correlation()
        value = f"(SELECT {function} FROM ({self.below(depth)}) b{where})"
        if self.random.random() < 0.5:
            return f"SELECT k, {value} AS x, w FROM ({self.below(depth)}) a"
        return f"SELECT k, x, w FROM ({self.below(depth)}) a WHERE a.x {self.pick('<', '=', '>=')} {value}"

    def correlation(self) -> str:
        return self.pick(
            "",
            " WHERE b.k = a.k",
            " WHERE b.k = a.k AND b.w = a.w",
            " WHERE b.k < a.x",
            " WHERE b.k = a.k OR a.x IS NULL",
        )

    def lateral(self, depth: int) -> str:
        inner = self.pick(
            "SELECT b.k, b.x, b.w FROM ({0}) b{1}",
            "SELECT a.k + b.k AS k, b.x, a.w FROM ({0}) b{1}",
            "SELECT DISTINCT b.k, b.x, b.w FROM ({0}) b{1}",
            "SELECT max(b.k) AS k, count(*) AS x, min(b.w) AS w FROM ({0}) b{1}",
            "SELECT b.k, max(b.x) AS x, 'b' AS w FROM ({0}) b{1} GROUP BY b.k",
        ).format(self.below(depth), self.correlation())
        kind, on = self.pick("CROSS JOIN/", "LEFT JOIN/ ON TRUE", "JOIN/ ON l.x > 0").split("/")
        outputs = self.pick("a.k, l.x, a.w", "l.k, a.x, l.w")
        return f"SELECT {outputs} FROM ({self.below(depth)}) a {kind} LATERAL ({inner}) l{on}"

    def constants(self, depth: int) -> str:
        rows = self.pick("(0, 1, 'a'), (1, NULL, 'b')", "(2, 2, 'a'), (2, 2, 'a')", "(NULL, 0, NULL)")
        values = f"(VALUES {rows}) AS v(k, x, w)"
        other = self.below(depth)
        if self.random.random() < 0.3:
            return f"SELECT k, x, w FROM ({other}) a UNION ALL SELECT k, x, w FROM {values}"
        kind = self.pick("LEFT", "RIGHT", "FULL", "")
        return f"SELECT v.k, a.x, v.w FROM {values} {kind} JOIN ({other}) a ON a.k = v.k"

    def marked(self, depth: int) -> str:
        inner = self.below(depth)
        test = self.pick(
            f"EXISTS (SELECT 1 FROM ({inner}) b WHERE b.k {self.pick('=', '=', '<')} a.k)",
            f"a.x IN (SELECT b.k FROM ({inner}) b)",
            f"a.x NOT IN (SELECT b.k FROM ({inner}) b WHERE b.w = a.w)",
        )
        outer = self.below(depth)
        if self.random.random() < 0.5:
            return f"SELECT k, x, w FROM ({outer}) a WHERE {test} OR {self.condition('a')}"
        return f"SELECT k, CASE WHEN {test} THEN x ELSE -1 END AS x, w FROM ({outer}) a"

    def aggregate(self) -> str:
        return self.pick(
            "sum(x)", "min(x)", "max(x)", "count(*)", "count(x)", "count(DISTINCT x)", "max(x) - min(x)"
        )

    def grouped(self, depth: int) -> str:
        key = self.pick("k", "w", "k, w")
        word = {"k": self.pick("max(w) AS w", "'b' AS w"), "w": "w", "k, w": "w"}[key]
        number = "k" if "k" in key else self.pick("min(k) AS k", "count(*) AS k")
        value = (
            f"{self.aggregate()} {self.pick('', 'FILTER (WHERE k > 0)')}" if key != "w" else self.aggregate()
        )
        value = value if " - " not in value else self.aggregate().split(" - ")[0]
        return f"SELECT {number}, {value} AS x, {word} FROM ({self.below(depth)}) a GROUP BY {key}"

    def of_all(self, depth: int) -> str:
        return f"SELECT count(*) AS k, {self.aggregate()} AS x, min(w) AS w FROM ({self.below(depth)}) a"

    def having(self, depth: int) -> str:
        condition = self.pick(
            "count(*) > 1", "sum(x) > 1 OR k = 0", "max(x) > min(x)", "count(DISTINCT w) = 1"
        )
        return (
            f"SELECT k, sum(x) AS x, min(w) AS w FROM ({self.below(depth)}) a GROUP BY k HAVING {condition}"
        )

    def asking_groups(self, depth: int) -> str:
        """Groups with queries about their rows, and about themselves."""
        inner = f"({self.below(depth)}) b"
        of_row = self.pick(
            f"sum(CASE WHEN EXISTS (SELECT 1 FROM {inner} WHERE b.k = a.x) THEN a.x ELSE 1 END)",
            f"count(*) FILTER (WHERE a.x IN (SELECT b.k FROM {inner}))",
            f"max((SELECT max(b.x) FROM {inner} WHERE b.k = a.k))",
        )
        of_group = self.pick(
            f"(SELECT count(*) FROM {inner} WHERE b.k = a.k)",
            f"(SELECT max(b.x) FROM {inner} WHERE b.x <= sum(a.x))",
        )
        value = self.pick(of_row, of_group)
        having = self.pick(
            "",
            f" HAVING EXISTS (SELECT 1 FROM {inner} WHERE b.k = a.k)",
            f" HAVING EXISTS (SELECT 1 FROM {inner} WHERE b.x > min(a.x))",
            f" HAVING max(a.x) NOT IN (SELECT b.x FROM {inner})",
        )
        return f"SELECT k, {value} AS x, max(w) AS w FROM ({self.below(depth)}) a GROUP BY k{having}"

    def asking_joins(self, depth: int) -> str:
        """A join whose ON asks a query."""
        inner, kind = f"({self.query(0)}) c", self.pick("", "LEFT", "RIGHT", "FULL")
        test = self.pick(
            f"EXISTS (SELECT 1 FROM {inner} WHERE c.k = a.x)",
            f"b.x NOT IN (SELECT c.x FROM {inner})",
            f"a.x > (SELECT min(c.x) FROM {inner})",
        )
        items = f"({self.below(depth)}) a {kind} JOIN ({self.below(depth)}) b ON a.k = b.k AND {test}"
        return f"SELECT a.k, b.x, coalesce(a.w, b.w) AS w FROM {items}"

    def rows_contained(self, depth: int) -> str:
        test = f"(a.k, a.x) {self.pick('', 'NOT ')}IN (SELECT b.k, b.x FROM ({self.below(depth)}) b)"
        more = self.pick("", f" OR {self.condition('a')}")
        return f"SELECT k, x, w FROM ({self.below(depth)}) a WHERE {test}{more}"

    def distinct(self, depth: int) -> str:
        return f"SELECT DISTINCT {self.pick('k, x, w', 'k, 0 AS x, w')} FROM ({self.below(depth)}) a"

    def united(self, depth: int) -> str:
        kind = self.pick("UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
        return (
            f"SELECT k, x, w FROM ({self.below(depth)}) a {kind} SELECT k, x, w FROM ({self.below(depth)}) b"
        )

    def with_cte(self, depth: int) -> str:
        return (
            f"WITH c AS ({self.below(depth)}), d AS (SELECT k, max(x) AS x FROM c GROUP BY k) "
            f"SELECT c.k, d.x, c.w FROM c {self.pick('', 'LEFT ')}JOIN d ON c.k = d.{self.pick('k', 'x')}"
        )


class AnySparkQuery(AnyQuery):
    """The same with operators that Spark alone computes: windows, first rows, totals, generators."""

    def __init__(self, random: Random, bases: Sequence[str]) -> None:
        super().__init__(random, bases)
        self.rules += (
            self.windowed,
            self.windowed,
            self.first_rows,
            self.first_of_all,
            self.totals,
            self.exploded,
            self.first_value,
            self.kept,
            self.between,
            self.other_groups,
        )

    def order(self, alias: str = "") -> str:
        """An order that leaves nothing open but rows that are the same."""
        names = [f"{alias}{name}" for name in "kxw"]
        self.random.shuffle(names)
        return ", ".join(f"{name} {self.pick('', 'DESC')}" for name in names)

    def windowed(self, depth: int) -> str:
        part = self.pick("", "PARTITION BY k ", "PARTITION BY w ", "PARTITION BY k, w ")
        total, tied = f"{part}ORDER BY {self.order()}", f"{part}ORDER BY {self.pick('k', 'w', 'k, w')}"
        frame = self.pick(
            "",
            " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
            " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
        )
        value = self.pick(
            f"row_number() OVER ({total})",
            f"{self.pick('rank', 'dense_rank')}() OVER ({tied})",
            f"{self.pick('lag', 'lead')}(x) OVER ({total})",
            f"{self.pick('sum', 'min', 'max', 'count')}(x) OVER ({part.strip()})",
            f"{self.pick('sum', 'min', 'max', 'count')}(x) OVER ({tied})",
            f"{self.pick('sum', 'min', 'max', 'count')}(x) OVER ({total}{frame})",
            f"{self.pick('first_value', 'last_value')}(x) OVER ({total}{frame})",
            f"x - {self.pick('min', 'max')}(x) OVER ({part.strip()})",
        )
        return f"SELECT k, {value} AS x, w FROM ({self.below(depth)}) a"

    def first_rows(self, depth: int) -> str:
        part = self.pick("k", "w", "k, w")
        place = self.pick(
            f"row_number() OVER (PARTITION BY {part} ORDER BY {self.order()})",
            f"rank() OVER (PARTITION BY {part} ORDER BY x)",
            f"dense_rank() OVER (PARTITION BY {part} ORDER BY x DESC)",
        )
        return f"SELECT k, x, w FROM ({self.below(depth)}) a QUALIFY {place} <= {self.pick('1', '2', '3')}"

    def first_of_all(self, depth: int) -> str:
        offset = self.pick("", " OFFSET 1")
        limit = f"LIMIT {self.pick('1', '3', '5')}{offset}"
        return f"SELECT k, x, w FROM ({self.below(depth)}) a ORDER BY {self.order()} {limit}"

    def totals(self, depth: int) -> str:
        keys = self.pick("ROLLUP (k, w)", "CUBE (k, w)", "GROUPING SETS ((k), (w), ())", "ROLLUP (w, k)")
        value = self.pick("sum(x)", "count(*)", "max(x)", "count(DISTINCT x)", "grouping(k) + grouping(w)")
        # The total of no rows is a row for DuckDB alone.
        having = "HAVING count(*) > 0"
        return f"SELECT k, {value} AS x, w FROM ({self.below(depth)}) a GROUP BY {keys} {having}"

    def exploded(self, depth: int) -> str:
        values = self.pick("a.k, a.x", "a.k, a.k + 1, 2", "a.x")
        rows = f"({self.below(depth)}) a LATERAL VIEW explode(array({values})) e AS v"
        return f"SELECT e.v AS k, a.x, a.w FROM {rows}"

    def first_value(self, depth: int) -> str:
        where = self.pick("", " WHERE b.k = a.k", " WHERE b.w = a.w AND b.x > 0")
        value = f"(SELECT b.x FROM ({self.below(depth)}) b{where} ORDER BY {self.order('b.')} LIMIT 1)"
        return f"SELECT k, {value} AS x, w FROM ({self.below(depth)}) a"

    def kept(self, depth: int) -> str:
        kind = self.pick("SEMI", "ANTI")
        on = self.pick("a.k = b.k", "a.k = b.x AND a.w = b.w", "a.k < b.x", "a.w <=> b.w AND a.x > b.x")
        return f"SELECT k, x, w FROM ({self.below(depth)}) a LEFT {kind} JOIN ({self.below(depth)}) b ON {on}"

    def between(self, depth: int) -> str:
        kind = self.pick("", "LEFT", "FULL")
        on = self.pick("a.k BETWEEN b.k AND b.x", "a.x < b.k", "a.k < b.k AND a.w = b.w")
        return f"SELECT a.k, b.x, a.w FROM ({self.below(depth)}) a {kind} JOIN ({self.query(0)}) b ON {on}"

    def other_groups(self, depth: int) -> str:
        value = self.pick(
            "CAST(floor(avg(x)) AS BIGINT)",
            "CAST(sum(CAST(x AS DOUBLE) / 4) * 4 AS BIGINT)",
            "sum(DISTINCT x)",
            "bit_or(x)",
            "count_if(x > 1)",
        )
        word = self.pick("max(w)", "min(w)")
        return f"SELECT k, {value} AS x, {word} AS w FROM ({self.below(depth)}) a GROUP BY k"
