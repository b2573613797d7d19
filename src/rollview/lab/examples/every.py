"""All examples, by paper and number."""

from __future__ import annotations

from functools import cache
from itertools import chain

from rollview.lab.examples import policies, rolling, strobe, version_numbers
from rollview.lab.examples.example import Example


@cache
def every_example() -> dict[str, Example]:
    """Each by its key, paper by paper."""
    found = chain(policies.examples(), rolling.examples(), version_numbers.examples(), strobe.examples())
    return {example.key: example for example in found}
