"""Conditions taken apart as they are written: what must hold altogether."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp


def written_conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a condition that must all hold, as they are written, without their parentheses.

    What all branches of an OR have in common is one of them: (a AND b) OR (a AND c) is a AND (b OR c).
    """
    for part in _parts(node, exp.And):
        if isinstance(part, exp.Or):
            yield from _common_first(part)
        else:
            yield part


def _parts(node: exp.Expr, kind: type[exp.Connector]) -> Iterator[exp.Expr]:
    """What a chain of AND, or of OR, is made of, in order."""
    waiting = [node]
    while waiting:
        part = waiting.pop().unnest()
        if isinstance(part, kind):
            waiting += [part.expression, part.this]
        else:
            yield part


def _common_first(node: exp.Or) -> Iterator[exp.Expr]:
    branches = [{each.sql(): each for each in _parts(branch, exp.And)} for branch in _parts(node, exp.Or)]
    common = [text for text in branches[0] if all(text in branch for branch in branches)]
    if not common:
        yield node
        return
    yield from (branches[0][text] for text in common)
    rest = [[each for text, each in branch.items() if text not in common] for branch in branches]
    if all(rest):
        yield exp.or_(*(exp.paren(exp.and_(*parts)) for parts in rest))
