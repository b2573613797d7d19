"""Mistakes that have nothing to do with each other, collected so that a user hears of all of them at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent

from rollview.errors import InputError, RollviewError, SetupIncomplete, SeveralMistakes


class Mistakes:
    """The mistakes found so far, and the names that cannot be judged because of a mistake in their inputs.

    Names of views are as files have them; a source is named with a dot behind it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Files below the folder are named as seen from there."""
        self._folder = folder
        self._unusable: set[str] = set()
        self._own: dict[str, RollviewError] = {}
        self.found: list[RollviewError] = []

    @contextmanager
    def noted(
        self, *names: str, path: Path | None = None, kind: type[RollviewError] = InputError
    ) -> Iterator[None]:
        """Keeps an error about input; these names, and views that read them, are not judged any more."""
        try:
            yield
        except kind as error:
            if isinstance(error, InputError) and (file := error.file or path):
                error.file = self._shown(Path(file))
            self.found.append(error)
            self._own |= {name.lower(): error for name in names}
            self.skip(*names)

    def skip(self, *names: str) -> None:
        """These names cannot be judged."""
        self._unusable |= {name.lower() for name in names}

    def of(self, name: str) -> RollviewError | None:
        """The mistake that was found under this name."""
        return self._own.get(name.lower())

    def concern(self, reads: Iterable[str]) -> bool:
        """Whether one of these tables and views is not usable."""
        return any(
            name in self._unusable or f"{name.partition('.')[0]}." in self._unusable
            for name in (each.lower() for each in reads)
        )

    def check(self) -> None:
        """Raises the only mistake as it is, or all of them together."""
        raise_together(self.found)

    def _shown(self, path: Path) -> str:
        inside = self._folder is not None and path.is_relative_to(self._folder)
        return str(path.relative_to(self._folder) if inside and self._folder else path)


def raise_together(errors: list[RollviewError]) -> None:
    """Raises one error for all of these; a single one as it is, and nothing if there is none.

    Errors that are no mistakes, such as a server that is away, are reported with the mistakes. Without any
    mistake the first is raised as it is.
    """
    if not errors:
        return
    if len(errors) == 1 or not any(isinstance(error, InputError) for error in errors):
        raise errors[0]
    places = list(dict.fromkeys(place for error in errors if (place := _place(error))))
    shown = "\n".join(_shown(error) for error in errors)
    raise SeveralMistakes(
        f"{len(errors)} mistakes{' in ' if places else ''}{', '.join(places)}:\n{shown}",
        subject=", ".join(dict.fromkeys(error.subject for error in errors if error.subject)),
        mistakes=tuple(errors),
    )


def not_set_up(errors: Mapping[str, RollviewError], report: object = None) -> SetupIncomplete:
    """Says which views were not set up, and why."""
    number = "1 view was" if len(errors) == 1 else f"{len(errors)} views were"
    shown = "\n".join(_shown_of(name, error) for name, error in errors.items())
    others = "" if report is None else "; the others were"
    message = f"{number} not set up{others}:\n{shown}"
    incomplete = SetupIncomplete(message, subject=", ".join(errors), errors=errors)
    incomplete.report = report
    incomplete.details = "\n".join(error.details for error in errors.values() if error.details)
    return incomplete


def _place(error: RollviewError) -> str:
    """`file:line` as far as it is known."""
    if not isinstance(error, InputError) or not error.file:
        return ""
    return f"{error.file}:{error.line}" if error.line else error.file


def _shown(error: RollviewError) -> str:
    place = _place(error)
    message = f"{place}: {_bare_message(error)}" if place else error.message
    hint = f"\n  hint: {error.hint}" if error.hint else ""
    return indent(message + hint, "  ")


def _shown_of(view: str, error: RollviewError) -> str:
    """The same, with the name of the view where nothing else says which one it is."""
    text = _shown(error)
    is_named = _place(error) or re.search(rf"\b{re.escape(view)}\b", error.message)
    return text if is_named else f"  view {view}: {text.strip()}"


def _bare_message(error: RollviewError) -> str:
    """The message without the name of the file, where the error has it as a field."""
    file = error.file if isinstance(error, InputError) else ""
    return error.message.removeprefix(f"{Path(file).name}: ") if file else error.message
