"""The options of `rollview simulate`, and the campaign that they describe."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, replace
from pathlib import Path

from rollview.algebra.levels import Level, Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.errors import OptionError, WorldError
from rollview.planning import parse_view
from rollview.simulator.campaign import Campaign, size_for
from rollview.simulator.generate import Size, generate
from rollview.simulator.network import NETWORKS
from rollview.simulator.spectrum import Effort
from rollview.simulator.world import World, from_json, validate


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line."""

    algorithm: str
    policy: str | None
    scenario: str
    network: str
    relations: int
    transactions: int
    views: int
    runs: int
    seed: int
    exhaustive: bool
    world: Path | None
    view: str | None
    expect: str | None
    jobs: int
    trace: Path | None
    explain: bool
    write: Path | None
    json: bool


def effort_for(options: Options, default_runs: int) -> Effort:
    """How much to try per algorithm; refuses options that make no sense for all of them at once."""
    given = [name for name in ("world", "view", "trace", "expect") if getattr(options, name) is not None]
    if given or options.exhaustive or options.explain:
        raise OptionError(
            "--algorithm all generates its own worlds",
            hint="combine it with --runs, --jobs, --write and --json only",
        )
    _check_writable(options.write)
    return Effort() if options.runs == default_runs else Effort(runs=options.runs)


def _check_writable(file: Path | None) -> None:
    """Refuses, before any work is done, a file that cannot be written at the end of it."""
    if file is None:
        return
    if file.is_dir():
        raise OptionError(f"{file} is a folder, not a file", subject=str(file))
    if not file.parent.is_dir():
        raise OptionError(f"the folder of {file} does not exist", subject=str(file))
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise OptionError(f"{file} cannot be written", subject=str(file))


def campaign_for(options: Options) -> Campaign:
    """The campaign that the options describe; refuses options that contradict each other."""
    if options.write is not None:
        raise OptionError("--write needs --algorithm all", hint="use --trace to write one run")
    algorithm = ALGORITHMS[options.algorithm]
    if options.views > 1 and not algorithm.sequenced:
        raise OptionError(f"{algorithm.name} maintains one view at a time", hint="omit --views, or use sweep")
    if options.exhaustive and options.jobs != 1:
        raise OptionError("--exhaustive runs in one process", hint="omit --jobs")
    if options.views > 1 and (options.view or options.world):
        raise OptionError(
            "--views draws views at random; --view and --world name them", hint="use one or the other"
        )
    _check_writable(options.trace)
    scenario = Scenario(options.scenario)
    size = size_for(algorithm, options.relations, options.transactions, options.views)
    world = _given_world(options, scenario, size)
    if world is not None:
        scenario = world.scenario
        for view in world.views:
            if reason := algorithm.refusal(view):
                raise OptionError(
                    f"{algorithm.name} cannot maintain {view.name}: {reason}", subject=view.name
                )
    return Campaign(
        algorithm,
        NETWORKS[options.network],
        scenario,
        size,
        options.runs,
        options.seed,
        Level[options.expect.upper()]
        if options.expect
        else max(algorithm.claims[scenario], Level.CONVERGENCE),
        options.exhaustive,
        world,
    )


def _given_world(options: Options, scenario: Scenario, size: Size) -> World | None:
    """The world that the options describe; None if every run makes its own."""
    world = None if options.world is None else _read_world(options.world)
    if options.view is None:
        return world
    if world is None:
        # Every relation a table of its own, so that any view can be written over them.
        world = generate(random.Random(options.seed), scenario, replace(size, keyed=True))
    world = replace(world, views=(parse_view(options.view, world.tables, "v"),))
    validate(world)
    return world


def _read_world(file: Path) -> World:
    """The first line of a trace, or a whole file that is one JSON object."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise WorldError(f"cannot read {file}: {error.strerror}", subject=str(file)) from error
    try:
        record = json.loads(text)
    except ValueError:
        try:
            record = json.loads(text.splitlines()[0])
        except (ValueError, IndexError) as error:
            raise WorldError(f"{file} is not JSON: {error}", subject=str(file)) from error
    if not isinstance(record, dict):
        raise WorldError(f"{file} does not hold a JSON object", subject=str(file))
    return from_json(record)
