"""Algorithms: one module each, as generators of effects."""
