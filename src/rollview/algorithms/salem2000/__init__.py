"""salem2000: propagation queries, from the synchronous expansions to rolling propagation.

Lives here: ComputeDelta, Execute, Propagate, RollingPropagate and the query lists, a module each.
May use: `algebra` and the steps that algorithms share. Used by: `registry`, `maintain`.
"""
