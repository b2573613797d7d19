"""The passes of the pipeline, one module each: a function of a query and the tables that it may name.

A pass returns the same object where it has nothing to do. Three modules are none, and serve several of them:
`grouping_sets`, `correlated` and `dependent_joins`. They use `names`; `pipeline` runs them, in its order.
"""
