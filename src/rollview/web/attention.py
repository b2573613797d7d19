"""What needs somebody, and what to do about it: the first thing on the first page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from shlex import quote

from rollview.events import ClockJumped, SparkLost
from rollview.service.overview import Overview
from rollview.service.points_in_time import iso
from rollview.service.status import HaltStatus
from rollview.web.watch import Known
from rollview.web.words import duration

_STALE_SECONDS = 10.0


@dataclass(frozen=True)
class Matter:
    """One thing: how bad it is (`error`, `warning`, `note`), what it is about, what it is, the way out."""

    level: str
    subject: str
    text: str
    hint: str = ""
    since: str = ""
    view: str = ""


def matters(
    known: Known, overview: Overview, now: float, told: Callable[[Exception], dict[str, str]]
) -> list[Matter]:
    """All of them, the worst first; one cause of many stopped views is told once.

    `told` says of an error what a page may say.
    """
    problems = [told(known.problem)] if known.problem is not None else []
    found = [Matter("error", "catalog", each["message"], each["hint"]) for each in problems]
    found += [*_of_age(overview, now), *_of_sources(known, overview), *_of_views(known, overview)]
    for waiting in overview.waiting:
        text = f"global transaction {waiting.global_id} waits for {', '.join(waiting.missing)}"
        held = f"holds up {', '.join(waiting.present)}"
        hint = f"`rollview release {quote(waiting.global_id)}` ends the wait"
        found.append(Matter("warning", "waiting", f"{text} and {held}", hint, waiting.since))
    found += [Matter("error", each.step, each.problem, each.hint) for each in overview.unfinished]
    found += _of_happenings(known)
    if overview.run is None:
        hint = "`rollview run` maintains them"
        found.append(Matter("warning", "run", "no process keeps the views up to date", hint))
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda each: order[each.level])


def _of_age(overview: Overview, now: float) -> Iterator[Matter]:
    if now - overview.at > _STALE_SECONDS:
        age = duration(now - overview.at)
        yield Matter("warning", "catalog", f"what this page shows is {age} old: the catalog does not answer")


def _of_sources(known: Known, overview: Overview) -> Iterator[Matter]:
    for source in overview.sources:
        answer = known.sources.get(source.site)
        if source.halted is not None:
            yield _stopped(f"source {source.site}", source.halted)
        elif answer is not None and answer.problem:
            yield Matter("error", f"source {source.site}", answer.problem)


def _of_views(known: Known, overview: Overview) -> Iterator[Matter]:
    told = {source.halted.reason for source in overview.sources if source.halted is not None}
    by_reason: dict[str, list[str]] = {}
    halts: dict[str, HaltStatus] = {}
    for view in overview.views:
        if view.halted is not None and view.halted.reason not in told:
            by_reason.setdefault(view.halted.reason, []).append(view.name)
            halts[view.halted.reason] = view.halted
    for reason, names in by_reason.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        word = "view" if len(names) == 1 else "views"
        yield _stopped(f"{word} {', '.join(names[:3])}{more}", halts[reason], names[0])
    notes: dict[str, list[str]] = {}
    shown = {view.name for view in overview.views}
    for name, note in known.notes.of_views.items():
        if name in shown:
            notes.setdefault(note, []).append(name)
    for note, names in notes.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield Matter("note", f"{', '.join(names[:3])}{more}", note, view=names[0])
    for name, note in known.notes.broken.items():
        yield Matter("note", name, note)
    if known.notes.missing:
        names = list(known.notes.missing)
        text = "has a file and is not set up" if len(names) == 1 else "have files and are not set up"
        yield Matter("note", ", ".join(names[:5]), text, "`rollview setup` adds them")


def _of_happenings(known: Known) -> Iterator[Matter]:
    for event in known.recent:
        match event:
            case ClockJumped(seconds=seconds):
                way = "forward" if seconds > 0 else "back"
                text = f"was set {way} by {duration(abs(seconds))}, or the machine slept"
                hint = "no csn depends on it; lags, schedules, retention do: is time in step (NTP)?"
                yield Matter("note", "clock", text, hint, iso(event.time))
            case SparkLost(exit_code=code):
                text = f"its process has ended (exit code {code}), and another one was started"
                hint = "if that repeats, give it more memory: `spark.driver.memory` in the project file"
                yield Matter("note", "Spark", text, hint, iso(event.time))


def _stopped(subject: str, halted: HaltStatus, view: str = "") -> Matter:
    place = f" (from csn {halted.csn} on)" if halted.csn else ""
    return Matter("error", subject, f"stopped{place}: {halted.reason}", halted.hint, halted.since, view)
