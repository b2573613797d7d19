"""align: what was read, rolled to every state that is needed.

**The law.** Let `answer` be the rows of a table R at the state that contains exactly the transactions
`saw`, and `log` R's change log. For every csn b with first ≤ b ≤ last,

    σ[_from ≤ b < _until] align(answer, log, saw, first, last)  =  R at csn b

because R at b is the answer, less what was seen but came later (*interfering*), plus what came by then
but was not seen (*missing*). Each log row of the range therefore counts for an interval of csn: an
interfering change is taken back for every b below its own csn, a missing one is added for every b from its
own csn on. Changes outside the range count for all of it or for none.

One join with rows that carry their own csn thus finds, for each of them, the state it needs. This is
sze2000's Theorem 1 (Lemmas 2 to 7), salem2000's compensation and SWEEP's local correction in one operator.
It asks nothing more of the source and does not mind whether `saw` is a prefix.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

from rollview.algebra.bag import Bag, Output, keep
from rollview.algebra.expression import Column, Expression, Literal, call
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
    inside = log
    if saw.holes or saw.upto > last or saw.upto < first:
        answer = _to_the_range(answer, log, saw, first, last)
        inside = log.select(call("AND", _after(first), _upto(last)))
    aligned = answer.project(always)
    if saw.upto > first:
        interfering = inside.select(saw.condition(CSN)) if saw.holes or saw.upto < last else inside
        aligned = aligned.plus(interfering.negate().project(before_it))
    if saw.upto < last or saw.holes:
        unseen = call("NOT", saw.condition(CSN))
        missing = inside.select(unseen) if saw.holes or saw.upto > first else inside
        aligned = aligned.plus(missing.project(since_it))
    return aligned


def _to_the_range(answer: B, log: B, saw: Seen, first: int, last: int) -> B:
    """The answer less what was seen after `last`, plus what was not seen by `first`.

    These changes count alike for every csn of the range, so their net effect is enough: a row that is
    joined meets no more of a key's changes than the range has, however far ahead the source is.
    """
    own = keep(answer.columns)
    rolled = answer
    if saw.upto > last:
        too_new = log.select(call("AND", saw.condition(CSN), _after(last)))
        rolled = rolled.plus(too_new.negate().project(own))
    if saw.holes or saw.upto < first:
        unseen = log.select(call("AND", call("NOT", saw.condition(CSN)), _upto(first)))
        rolled = rolled.plus(unseen.project(own))
    return rolled.net_effect()


def _after(csn: int) -> Expression:
    return call(">", Column(CSN), Literal(csn))


def _upto(csn: int) -> Expression:
    return call("<=", Column(CSN), Literal(csn))


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
