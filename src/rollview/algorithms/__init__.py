"""Algorithms that maintain views, as generators of effects: no clock, no randomness, no I/O.

Lives here: effects and what interpreters of them share, the sweep, a package per paper, and the registry.
May use: `algebra` and the standard library. Used by: `maintain` on live sources, `lab` in the simulator.
"""
