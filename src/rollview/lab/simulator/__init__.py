"""The simulator: a runtime in which the order of all events is a choice.

Lives here: worlds, schedules, two interpreters of effects, the checker of consistency, campaigns, shrinking.
May use: `lab.memory`, `planning`, `algorithms` and `algebra`. Used by: `lab.tables`, `lab.commands`, tests.
"""

from rollview.lab.simulator.campaign import Campaign, Tally, run_campaign, run_one, seeded_run, size_for
from rollview.lab.simulator.checker import Verdict, Witness, check
from rollview.lab.simulator.generate import Size, generate
from rollview.lab.simulator.network import NETWORKS, Network
from rollview.lab.simulator.schedule import Recorded, Scripted, Seeded, every_schedule
from rollview.lab.simulator.shrink import Failing, shrink
from rollview.lab.simulator.simulation import Outcome, simulate_run
from rollview.lab.simulator.world import World, from_json, to_json

__all__ = [
    "NETWORKS",
    "Campaign",
    "Failing",
    "Network",
    "Outcome",
    "Recorded",
    "Scripted",
    "Seeded",
    "Size",
    "Tally",
    "Verdict",
    "Witness",
    "World",
    "check",
    "every_schedule",
    "from_json",
    "generate",
    "run_campaign",
    "run_one",
    "seeded_run",
    "shrink",
    "simulate_run",
    "size_for",
    "to_json",
]
