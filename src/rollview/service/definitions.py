"""What a project defines: its sources' tables and its views, parsed, in an order in which each view comes
after the views it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from re import IGNORECASE
from re import compile as pattern

from rollview.algebra.costs import Cost
from rollview.algebra.levels import Level
from rollview.algebra.relation import Table
from rollview.algebra.view import STAGE_MARK, View, is_stage
from rollview.algorithms.algorithm import Algorithm
from rollview.algorithms.registry import ALGORITHMS
from rollview.errors import InputError, ProjectError, UnsupportedError, ViewError
from rollview.planning import Types, has_idle_order, names_given, parse_view, referenced_names, view_name
from rollview.service.durations import seconds_of
from rollview.service.mistakes import Mistakes
from rollview.service.schedules import condensing_of, schedule_of
from rollview.service.text_files import read_text

SERVED = (
    *("sweep", "rolling", "compute-delta", "propagate", "equation-1", "equation-2", "net-effect"),
    *("version-numbers", "strobe", "t-strobe", "g-strobe", "c-strobe", "c-t-strobe"),
)
"""The algorithms that the drivers run on Spark; the others are there for comparison, in the simulator."""

AT_SOURCE = ("ipda", "immediate")
"""Policies under which the writers of a source make the view delta; the second one applies it there, too."""

POLICIES = ("snapshot", "deferred", *AT_SOURCE)
DEFAULT_POLICY = "deferred"
_LONGEST_NAME = 100
_NAME = pattern(r"\bMATERIALIZED\s+VIEW\s+(?:IF\s+NOT\s+EXISTS\s+)?(?:`([^`]+)`|(\w+))", IGNORECASE)
_VERIFY = pattern(r"(?:(?P<percent>\d+(?:\.\d+)?) ?% )?every (?P<duration>.+)")
PAPER_NAMES = {"dpda": "deferred"}
"""Policies by the names that beyer2000 gives them: deferred propagate, deferred apply."""

FOREIGN_KEYS, ENFORCED = "rollview.foreign_keys", "enforced"
"""What a view says of the foreign keys between its tables: that every transaction leaves them kept."""

CONSISTENCY = tuple(str(level) for level in Level if level is not Level.NONE)
DEFAULT_CONSISTENCY = str(Level.COMPLETE)

_CHOICES = {
    "rollview.consistency": CONSISTENCY,
    FOREIGN_KEYS: (ENFORCED,),
    "rollview.on_loss": ("stop", "reload"),
    "rollview.refresh": ("incremental", "full", "auto"),
}
"""Properties with few values."""


@dataclass(frozen=True)
class ViewText:
    """A view file: its path, the view's name, the text, and the names it reads."""

    path: Path
    name: str
    sql: str
    reads: tuple[str, ...]


def read_view_files(paths: Iterable[Path], mistakes: Mistakes) -> dict[str, ViewText]:
    """The view texts by name, dependencies first; without those that are wrong in themselves."""
    texts: dict[str, ViewText] = {}
    for path in paths:
        with mistakes.noted(*_supposed_names(path)), in_file(path):
            sql = read_text(path)
            name, reads = view_name(sql) or path.stem, referenced_names(sql)
            _check_name(name)
            # Spark does not tell names apart by case.
            if other := next((each for each in texts.values() if each.name.lower() == name.lower()), None):
                message = f"view `{name}` is already defined in {other.path.name}"
                raise ViewError(message, subject=name, hint="names that differ only in case are the same")
            texts[name] = ViewText(path, name, sql, reads)
    while cycle := _cycle(texts):
        with mistakes.noted(*cycle), in_file(texts[cycle[0]].path):
            raise _cycle_error(cycle)
        texts = {name: text for name, text in texts.items() if name not in cycle}
    return in_order(texts)


def _supposed_names(path: Path) -> tuple[str, ...]:
    """How other views may call the view of a file, whatever is wrong with it."""
    with suppress(ProjectError):
        if named := _NAME.search(read_text(path)):
            return path.stem, named[1] or named[2]
    return (path.stem,)


def _check_name(name: str) -> None:
    """Refuses names that could not be written after FROM, or that stand for something else."""
    if is_stage(name):
        hint = "names like that are for the parts of a view"
        raise ViewError(f"the view's name `{name}` has a {STAGE_MARK}", subject=name, hint=hint)
    odd = next((each for each in name if not (each.isalnum() or each in "_- ")), "")
    if odd or not name.strip() or len(name) > _LONGEST_NAME:
        shown = name if len(name) <= _LONGEST_NAME else f"{name[:20]}…"
        message = f"`{shown!r}` cannot name a view".replace("`'", "`").replace("'`", "`")
        raise ViewError(message, subject=shown, hint="use letters, digits and _")


def parse_text(text: ViewText, tables: Mapping[str, Table], types: Types) -> View:
    """The view of a file in normal form; `types` is asked as stages and averages are met."""
    with in_file(text.path):
        view = parse_definition(text.sql, tables, text.name, types)
        for part in view.stored_parts:
            _check_properties(part)
    return view


def parse_definition(sql: str, tables: Mapping[str, Table], name: str, types: Types) -> View:
    """A view as it is stored: one that is recomputed needs no stages.

    What tables declare of foreign keys is forgotten where the view does not say that they are enforced.
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
    """Whether `run` loads the view by itself where changes of what it reads were lost."""
    return view.properties.get("rollview.on_loss", "stop") == "reload"


@dataclass(frozen=True)
class Verifying:
    """How often `run` verifies a view by itself, and how much of it."""

    seconds: float
    fraction: float


def verifying(view: View) -> Verifying | None:
    """What the view says about that; None for never, and for what cannot be understood."""
    found = _VERIFY.fullmatch(view.properties.get("rollview.verify", ""))
    seconds = None if found is None else seconds_of(found["duration"])
    if found is None or not seconds:
        return None
    fraction = float(found["percent"] or 100.0) / 100.0
    return Verifying(seconds, fraction) if 0.0 < fraction <= 1.0 else None


def notices(view: View) -> list[str]:
    """What the view's author should know: settings that are right but have no effect."""
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
    """What is recomputed as a whole at every change, and why."""
    for part in view.parts:
        if part.root.method == "full":
            yield from part.root.costs


def is_full(view: View) -> bool:
    """Whether a refresh recomputes the view, so that it has no delta."""
    return policy_of(view) == "snapshot" or view.properties.get("rollview.refresh") == "full"


def algorithm_of(view: View) -> Algorithm:
    """The algorithm that maintains the view: the named one, or the cheapest that reaches what is asked for.

    The sweep reaches every level; where not every state has to be shown, it takes the net effect of a step.
    """
    if policy_of(view) in AT_SOURCE:
        return ALGORITHMS["ipda"]
    is_complete = consistency_of(view) == DEFAULT_CONSISTENCY or is_stage(view.name)
    name = view.properties.get("rollview.algorithm", "sweep" if is_complete else "net-effect")
    algorithm = ALGORITHMS.get(name)
    if algorithm is None:
        raise InputError(
            f"view {view.name}: unknown algorithm `{name}`",
            subject=name,
            hint=f"known: {', '.join(ALGORITHMS)}",
        )
    if reason := refusal_of(algorithm, view):
        hint = f"omit rollview.algorithm, or choose one of {', '.join(SERVED)}"
        raise UnsupportedError(f"view {view.name} cannot use {name}: {reason}", subject=name, hint=hint)
    return algorithm


def refusal_of(algorithm: Algorithm, view: View) -> str:
    """Why an algorithm cannot maintain a view here; empty if it can."""
    if algorithm.name not in SERVED:
        return "it runs in the simulator only"
    read = next((table.name for table in view.tables if not table.source), "")
    if not algorithm.sequenced and read:
        what = "the view has several parts" if is_stage(read) else f"{read} is a view"
        return f"it takes the messages of sources, and {what}"
    return algorithm.refusal(view)


def _check_properties(view: View) -> None:
    policy = policy_of(view)
    if policy not in POLICIES:
        message = f"the policy `{policy}` is not available"
        raise UnsupportedError(
            message, subject=policy, hint=f"one of {', '.join(POLICIES)}; dpda is deferred"
        )
    if policy in AT_SOURCE and "rollview.algorithm" in view.properties:
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
        if (
            key.startswith("rollview.interval")
            and value != "auto"
            and not (value.isdigit() and int(value) > 0)
        ):
            message = f"{key} is `{value}`"
            raise InputError(message, subject=value, hint="a number of transactions, or auto")
    _check_level(view)
    schedule_of(view)
    if condensing_of(view) is not None and is_full(view):
        hint = "leave it out"
        raise InputError("a view that is recomputed has no delta to condense", subject=view.name, hint=hint)
    algorithm_of(view)


def _check_level(view: View) -> None:
    """Refuses an algorithm that does not claim the level of consistency that is asked for."""
    algorithm, asked = algorithm_of(view), consistency_of(view)
    claimed = algorithm.level
    if "rollview.algorithm" in view.properties and claimed < Level[asked.upper()]:
        message = f"{algorithm.name} reaches {claimed}, and rollview.consistency is {asked}"
        hint = f"set rollview.consistency to {claimed}, or leave rollview.algorithm out"
        raise InputError(message, subject=view.name, hint=hint)


def in_order(texts: Mapping[str, ViewText]) -> dict[str, ViewText]:
    """Dependencies first; a cycle is named."""
    if cycle := _cycle(texts):
        raise _cycle_error(cycle)
    ordered: dict[str, ViewText] = {}

    def visit(name: str) -> None:
        if name not in ordered:
            for read in _read_views(texts, name):
                visit(read)
            ordered[name] = texts[name]

    for name in texts:
        visit(name)
    return ordered


def _read_views(texts: Mapping[str, ViewText], name: str) -> list[str]:
    """The views that a view reads."""
    names = {each.lower(): each for each in texts}
    return [names[read.lower()] for read in texts[name].reads if read.lower() in names]


def _cycle(texts: Mapping[str, ViewText]) -> tuple[str, ...]:
    """Views of which each reads the next and the last one the first; empty if there are none."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> tuple[str, ...]:
        if name in path:
            return path[path.index(name) :]
        if name not in done:
            for read in _read_views(texts, name):
                if cycle := visit(read, (*path, name)):
                    return cycle
            done.add(name)
        return ()

    return next((cycle for name in texts if (cycle := visit(name, ()))), ())


def _cycle_error(cycle: tuple[str, ...]) -> ViewError:
    shown = " → ".join((*cycle, cycle[0]))
    hint = "a view cannot read itself, not even through others"
    return ViewError(f"views form a cycle: {shown}", subject=cycle[0], hint=hint)


@contextmanager
def in_file(path: Path) -> Iterator[None]:
    """Says in which file a mistake is: an error about input gets the file's name in front, and as a field."""
    try:
        yield
    except InputError as error:
        named = error.message.startswith(path.name)
        message = error.message if named else f"{path.name}: {error.message}"
        raise type(error)(
            message, subject=error.subject, hint=error.hint, file=str(path), line=error.line
        ) from None
