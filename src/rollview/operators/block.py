"""How SELECT, FROM, JOIN and WHERE become blocks. Blocks themselves are in `rollview.algebra.node`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sqlglot import exp

from rollview.algebra.node import Block, Node
from rollview.operators.draft import Draft
from rollview.operators.translation import Translation
from rollview.operators.union_all import UnionAll
from rollview.sql.grammar import Syntax


class SelectProjectJoin:
    """The SQL of a block: every SELECT that no other operator claims."""

    name: ClassVar[str] = Block.name
    comes_first: ClassVar[bool] = False
    syntax: ClassVar[Syntax] = {
        exp.Select: ("expressions", "from_", "joins", "where"),
        exp.Subquery: ("this", "alias"),
        exp.From: ("this",),
        exp.Table: ("this", "db", "catalog", "alias"),
        exp.TableAlias: ("this", "columns"),
        exp.Join: ("this", "on", "using", "kind", "method", "side"),
        exp.Where: ("this",),
        exp.Alias: ("this", "alias"),
    }

    @staticmethod
    def claims(query: exp.Expr) -> bool:
        return isinstance(query, exp.Select)

    @staticmethod
    def translate(query: exp.Expr, translation: Translation) -> Node:
        """A block, or several where the SELECT is above a UNION ALL."""
        return sum_of(translation.drafts(query), translation)


def sum_of(drafts: Sequence[Draft], translation: Translation) -> Node:
    """The blocks of drafts, added up."""
    parts = tuple(draft.node() for draft in translation.ready(drafts))
    return parts[0] if len(parts) == 1 else UnionAll(parts)
