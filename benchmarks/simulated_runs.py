"""How fast the simulator is: runs per second on one core, checker included, 3 relations, 10 transactions."""

from __future__ import annotations

import sys

from rollview.algorithms.algorithm import Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.simulator.campaign import Campaign, run_campaign
from rollview.lab.simulator.generate import Size
from rollview.lab.simulator.network import NETWORKS


def main() -> int:
    """Prints a line per scenario and network."""
    for scenario in Scenario:
        for network in NETWORKS.values():
            campaign = Campaign(ALGORITHMS["sweep"], network, scenario, Size(3, 10), runs=1_500)
            tally = run_campaign(campaign)
            speed = tally.runs / tally.seconds
            sys.stdout.write(f"{scenario:14} {network.name:11} {speed:6.0f} runs a second, {tally.level}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
