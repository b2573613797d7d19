"""FROM clauses as they are written, of which other queries can be made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from rollview.sql.aliased import aliased


@dataclass(frozen=True)
class FromSyntax:
    """FROM items as they are written, so that a stage can be made of them."""

    item: exp.Expr
    joins: tuple[exp.Join, ...] = ()

    def select(self, columns: Iterable[exp.Expr]) -> exp.Select:
        """Expressions over the items, called `key_1`, `key_2` …"""
        named = [aliased(column.copy(), f"key_{n}") for n, column in enumerate(columns, start=1)]
        query = exp.Select(expressions=named, from_=exp.From(this=self.item.copy()))
        query.set("joins", [join.copy() for join in self.joins])
        return query

    def distinct(self, columns: Iterable[exp.Expr]) -> exp.Select:
        """The distinct values of expressions over the items."""
        query = self.select(columns)
        query.set("distinct", exp.Distinct())
        return query

    def narrowed(self, alias: str) -> FromSyntax:
        """The item of this alias alone, where no outer join stands between the items."""
        if any(_adds_nulls(join) or join.args.get("using") for join in self.joins):
            return self
        for node in (self.item, *(join.this for join in self.joins)):
            plain = isinstance(node, exp.Table | exp.Subquery) and not node.args.get("joins")
            if plain and node.alias_or_name.lower() == alias.lower():
                return FromSyntax(node)
        return self


def _adds_nulls(join: exp.Join) -> bool:
    is_natural = join.args.get("method") == "NATURAL"
    return is_natural or bool(join.args.get("side") and join.args.get("kind") not in ("SEMI", "ANTI"))
