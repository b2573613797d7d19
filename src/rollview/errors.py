"""Every error of rollview. Each names its subject, the reason and the way out.

RollviewError
  + InputError
      + OptionError
      + ProjectError
      + ProjectMoved
      + MissingExtra
      + PointError
      + ViewError
          + UnsupportedError
          + Misunderstood
      + WorldError
      + SeveralMistakes
  + SourceError
      + SourceUnavailable
      + SourceMissing (InputError)
      + AccessDenied (InputError)
      + NotSetUp (InputError)
      + NeedsAdministrator (InputError)
      + CaptureRefused (InputError)
      + CaptureStalled
      + ReadPointLost
      + SourceChanged
      + LogLost
      + UnrepresentableValue
      + DumpError
      + SourceFailed
  + HistoryError
      + HistoryPruned
      + ConsumerLost
      + HistoryBroken
      + TableTruncated
      + UnitSplit
  + CatalogError
      + CatalogUrlError (InputError)
      + CatalogUnavailable
      + NotRegistered
      + NotWaiting (InputError)
      + StepRefused (InputError)
      + LeaseHeld
      + LeaseLost
          + Overtaken
  + LakeError
      + LakeUnavailable
          + StoreUnavailable
      + LakeDamaged
      + LakeMisfit
      + LakeMoved
      + ConflictError
  + AnswerRefused
      + AnswersBusy
  + EvaluationError
  + ComputationFailed
  + SetupIncomplete
  + NeverAtRest
  + CorruptView
  + JavaMissing
  + SparkFailed
      + SparkUnavailable

A name in parentheses is a second base class. The command line exits with code 2 on an `InputError` and with
code 1 on all others.

`retryable` says whether `rollview run` can get past an error without a change to the project: by waiting, or
because somebody else acts, such as the owner of a source, an administrator, or a `rollview setup` in another
process. Of those, `waits_for_setup` are not worth a try before somebody runs `setup`, or starts `run` again.
All this is about a run that has worked before. In the first round of a run an `InputError` is a mistake to
report at once, whether or not it is retryable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class RollviewError(Exception):
    """The root of every error that rollview raises on purpose.

    `subject` is the offending name or place, `hint` the way out; both may be empty. `details` is what
    `--debug` shows beside the message.
    """

    retryable: ClassVar[bool] = False
    waits_for_setup: ClassVar[bool] = False
    details: str = ""

    def __init__(self, message: str, *, subject: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


# What the user wrote


class InputError(RollviewError):
    """Bad input; nothing was changed.

    `file` and `line` are where the mistake is in the user's files; empty and 0 where that is not known.
    """

    def __init__(
        self, message: str, *, subject: str = "", hint: str = "", file: str = "", line: int = 0
    ) -> None:
        super().__init__(message, subject=subject, hint=hint)
        self.file = file
        self.line = line


class OptionError(InputError):
    """Options contradict each other or are out of range."""


class ProjectError(InputError):
    """The project file cannot be used."""


class ProjectMoved(InputError):
    """The project was set up elsewhere: it was moved, or is a copy of one that may still run."""


class MissingExtra(InputError):
    """Something needs packages that a bare install of rollview does not have; the hint names the extra."""


class PointError(InputError):
    """A point in time is not valid or cannot be reached."""


class ViewError(InputError):
    """A view's SQL names something that does not exist or is ambiguous."""


class UnsupportedError(ViewError):
    """A view's SQL is valid, but uses a construct that cannot be maintained yet."""


class Misunderstood(ViewError):
    """rollview and Spark compute different rows from a view's SQL; `details` has both plans."""


class WorldError(InputError):
    """A world for the simulator cannot exist: a key that is not unique, a row of the wrong width."""


class SeveralMistakes(InputError):
    """Several mistakes, reported together; `mistakes` has the error of each."""

    def __init__(
        self, message: str, *, subject: str = "", hint: str = "", mistakes: tuple[RollviewError, ...] = ()
    ) -> None:
        super().__init__(message, subject=subject, hint=hint)
        self.mistakes = mistakes


# Sources


class SourceError(RollviewError):
    """A source cannot be captured or read."""


class SourceUnavailable(SourceError):
    """The database cannot be reached, the connection broke, or a lock was held for too long."""

    retryable = True


class SourceMissing(SourceError, InputError):
    """The database, folder or table that the project names is not there."""

    # A file that was moved away may come back, and run has read it before.
    retryable = True


class AccessDenied(SourceError, InputError):
    """The server does not accept the user, the password or the database."""

    # The server's administrator can open the account again.
    retryable = True


class NotSetUp(SourceError, InputError):
    """The source, or a table of it, is not set up for capture."""

    # `rollview setup` in another process sets it up.
    retryable = True


class NeedsAdministrator(SourceError, InputError):
    """The source needs something that only its administrator can do; `statements` say what."""

    # Not retryable: only setup raises it, and setup is run again after the administrator has acted.

    def __init__(
        self, message: str, *, subject: str = "", hint: str = "", statements: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, subject=subject, hint=hint)
        self.statements = statements


class CaptureRefused(SourceError, InputError):
    """A table cannot be captured exactly as it is, so it is not captured at all."""

    # The owner of the table or the server can remove the obstacle.
    retryable = True


class CaptureStalled(SourceError):
    """An answer saw transactions that were not captured within the time limit."""

    retryable = True


class ReadPointLost(SourceError):
    """An answer saw a state that capture can no longer place in the history; it must be read again."""

    retryable = True


class SourceChanged(SourceError):
    """A captured table or database is no longer the one that was set up; continuing could miss changes."""

    # `rollview setup` in another process takes it as it is now.
    retryable = True
    waits_for_setup = True


class LogLost(SourceError):
    """The source no longer has changes that were committed since the last capture, or never logged them."""

    # `rollview setup` in another process reloads the views.
    retryable = True
    waits_for_setup = True


class UnrepresentableValue(SourceError):
    """A value at the source has no equal in Spark or does not fit the declared type of its column."""

    # Its owner can correct the value; `rollview setup` in another process leaves the old one behind.
    retryable = True
    waits_for_setup = True


class DumpError(SourceError):
    """A dump is not valid: a key occurs twice, a value has the wrong type, it changed while it was read."""

    # The owner can replace it with a correct one.
    retryable = True


class SourceFailed(SourceError):
    """The source reported an error that is none of the others, such as a missing privilege or a full disk."""

    # The source's administrator can remove the cause.
    retryable = True


# History


class HistoryError(RollviewError):
    """The history contradicts itself: one version has two contents, or parts of global transactions cross."""


class HistoryPruned(HistoryError):
    """The part of the history that was asked about has been pruned."""

    # A new answer of a source sees newer versions, which are kept.
    retryable = True


class ConsumerLost(HistoryError):
    """Changes that a consumer had not read were pruned, or belong to a view with other columns."""


class HistoryBroken(HistoryError):
    """A view shows a state from before the history of one of its inputs was restarted."""

    # A `rollview setup` in another process loads the view.
    retryable = True
    waits_for_setup = True


class TableTruncated(HistoryError):
    """Something needs the rows that a table had before a TRUNCATE, at `csn`, which no log has."""

    # `rollview run` loads the view behind it.
    retryable = True

    def __init__(self, message: str, *, subject: str = "", hint: str = "", csn: int = 0) -> None:
        super().__init__(message, subject=subject, hint=hint)
        self.csn = csn


class UnitSplit(HistoryError):
    """An answer saw only a part of what a site contributed to one unit of work, so that it has no csn."""

    # The next answer sees a later state.
    retryable = True


# Catalog


class CatalogError(RollviewError):
    """The catalog was asked for something that contradicts its content; nothing was changed."""


class CatalogUrlError(CatalogError, InputError):
    """The catalog's address is not valid."""


class CatalogUnavailable(CatalogError):
    """The database of the catalog failed: it is locked, full or unreachable.

    The transaction did not happen, unless it failed during its commit: then a step that is still pending
    shows that it did not.
    """

    retryable = True


class NotRegistered(CatalogError):
    """A view, table or site is not in the catalog, or not any more."""

    # `rollview setup` in another process adds and removes them while `run` works.
    retryable = True


class NotWaiting(CatalogError, InputError):
    """There is no such global transaction to end the wait for."""


class StepRefused(CatalogError, InputError):
    """An unfinished step was written by a newer release, or its bounds make no sense; nothing was changed."""

    # The newer release, or `rollview setup --reload` in another process, can end the step.
    retryable = True


class LeaseHeld(CatalogError):
    """Another process is working on the same subject."""

    retryable = True


class LeaseLost(CatalogError):
    """The lease has passed to another process, so its former holder must not write any more."""

    # The next attempt acquires the lease again.
    retryable = True


class Overtaken(LeaseLost):
    """Another `run` has taken over: this one must stop, or stand by."""

    retryable = False


# Lake


class LakeError(RollviewError):
    """A table of the lake cannot be read or written as asked; its content has not changed."""


class LakeUnavailable(LakeError):
    """The disk below the lake failed, for example because it is full."""

    retryable = True


class StoreUnavailable(LakeUnavailable):
    """A request to the object storage of the lake had no usable answer; it may have been carried out."""


class LakeDamaged(LakeError):
    """A table of the lake was changed by another program, or parts of it are missing."""

    # Somebody can put the files back, or reload the table with `rollview setup` in another process.
    retryable = True


class LakeMisfit(LakeError):
    """The lake and the catalog do not belong together, or one of them is older than the other."""


class LakeMoved(LakeError):
    """The lake is at another place now; what is left here is not continued."""


class ConflictError(LakeError):
    """Another writer replaced the same files first, or won every commit race."""

    retryable = True


# Computation


class AnswerRefused(RollviewError):
    """An answer takes more time or room than answers may take of a process that maintains views."""


class AnswersBusy(AnswerRefused):
    """As many answers as are allowed are being computed already, and others wait for their turn."""

    retryable = True


class EvaluationError(RollviewError):
    """An expression has no value for a row, such as a division by zero; `csn` is where, if that is known."""

    # `rollview run` reloads the view once the row is corrected; the same work would fail again.
    waits_for_setup = True

    def __init__(self, message: str, *, subject: str = "", hint: str = "", csn: int = 0) -> None:
        super().__init__(message, subject=subject, hint=hint)
        self.csn = csn


class ComputationFailed(RollviewError):
    """Spark failed at a view or a query, such as for lack of memory, and not because of its rows."""

    # The next attempt may have the memory, the executor or the time that was missing.
    retryable = True


class SetupIncomplete(RollviewError):
    """Some views were not set up, the others were. `errors` has the reasons, `report` what was done."""

    report: object = None

    def __init__(
        self,
        message: str,
        *,
        subject: str = "",
        hint: str = "",
        errors: Mapping[str, RollviewError] | None = None,
    ) -> None:
        super().__init__(message, subject=subject, hint=hint)
        self.errors = dict(errors or {})


class NeverAtRest(RollviewError):
    """An algorithm that needs quiet moments to show a view found none within its limit."""

    retryable = True


class CorruptView(RollviewError):
    """A stored view and its delta contradict each other."""


class JavaMissing(RollviewError):
    """There is no Java to run Spark on."""


class SparkFailed(RollviewError):
    """Spark did not start."""


class SparkUnavailable(SparkFailed):
    """Spark did not start because the machine is busy: a refused connection, a taken port, a timeout."""

    # The next attempt starts another process.
    retryable = True
