"""sze2000: view maintenance with version numbers.

Lives here: incremental evaluation with compensation, self-maintenance, and the versions they need.
May use: `algebra` and the steps that algorithms share. Used by: `registry`.
"""
