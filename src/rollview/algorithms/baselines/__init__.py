"""The baselines of the papers: conventional maintenance, ECA, SWEEP and their variants.

Lives here: a module for each of them.
May use: `algebra`, the steps that algorithms share, and the state vectors of zhuge1996. Used by: `registry`.
"""
