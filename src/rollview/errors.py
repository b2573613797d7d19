"""What can go wrong, said so that the reader can act: the thing, the reason, the way out."""

from __future__ import annotations


class RollviewError(Exception):
    """The root of every error that rollview raises on purpose.

    `thing` is the offending name or place, `hint` the way out; both may be empty.
    """

    def __init__(self, message: str, *, subject: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class InputError(RollviewError):
    """Bad input: nothing was changed; the command line exits with code 2."""


class ViewError(InputError):
    """A view's SQL names something that is not there, or in two places at once."""


class UnsupportedError(ViewError):
    """A view's SQL is right, but uses a construct that cannot be maintained yet."""


class OptionError(InputError):
    """Options that contradict each other or are out of range."""


class WorldError(InputError):
    """A described world that cannot exist: a key that is no key, a row of the wrong width."""


class HistoryError(RollviewError):
    """A source said two different things about one version, or parts of global transactions cross."""


class EvaluationError(RollviewError):
    """An expression has no value for a row, such as a division by zero."""
