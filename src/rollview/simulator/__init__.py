"""The simulator: a runtime in which the order of all events is a choice."""

from rollview.simulator.campaign import Campaign, Tally, run_campaign, run_one, seeded_run, size_for
from rollview.simulator.checker import Verdict, Witness, check
from rollview.simulator.generate import Size, generate
from rollview.simulator.network import NETWORKS, Network
from rollview.simulator.schedule import Recorded, Scripted, Seeded, every_schedule
from rollview.simulator.shrink import Failing, shrink
from rollview.simulator.simulation import Outcome, simulate_run
from rollview.simulator.world import World, from_json, to_json

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
