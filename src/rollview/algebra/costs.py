"""The costs of an operator beyond the size of a change, and what its author can do about it.

The codes are for programs and stay as they are; sentences are for people.
"""

from __future__ import annotations

from dataclasses import dataclass

PRODUCT = "PRODUCT"
ONE_VALUE = "ONE_VALUE"
ONE_GROUP = "ONE_GROUP"
ONE_PARTITION = "ONE_PARTITION"
STORED_JOIN = "STORED_JOIN"
MANY_BLOCKS = "MANY_BLOCKS"
FULL_PART = "FULL_PART"
FULL_BY_POLICY = "FULL_BY_POLICY"
FULL_BY_CHOICE = "FULL_BY_CHOICE"


@dataclass(frozen=True)
class Cost:
    """Something that costs more than the change: a stable code, a sentence, and what to do about it."""

    code: str
    sentence: str
    suggestion: str
