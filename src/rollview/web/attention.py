"""Problems that need attention, each with a way out: the first section of the first page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from rollview.events import ClockJumped, SparkLost
from rollview.observe.lags import LagSeries, trend_of
from rollview.observe.state import HaltStatus, ProjectState, SourceState, ViewState, behind
from rollview.observe.times import duration, moment_of
from rollview.storage.points_in_time import iso
from rollview.web.formats import plural
from rollview.web.watch import Known

_STALE_SECONDS = 10.0
LATE_SECONDS = 10.0
"""A smaller lag is normal: a round takes a moment."""
UNREAD_SECONDS = 60.0
"""A source that was not captured for longer may have commits that nobody knows of."""
_TRENDS = {
    "falling back": "falling further behind since",
    "catching up": "catching up since",
    "steady": "as far as at",
}


@dataclass(frozen=True)
class Matter:
    """One problem: its level (`error`, `warning`, `note`), its subject, the text, the way out."""

    level: str
    subject: str
    text: str
    hint: str = ""
    since: str = ""
    view: str = ""


@dataclass(frozen=True)
class FirstLine:
    """The first line: the state of all views together. `since` is when their trend began."""

    level: str
    text: str
    trend: str = ""
    since: float | None = None


def first_line(
    state: ProjectState, lags: Callable[[list[str]], Mapping[str, LagSeries]], now: float
) -> FirstLine:
    """How far views are behind, whether they catch up, since when; `lags` gives the last hour of views."""
    count = len(state.views)
    if not count:
        return FirstLine("warning", "No view is set up.")
    stopped = [view for view in state.views if view.state == "stopped"]
    waiting = [view for view in state.views if view.state.startswith("waiting")]
    held = [f"{_views(len(stopped), count)} stopped."] if stopped else []
    if waiting:
        held.append(f"{_views(len(waiting), count)} {_wait(state, waiting, now)}.")
    level = "error" if stopped else "warning" if waiting else "fine"
    late = behind(state)
    if late is None:
        return _up_to_date(state, level, held, count - len(stopped) - len(waiting), now)
    far = f"{duration(late.seconds)} and {plural(late.transactions, 'transaction')}"
    if late.seconds < LATE_SECONDS:
        rest = "The others" if held else "The view" if count == 1 else "All views"
        verb = "is" if rest == "The view" else "are"
        return FirstLine(level, " ".join([*held, f"{rest} {verb} at most {far} behind."]))
    text = " ".join([*held, f"{_views(late.views, count)} behind, by up to {far}"])
    series = lags([late.last.name]).get(late.last.name)
    known = LagSeries(late.last.name, now, ()) if series is None else series
    trend = trend_of(known, late.seconds, now)
    level = level if held or trend.direction == "catching up" else "warning"
    return FirstLine(level, text, _TRENDS[trend.direction], trend.since)


def _up_to_date(state: ProjectState, level: str, held: Sequence[str], others: int, now: float) -> FirstLine:
    """The first line if views show all that was captured; it is careful where that is old."""
    if not others:
        return FirstLine(level, " ".join(held))
    shown = "The others" if held else "The view" if others == 1 else "All views"
    unread = [source for source in state.sources if now - _read_until(source) > UNREAD_SECONDS]
    if not unread:
        verb = "is" if shown == "The view" else "are"
        return FirstLine(level, " ".join([*held, f"{shown} {verb} up to date."]))
    verb = "shows" if shown == "The view" else "show"
    names = ", ".join(source.site for source in unread)
    since = min(map(_read_until, unread))
    far = f"was captured from {names} for {duration(now - since)}" if since else f"is captured from {names}"
    text = f"{shown} {verb} all that was captured, but nothing {far}."
    return FirstLine("error" if level == "error" else "warning", " ".join([*held, text]))


def _read_until(source: SourceState) -> float:
    return max(source.looked_at, source.captured_at or 0.0)


def _wait(state: ProjectState, waiting: Sequence[ViewState], now: float) -> str:
    """The sources that are waited for, and since when the first of them is."""
    whom = sorted({site for view in waiting for site in view.waits_for})
    moments = [moment_of(each.since) for each in state.waiting if each.since]
    text = f"waiting for a part of a global transaction from {', '.join(whom)}"
    return f"{text}, for {duration(max(0.0, now - min(moments)))}" if moments else text


def _views(count: int, total: int) -> str:
    if count == total:
        return "The view is" if total == 1 else f"All {total} views are"
    return f"{plural(count, 'view')} of {total} {'is' if count == 1 else 'are'}"


def matters(
    known: Known, state: ProjectState, now: float, describe: Callable[[Exception], dict[str, str]]
) -> list[Matter]:
    """All of them, the worst first; one cause of many stopped views is shown once.

    `describe` gives the text for an error without secrets.
    """
    problems = [describe(known.problem)] if known.problem is not None else []
    found = [Matter("error", "catalog", each["message"], each["hint"]) for each in problems]
    found += [*_of_age(state, now), *_of_sources(known, state), *_of_views(known, state)]
    for waiting in state.waiting:
        text = f"global transaction {waiting.global_id} waits for {', '.join(waiting.missing)}"
        held = f"holds up {', '.join(waiting.present)}"
        hint = f"`rollview release {quote(waiting.global_id)}` ends the wait"
        found.append(Matter("warning", "waiting", f"{text} and {held}", hint, waiting.since))
    found += [
        Matter("error", each.step, each.problem, each.hint) for each in state.unfinished if each.problem
    ]
    found += _of_happenings(known)
    if state.run is None:
        hint = "`rollview run` maintains them"
        found.append(Matter("warning", "run", "no process keeps the views up to date", hint))
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda each: order[each.level])


def _of_age(state: ProjectState, now: float) -> Iterator[Matter]:
    if now - state.at > _STALE_SECONDS:
        age = duration(now - state.at)
        yield Matter("warning", "catalog", f"what this page shows is {age} old: the catalog does not answer")


def _of_sources(known: Known, state: ProjectState) -> Iterator[Matter]:
    for source in state.sources:
        answer = known.sources.get(source.site)
        if source.halted is not None:
            yield _stopped(f"source {source.site}", source.halted)
        elif answer is not None and answer.problem:
            yield Matter("error", f"source {source.site}", answer.problem)


def _of_views(known: Known, state: ProjectState) -> Iterator[Matter]:
    reasons = {source.halted.reason for source in state.sources if source.halted is not None}
    by_reason: dict[str, list[str]] = {}
    halts: dict[str, HaltStatus] = {}
    for view in state.views:
        if view.halted is not None and view.halted.reason not in reasons:
            by_reason.setdefault(view.halted.reason, []).append(view.name)
            halts[view.halted.reason] = view.halted
    for reason, names in by_reason.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        word = "view" if len(names) == 1 else "views"
        yield _stopped(f"{word} {', '.join(names[:3])}{more}", halts[reason], names[0])
    notes: dict[str, list[str]] = {}
    shown = {view.name for view in state.views}
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
                hint = "CSNs are unaffected; lags, schedules and retention are. Check NTP"
                yield Matter("note", "clock", text, hint, iso(event.time))
            case SparkLost(exit_code=code):
                text = f"its process has ended (exit code {code}), and another one was started"
                hint = "if that repeats, give it more memory: `spark.driver.memory` in the project file"
                yield Matter("note", "Spark", text, hint, iso(event.time))


def _stopped(subject: str, halted: HaltStatus, view: str = "") -> Matter:
    place = f" (from csn {halted.csn} on)" if halted.csn else ""
    return Matter("error", subject, f"stopped{place}: {halted.reason}", halted.hint, halted.since, view)
