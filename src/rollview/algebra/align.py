"""align: what was read, rolled to every state that is needed.

**The law.** Let `answer` be the rows of a table R at the state that contains exactly the transactions
`saw`, and `log` R's change log. For every csn b with first ≤ b ≤ last,

    σ[_from ≤ b < _until] align(answer, log, saw, first, last)  =  R at csn b

because R at b is the answer, less what was seen but came later (*interfering*), plus what came by then
but was not seen (*missing*). Each log row therefore counts for an interval of csn: an interfering change
is taken back for every b below its own csn, a missing one is added for every b from its own csn on.

One join with rows that carry their own csn thus finds, for each of them, the state it needs. This is
sze2000's Theorem 1 (Lemmas 2 to 7), salem2000's compensation and SWEEP's local correction in one operator.
It asks nothing more of the source and does not mind whether `saw` is a prefix.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.expression import Column, Literal, call
from rollview.algebra.history import CSN, Seen

FROM = "_from"
UNTIL = "_until"
END = 2**62
"""Later than every csn."""

B = TypeVar("B", bound=Bag)


def window(saw: Seen, first: int, last: int) -> tuple[int, int]:
    """The range (after, upto] of csn that holds every change `align` can need."""
    oldest_unseen = min(saw.holes, default=saw.upto + 1)
    return min(first, oldest_unseen - 1), max(saw.upto, last)


def align(answer: B, log: B, saw: Seen, first: int, last: int) -> B:
    """The table at every csn from `first` to `last`: the answer's columns plus `_from` and `_until`.

    `log` holds the table's changes inside `window(saw, first, last)`.
    """
    always, before_it, since_it = _validities(answer.columns)
    aligned = answer.project(always)
    if saw.upto > first:
        interfering = log
        if saw.holes or saw.upto < last:
            too_new = call(">", Column(CSN), Literal(first))
            interfering = log.select(call("AND", saw.condition(CSN), too_new))
        aligned = aligned.plus(interfering.negate().project(before_it))
    if saw.upto < last or saw.holes:
        missing = log
        if saw.holes or saw.upto > first:
            needed = call("<=", Column(CSN), Literal(last))
            missing = log.select(call("AND", call("NOT", saw.condition(CSN)), needed))
        aligned = aligned.plus(missing.project(since_it))
    return aligned


@lru_cache(maxsize=1024)
def _validities(columns: tuple[str, ...]) -> tuple[tuple[Output, ...], ...]:
    """The projections that make a row valid always, before its own csn, and since its own csn."""
    start: Output = (FROM, Literal(0))
    end: Output = (UNTIL, Literal(END))
    own = Column(CSN)
    before: Output = (UNTIL, own)
    return (
        (*keep(columns), start, end),
        (*keep(columns), start, before),
        (*keep(columns), (FROM, own), end),
    )
