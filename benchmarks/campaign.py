"""A campaign: seed after seed, a world to which something happens in each round, until the time is over.

A world judges itself after every round; what it finds wrong is an error, and ends the campaign with the seed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql import SparkSession

from rollview.spark.session import open_session

ROUNDS = 12


class World(Protocol):
    """Databases, a project over them, and what happens to both."""

    def round(self) -> str:
        """Lets something happen, then judges; what it was."""


@dataclass(frozen=True)
class Campaign:
    """Worlds of one kind. `counted` are counters of theirs, and `summary` makes a text of all of them."""

    name: str
    description: str
    opened: Callable[[Path, SparkSession, int], AbstractContextManager[World]]
    counted: tuple[str, ...]
    summary: Callable[[Mapping[str, Counter[str]]], str]
    rounds: int = ROUNDS

    def main(self) -> int:
        """Seed after seed, until the time is over; 1 if anything was wrong."""
        parser = argparse.ArgumentParser(description=self.description.split("\n\n", maxsplit=1)[0])
        parser.add_argument("--minutes", type=float, default=10.0)
        parser.add_argument("--seed", type=int, default=100, help="the first seed")
        arguments = parser.parse_args()
        spark = open_session(self.name, {"master": "local[2]"})
        end = time.monotonic() + 60 * arguments.minutes
        counts: dict[str, Counter[str]] = {name: Counter() for name in self.counted}
        seed = arguments.seed
        while time.monotonic() < end:
            done: list[str] = []
            try:
                with (
                    tempfile.TemporaryDirectory() as folder,
                    self.opened(Path(folder), spark, seed) as world,
                ):
                    for _ in range(self.rounds):
                        done.append(world.round())
                    for name in self.counted:
                        counts[name] += getattr(world, name)
            except Exception as error:
                print(f"seed {seed}, after {done}: {error}", flush=True)
                return 1
            print(f"seed {seed}: {'; '.join(done)}", flush=True)
            seed += 1
        print(self.summary(counts))
        return 0
