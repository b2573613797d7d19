"""Forward queries side by side: what they want from a source at the same time is one sub-query.

**Source.** sze2000 report §4.1 asks each source once for all relations that one update reaches there;
salem2000 §3.3 has a forward query for each relation. Together: each source is asked once for all that the
forward queries of a step reach in a round, and where two of them look for the same, for both at once.

**Guarantees.** Each query gets the answer that it would have got, or one with more rows, which it does not
join. All parts of an answer saw the same.

**Symbols.** The sub-queries of a round → `Ask`; a connected sub-graph → the join steps of one question.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollview.algebra.bag import Bag
from rollview.algebra.join_graph import JoinStep, SubQuery
from rollview.algorithms.effects import Answer, Ask, Effect, Question

Steps = Generator[Effect, Any, Bag]
_Path = tuple[tuple[int, int | None, tuple[tuple[str, str], ...], bool], ...]


def together(parts: Sequence[Steps]) -> Generator[Effect, Any, list[Bag]]:
    """What each of these comes to. They continue until all wait for answers, which are asked for at once."""
    results: dict[int, Bag] = {}
    values: dict[int, Any] = dict.fromkeys(range(len(parts)))
    while values:
        asking: dict[int, Ask[Any]] = {}
        for number, value in values.items():
            try:
                effect = parts[number].send(value)
                while not isinstance(effect, Ask):
                    effect = parts[number].send((yield effect))
                asking[number] = effect
            except StopIteration as end:
                results[number] = end.value
        values = dict(zip(asking, (yield from _ask_once(list(asking.values()))), strict=True))
    return [results[number] for number in range(len(parts))]


@dataclass
class _Shared:
    """A question to one source that is made of several: the steps of each, and the places they have in it."""

    steps: list[JoinStep] = field(default_factory=list)
    keys: list[tuple[Bag | None, ...]] = field(default_factory=list)
    paths: dict[_Path, int] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)

    def add(self, question: Question[Any]) -> int:
        """The number of the path that answers a question; the same one for questions that are alike."""
        join_steps = question.sub_query.join_steps
        path = tuple((each.relation, each.parent, each.on, each.shipped) for each in join_steps)
        number = self.paths.setdefault(path, len(self.keys))
        if number == len(self.keys):
            self.starts.append(len(self.steps))
            self.steps += join_steps
            self.keys.append(question.keys)
        else:
            pairs = zip(self.keys[number], question.keys, strict=True)
            self.keys[number] = tuple(_either(one, other) for one, other in pairs)
        return number


def _either(one: Bag | None, other: Bag | None) -> Bag | None:
    return None if one is None or other is None else one.plus(other).distinct(one.columns)


def _ask_once(asking: Sequence[Ask[Any]]) -> Generator[Effect, Any, list[tuple[Answer[Any], ...]]]:
    """The answers to each of these, asked for with one question to each source."""
    if not asking:
        return []
    if len(asking) == 1:
        return [(yield asking[0])]
    shared: dict[str, _Shared] = {}
    numbers = [
        [shared.setdefault(each.sub_query.source, _Shared()).add(each) for each in ask.questions]
        for ask in asking
    ]
    block = asking[0].questions[0].block
    questions = tuple(
        Question(block, SubQuery(source, tuple(each.steps)), tuple(key for keys in each.keys for key in keys))
        for source, each in shared.items()
    )
    answers: tuple[Answer[Any], ...] = yield Ask(questions)
    by_source = dict(zip(shared, answers, strict=True))
    return [
        tuple(
            _part(by_source[each.sub_query.source], shared[each.sub_query.source].starts[number], each)
            for each, number in zip(ask.questions, own, strict=True)
        )
        for ask, own in zip(asking, numbers, strict=True)
    ]


def _part(answer: Answer[Any], start: int, question: Question[Any]) -> Answer[Any]:
    """The part of an answer that belongs to one question."""
    count = len(question.sub_query.join_steps)
    return Answer(answer.source, answer.rows[start : start + count], answer.saw)
