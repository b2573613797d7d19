"""For all tests: Hypothesis has no deadline, because a busy machine is not a failing test."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("rollview", deadline=None)
settings.load_profile("rollview")
