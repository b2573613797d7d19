"""The long campaign: 100,000 fault-injection runs of the sweep over 2 to 5 relations, in all scenarios."""

from __future__ import annotations

import sys

from rollview.algorithms.algorithm import Scenario
from rollview.algorithms.registry import ALGORITHMS
from rollview.lab.simulator.campaign import Campaign, run_campaign
from rollview.lab.simulator.generate import Size
from rollview.lab.simulator.network import NETWORKS

RUNS = 100_000


def main() -> int:
    """Prints a line per kind of run; the exit code is 1 if any run fell short."""
    kinds = [(relations, scenario) for relations in (2, 3, 4, 5) for scenario in Scenario]
    share = -(-RUNS // len(kinds))
    runs, violations, seconds = 0, 0, 0.0
    for relations, scenario in kinds:
        size = Size(relations, transactions=10)
        campaign = Campaign(ALGORITHMS["sweep"], NETWORKS["hostile"], scenario, size, share)
        tally = run_campaign(campaign, jobs=0)
        short = tally.runs - tally.levels[campaign.required] + tally.false_claims
        runs, violations, seconds = runs + tally.runs, violations + short, seconds + tally.seconds
        seed = "" if tally.failing_seed is None else f", first at seed {tally.failing_seed}"
        sys.stdout.write(
            f"{relations} relations, {scenario}, hostile: {tally.runs:,} runs in {tally.seconds:.0f} s, "
            f"{short} violations{seed}\n"
        )
        sys.stdout.flush()
    sys.stdout.write(f"{runs:,} runs in {seconds:.0f} s: {violations} violations\n")
    return 1 if violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
