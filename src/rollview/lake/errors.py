"""What can go wrong in the lake."""

from __future__ import annotations

from rollview.errors import RollviewError


class LakeError(RollviewError):
    """A table of the lake cannot be read or written; what it shows has not changed."""


class ConflictError(LakeError):
    """Files that were to be replaced are no longer part of the table: somebody else replaced them first."""
