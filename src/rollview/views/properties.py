"""The maintenance properties of a view's definition: policy, consistency, algorithm, verification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from re import compile as pattern

from rollview.algebra.costs import Cost
from rollview.algebra.relation import Table
from rollview.algebra.view import View, is_stage
from rollview.algorithms.algorithm import Algorithm, Level
from rollview.algorithms.registry import ALGORITHMS
from rollview.ascii_text import whole_number
from rollview.config.durations import seconds_of
from rollview.config.schedules import MAX_STALENESS, condensing_of, schedule_of, staleness_of
from rollview.errors import InputError, UnsupportedError
from rollview.planning import Types, has_idle_order, names_given, parse_view
from rollview.views.view_files import ViewText, in_file

AT_SOURCE = ("ipda", "immediate")
"""Policies under which the writers of a source make the view delta; the second one applies it there, too."""

POLICIES = ("snapshot", "deferred", *AT_SOURCE)
DEFAULT_POLICY = "deferred"
_VERIFY = pattern(r"(?:(?P<percent>[0-9]{1,3}(?:\.[0-9]{1,12})?) ?% )?every (?P<duration>.+)")
PAPER_NAMES = {"dpda": "deferred"}
"""Policies by the names that beyer2000 gives them: deferred propagate, deferred apply."""

FOREIGN_KEYS, ENFORCED = "rollview.foreign_keys", "enforced"
"""The property by which a view says that every transaction keeps the foreign keys between its tables."""

ALGORITHM, AUTO = "rollview.algorithm", "auto"
"""The property that names an algorithm, or leaves the choice to the costs that are measured."""

CONSISTENCY = tuple(str(level) for level in Level if level is not Level.NONE)
DEFAULT_CONSISTENCY = str(Level.COMPLETE)

_CHOICES = {
    "rollview.consistency": CONSISTENCY,
    FOREIGN_KEYS: (ENFORCED,),
    "rollview.on_loss": ("stop", "reload"),
    "rollview.refresh": ("incremental", "full", "auto"),
}
"""Properties with few values."""


def parse_text(text: ViewText, tables: Mapping[str, Table], types: Types) -> View:
    """The view of a file in normal form; `types` is asked as stages and averages are met."""
    with in_file(text.path):
        view = parse_definition(text.sql, tables, text.name, types)
        for part in view.stored_parts:
            _check_properties(part)
    return view


def parse_definition(sql: str, tables: Mapping[str, Table], name: str, types: Types) -> View:
    """A view as it is stored: one that is recomputed needs no stages.

    Declared foreign keys are ignored unless the view says that they are enforced.
    """
    view = parse_view(sql, (replace(table, foreign_keys=()) for table in tables.values()), name, types)
    if view.properties.get(FOREIGN_KEYS) == ENFORCED:
        view = parse_view(sql, tables.values(), name, types)
    return replace(view, stores_stages=not is_full(view))


def as_table(view: View, types: tuple[str, ...] = ()) -> Table:
    """A view as a table that other views can read."""
    return Table("", view.name, view.root.output_columns, types=types, own_log=True)


def digest(view: View) -> str:
    """A fingerprint of the definition: the same text and the same tables give the same."""
    tables = sorted((table.qualified, table.columns, table.types) for table in view.tables)
    return sha256(f"{view.sql}\n{tables}".encode()).hexdigest()


def policy_of(view: View) -> str:
    """When the view is maintained."""
    name = view.properties.get("rollview.policy", DEFAULT_POLICY)
    return PAPER_NAMES.get(name, name)


def consistency_of(view: View) -> str:
    """The level of consistency that is asked for."""
    return view.properties.get("rollview.consistency", DEFAULT_CONSISTENCY)


def reloads_on_loss(view: View) -> bool:
    """Whether `run` reloads the view automatically where changes of what it reads were lost."""
    return view.properties.get("rollview.on_loss", "stop") == "reload"


@dataclass(frozen=True)
class Verifying:
    """How often `run` verifies a view, and how much of it."""

    seconds: float
    fraction: float


def verifying(view: View) -> Verifying | None:
    """The view's setting; None for never, and for a value that cannot be parsed."""
    found = _VERIFY.fullmatch(view.properties.get("rollview.verify", ""))
    seconds = None if found is None else seconds_of(found["duration"])
    if found is None or not seconds:
        return None
    fraction = float(found["percent"] or 100.0) / 100.0
    return Verifying(seconds, fraction) if 0.0 < fraction <= 1.0 else None


def notices(view: View) -> list[str]:
    """Warnings for the view's author: settings that are right but have no effect."""
    found: list[str] = []
    level = consistency_of(view)
    if (
        level != DEFAULT_CONSISTENCY
        and not is_stage(view.name)
        and (is_full(view) or algorithm_of(view).level is Level.COMPLETE)
    ):
        setting = f"view {view.name}: rollview.consistency = {level}"
        why = "it is recomputed" if is_full(view) else f"{algorithm_of(view).name} shows every state"
        found.append(f"{setting} has no effect: {why}, which includes it")
    if not is_stage(view.name) and has_idle_order(view.sql):
        found.append(f"view {view.name}: ORDER BY has no effect without LIMIT: a view is a bag of rows")
    if not is_stage(view.name):
        tables = {table for part in view.parts for table in part.tables}
        for text, name in names_given(view.sql, tables).items():
            found.append(f"view {view.name}: the column {text} has no name of its own, and is called {name}")
        found += [f"view {view.name}: {cost.sentence}" for cost in _recomputed(view)]
    return found


def _recomputed(view: View) -> Iterator[Cost]:
    """The parts that are recomputed as a whole at every change, and why."""
    for part in view.parts:
        if part.root.method == "full":
            yield from part.root.costs


def is_full(view: View) -> bool:
    """Whether a refresh recomputes the view, so that it has no delta."""
    return policy_of(view) == "snapshot" or view.properties.get("rollview.refresh") == "full"


def algorithm_of(view: View) -> Algorithm:
    """The algorithm that maintains the view: the named one, or the cheapest that reaches what is asked for.

    The sweep reaches every level; where not every state has to be shown, it takes the net effect of a step.
    Where the choice is left to measured costs, that is what positions are kept for; a step may have another.
    """
    if policy_of(view) in AT_SOURCE:
        return ALGORITHMS["ipda"]
    name = view.properties.get(ALGORITHM, AUTO)
    if name == AUTO:
        name = view.algorithm or ("sweep" if _level_of(view) is Level.COMPLETE else "net-effect")
    algorithm = ALGORITHMS.get(name)
    if algorithm is None:
        raise InputError(
            f"view {view.name}: unknown algorithm `{name}`",
            subject=name,
            hint=f"known: {AUTO}, {', '.join(ALGORITHMS)}",
        )
    if reason := refusal_of(algorithm, view):
        usable = [each.name for each in ALGORITHMS.values() if not refusal_of(each, view)]
        hint = f"omit rollview.algorithm, or choose one of {', '.join(usable)}"
        raise UnsupportedError(f"view {view.name} cannot use {name}: {reason}", subject=name, hint=hint)
    return algorithm


def is_chosen_by_cost(view: View) -> bool:
    """Whether each step of the view may have another algorithm."""
    return view.properties.get(ALGORITHM) == AUTO and not is_full(view)


def objection_to(algorithm: Algorithm, view: View) -> str:
    """Why costs do not choose an algorithm for a view; empty if they can."""
    if refusal := refusal_of(algorithm, view):
        return refusal
    if algorithm.level < _level_of(view):
        return f"it reaches {algorithm.level} only"
    if algorithm.needs_rest:
        return "under steady changes it may never show a state"
    return "no other algorithm can continue where it stops" if algorithm.keeps_control else ""


def _level_of(view: View) -> Level:
    """The level that a view needs; stages show all states to what is above them."""
    return Level.COMPLETE if is_stage(view.name) else Level[consistency_of(view).upper()]


def refusal_of(algorithm: Algorithm, view: View) -> str:
    """Why an algorithm cannot maintain a view here; empty if it can."""
    read = next((table.name for table in view.tables if not table.source), "")
    if not algorithm.sequenced and read:
        what = "the view has several parts" if is_stage(read) else f"{read} is a view"
        return f"it takes the messages of sources, and {what}"
    return algorithm.refusal(view) or algorithm.live_refusal(view)


def _check_properties(view: View) -> None:
    policy = policy_of(view)
    if policy not in POLICIES:
        message = f"the policy `{policy}` is not available"
        raise UnsupportedError(
            message, subject=policy, hint=f"one of {', '.join(POLICIES)}; dpda is deferred"
        )
    if policy in AT_SOURCE and ALGORITHM in view.properties:
        message = f"rollview.algorithm has no place beside the policy {policy}: writers make the delta"
        raise InputError(message, subject=view.name, hint="leave one of both out")
    if policy in AT_SOURCE and view.properties.get("rollview.refresh") == "full":
        message = f"rollview.refresh is full, but the policy {policy} keeps a delta"
        raise InputError(message, subject=view.name, hint="leave one of both out")
    for key, choices in _CHOICES.items():
        if (said := view.properties.get(key)) is not None and said not in choices:
            raise InputError(f"{key} is `{said}`", subject=said, hint=f"one of {', '.join(choices)}")
    verify = view.properties.get("rollview.verify")
    if verify is not None and verifying(view) is None:
        message = f"rollview.verify is `{verify}`"
        raise InputError(message, subject=verify, hint="how often, such as: every 1h, or 1% every 10m")
    refresh = view.properties.get("rollview.refresh", "auto")
    if refresh == "incremental" and policy == "snapshot":
        message = "rollview.refresh is incremental, but the policy snapshot recomputes the view"
        raise InputError(message, subject=refresh, hint="leave one of both out")
    whole = next((cost for cost in _recomputed(view)), None)
    if refresh == "incremental" and whole is not None:
        message = f"rollview.refresh is incremental, but {whole.sentence}"
        raise InputError(message, subject=refresh, hint=whole.suggestion)
    for key, value in view.properties.items():
        if key.startswith("rollview.interval") and value != "auto" and not whole_number(value):
            message = f"{key} is `{value}`"
            raise InputError(message, subject=value, hint="a number of transactions, or auto")
    _check_level(view)
    _check_times(view)
    algorithm_of(view)


def _check_times(view: View) -> None:
    """Refuses times of refresh and of condensing that mean nothing, or exclude each other."""
    if schedule_of(view) is not None and staleness_of(view):
        message = f"{MAX_STALENESS} has no place beside rollview.schedule, which says when the view is rolled"
        raise InputError(message, subject=view.name, hint="leave one of both out")
    if staleness_of(view) and is_full(view):
        message = f"{MAX_STALENESS} is for views that are maintained by deltas, and this one is recomputed"
        raise InputError(message, subject=view.name, hint="use rollview.schedule")
    if condensing_of(view) is not None and is_full(view):
        hint = "leave it out"
        raise InputError("a view that is recomputed has no delta to condense", subject=view.name, hint=hint)


def _check_level(view: View) -> None:
    """Refuses an algorithm that does not claim the level of consistency that is asked for."""
    algorithm, asked = algorithm_of(view), consistency_of(view)
    claimed = algorithm.level
    if ALGORITHM in view.properties and claimed < Level[asked.upper()]:
        message = f"{algorithm.name} reaches {claimed}, and rollview.consistency is {asked}"
        hint = f"set rollview.consistency to {claimed}, or leave rollview.algorithm out"
        raise InputError(message, subject=view.name, hint=hint)
