"""All algorithms, each with the level it is held to in every scenario."""

from __future__ import annotations

from rollview.algebra.dependencies import keeps_keys
from rollview.algebra.view import View
from rollview.algorithms import net_effect_sweep, sweep
from rollview.algorithms.algorithm import Algorithm, Level, Scenario, nothing, one_position
from rollview.algorithms.baselines import agrawal_sweep, conventional, eca, eca_key, nested_sweep
from rollview.algorithms.beyer2000 import source_propagation
from rollview.algorithms.salem2000 import compute_delta, propagate, rolling, synchronous
from rollview.algorithms.sze2000 import version_numbers
from rollview.algorithms.zhuge1996 import c_strobe, c_t_strobe, g_strobe, strobe, t_strobe

EVERY_NETWORK = ("fifo", "misordered", "lossy", "hostile")


def _claims(single_update: Level, source_local: Level, global_: Level) -> dict[Scenario, Level]:
    return dict(zip(Scenario, (single_update, source_local, global_), strict=True))


def _needs_keys(view: View) -> str:
    if view.block is None:
        return "it maintains select-project-join views only"
    if not keeps_keys(view.block):
        return "the view does not keep the key of every relation"
    return ""


NONE, CONVERGENCE, WEAK, STRONG, COMPLETE = Level


def _made_by_writers(_: View) -> str:
    return "writers at the source make its deltas: set rollview.policy = ipda instead"


def _wrong_as_printed(_: View) -> str:
    return "as it is printed it subtracts too much from three relations on; rolling is its correction"


_SEQUENCED = [
    Algorithm(
        name,
        processes,
        positions,
        _claims(COMPLETE, COMPLETE, COMPLETE),
        nothing,
        sequenced=True,
        networks=EVERY_NETWORK,
        asks_the_view=name == "sweep",
        keeps_control=name == "rolling",
        live_refusal=_made_by_writers if name == "ipda" else nothing,
    )
    for name, processes, positions in (
        ("sweep", sweep.processes, sweep.forward_queries),
        ("equation-1", synchronous.equation_one_processes, compute_delta.positions),
        ("equation-2", synchronous.equation_two_processes, compute_delta.positions),
        ("compute-delta", compute_delta.processes, compute_delta.positions),
        ("propagate", propagate.processes, compute_delta.positions),
        ("rolling", rolling.processes, sweep.forward_queries),
        ("ipda", source_propagation.processes, sweep.forward_queries),
    )
]

_AS_PRINTED = Algorithm(
    "rolling-as-printed",
    rolling.processes_as_printed,
    sweep.forward_queries,
    _claims(NONE, NONE, NONE),
    nothing,
    sequenced=True,
    keeps_control=True,
    live_refusal=_wrong_as_printed,
)
"""salem2000 Figure 10 to the letter, which Theorem 4.3 says is complete: a witness that it is not."""

_NET_EFFECT = Algorithm(
    "net-effect",
    net_effect_sweep.processes,
    one_position,
    _claims(STRONG, STRONG, STRONG),
    nothing,
    sequenced=True,
    networks=EVERY_NETWORK,
    takes_net_effect=True,
    asks_the_view=True,
)

_STROBE = [
    Algorithm(
        name,
        processes,
        one_position,
        claims,
        _needs_keys,
        sequenced=False,
        needs_rest=name in ("strobe", "t-strobe", "g-strobe"),
    )
    for name, processes, claims in (
        ("strobe", strobe.processes, _claims(STRONG, CONVERGENCE, CONVERGENCE)),
        ("t-strobe", t_strobe.processes, _claims(STRONG, STRONG, WEAK)),
        ("g-strobe", g_strobe.processes, _claims(STRONG, STRONG, STRONG)),
        ("c-strobe", c_strobe.processes, _claims(COMPLETE, CONVERGENCE, CONVERGENCE)),
        ("c-strobe-3", c_strobe.periodic(3), _claims(STRONG, CONVERGENCE, CONVERGENCE)),
        ("c-t-strobe", c_t_strobe.processes, _claims(COMPLETE, COMPLETE, WEAK)),
    )
]

_VERSION_NUMBERS = Algorithm(
    "version-numbers",
    version_numbers.processes,
    one_position,
    _claims(COMPLETE, COMPLETE, WEAK),
    version_numbers.refusal,
    sequenced=False,
    networks=EVERY_NETWORK,
)

_BASELINES = [
    Algorithm(
        "conventional",
        conventional.processes,
        one_position,
        _claims(NONE, NONE, NONE),
        _needs_keys,
        sequenced=False,
        needs_rest=True,
        live_refusal=conventional.live_refusal,
        live_level=CONVERGENCE,
    ),
    Algorithm(
        "eca",
        eca.processes,
        one_position,
        _claims(STRONG, STRONG, STRONG),
        eca.refusal,
        sequenced=False,
        single_source=True,
        needs_rest=True,
    ),
    Algorithm(
        "eca-key",
        eca_key.processes,
        one_position,
        _claims(STRONG, STRONG, STRONG),
        eca_key.refusal,
        sequenced=False,
        single_source=True,
        needs_rest=True,
    ),
    Algorithm(
        "agrawal-sweep",
        agrawal_sweep.processes,
        one_position,
        _claims(COMPLETE, COMPLETE, WEAK),
        agrawal_sweep.refusal,
        sequenced=False,
    ),
    Algorithm(
        "nested-sweep",
        nested_sweep.processes,
        one_position,
        _claims(STRONG, STRONG, WEAK),
        nested_sweep.refusal,
        sequenced=False,
        needs_rest=True,
    ),
]

_ALL = (*_SEQUENCED, _NET_EFFECT, _AS_PRINTED, _VERSION_NUMBERS, *_STROBE, *_BASELINES)

ALGORITHMS = {algorithm.name: algorithm for algorithm in _ALL}
"""By the name that `rollview.algorithm` and `--algorithm` use."""
