"""What setup or remove is going to do at a server, as data."""

from __future__ import annotations

from dataclasses import dataclass, field

from rollview.sources.postgres.registration import Registration
from rollview.sources.source import SetupResult


@dataclass
class InstallPlan:
    """What is to be done. `needed` is for the administrator; `statements` make one transaction.

    Then the writers of `fresh` tables are waited for, and it is registered; `begun` are those of them that
    were not captured before. `granted` are tables that the statements let us read. With
    `has_new_publication` the server cannot read what it has logged before.
    """

    statements: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    needed: list[str] = field(default_factory=list)
    ours: bool = True
    granted: set[int] = field(default_factory=set)
    fresh: tuple[int, ...] = ()
    begun: frozenset[str] = frozenset()
    registration: Registration | None = None
    has_new_publication: bool = False
    is_first: bool = False

    def add(self, statement: str, sentence: str, ours: bool) -> None:
        """A statement, what it does, and whether we may run it."""
        self.statements.append(statement)
        if sentence:
            self.done.append(sentence)
        self.ours = self.ours and ours

    @property
    def result(self) -> SetupResult:
        """As the source tells it."""
        done = () if self.needed else tuple(self.done)
        return SetupResult(done, tuple(self.warnings), tuple(self.needed), self.is_first)
