"""Schedules: who decides what happens next.

At every step the simulation lists what could happen; a schedule picks one by its position. The list is
ordered from calm to hostile, so that always taking the first is the calmest run there is. A run is
determined by its world and its choices: recorded choices replay it, shorter choices shrink it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Protocol

from rollview.errors import WorldError

Action = tuple[str, str, int]
"""An action that could happen: the kind, where (a source or a process), and which (a message, a size)."""


class Schedule(Protocol):
    """Picks the next action, and remembers what it picked."""

    choices: list[int]

    def choose(self, actions: Sequence[Action]) -> int:
        """The position of the action to take; there is at least one."""


class Stepwise:
    """A run that goes step by step, as a schedule picks, and writes its story down if `narrated`."""

    def __init__(self, schedule: Schedule, narrated: bool) -> None:
        self._schedule = schedule
        self._is_narrated = narrated
        self._lines: list[str] = []
        self._steps: list[str] = []

    @property
    def story(self) -> tuple[str, ...]:
        """A line for every step, or nothing."""
        return tuple(self._lines)

    def _chosen(self, actions: Sequence[Action]) -> Action:
        action = actions[self._schedule.choose(actions)]
        if self._is_narrated:
            self._steps.append(step_of(action, actions))
        return action

    def _narrate(self, line: str) -> None:
        if self._is_narrated:
            self._lines.append(line)


class Seeded:
    """Random choices. Each run draws weights for the kinds of actions, so runs differ in character.

    Some runs are all commits first, some deliver at once, some crash often (swarm testing).
    """

    def __init__(self, generator: random.Random) -> None:
        self._random = generator.random
        self._weights: dict[str, float] = {}
        self.choices: list[int] = []

    def choose(self, actions: Sequence[Action]) -> int:
        width = len(actions)
        position = 0
        while width > 1:
            position = int(self._random() * width)
            kind = actions[position][0]
            weight = self._weights.get(kind)
            if weight is None:
                weight = self._weights[kind] = self._new_weight(kind)
            if self._random() < weight:
                break
        self.choices.append(position)
        return position

    def _new_weight(self, kind: str) -> float:
        weight = 0.12 + 0.88 * self._random() ** 2
        return weight / 8 if kind == "fault" else weight


class Recorded:
    """Given choices; the calmest action once they run out, or where a choice does not fit any more."""

    def __init__(self, choices: Sequence[int]) -> None:
        self._given = choices
        self.choices: list[int] = []

    def choose(self, actions: Sequence[Action]) -> int:
        step = len(self.choices)
        given = self._given[step] if step < len(self._given) else 0
        position = min(given, len(actions) - 1)
        self.choices.append(position)
        return position


class Scripted:
    """Named steps, such as `commit x` or `deliver y 1`, one after the other; then the calmest actions."""

    def __init__(self, steps: Sequence[str]) -> None:
        self._steps = tuple(steps)
        self.choices: list[int] = []

    @property
    def left(self) -> tuple[str, ...]:
        """The steps that have not been taken."""
        return self._steps[len(self.choices) :]

    def choose(self, actions: Sequence[Action]) -> int:
        position = 0
        if self.left:
            names = [step_of(action, actions) for action in actions]
            position = _position_of(self.left[0], actions, names)
            if position < 0:
                raise WorldError(
                    f"`{self.left[0]}` cannot happen here; these can: {', '.join(names)}",
                    subject=f"step {len(self.choices) + 1}",
                )
        self.choices.append(position)
        return position


def _position_of(step: str, actions: Sequence[Action], names: Sequence[str]) -> int:
    """Where the step is: by the name that it is shown by, or with its number although that is not needed."""
    if step in names:
        return names.index(step)
    numbered = [f"{_label_of(action)} {action[2]}" for action in actions]
    return numbered.index(step) if step in numbered else -1


def step_of(action: Action, actions: Sequence[Action]) -> str:
    """An action by its kind and where it happens; all but the first of that name with their number."""
    label = _label_of(action)
    first = next(each for each in actions if _label_of(each) == label)
    return label if action == first else f"{label} {action[2]}"


def _label_of(action: Action) -> str:
    return f"{action[0]} {action[1]}".strip()


class _Exploring:
    """Follows a prefix of choices, then the first action, and notes how many there were."""

    def __init__(self, prefix: list[int]) -> None:
        self.choices = prefix
        self.widths: list[int] = []

    def choose(self, actions: Sequence[Action]) -> int:
        step = len(self.widths)
        self.widths.append(len(actions))
        if step == len(self.choices):
            self.choices.append(0)
        return self.choices[step]


def every_schedule() -> Iterator[Schedule]:
    """All schedules of a world, in lexical order; each must be run before the next is taken."""
    choices: list[int] = []
    while True:
        schedule = _Exploring(choices)
        yield schedule
        while schedule.widths and schedule.choices[-1] + 1 == schedule.widths[-1]:
            schedule.choices.pop()
            schedule.widths.pop()
        if not schedule.choices:
            return
        choices = schedule.choices
        choices[-1] += 1
