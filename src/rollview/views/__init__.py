"""Views as their texts define them: definitions, what their SQL means, how they are laid out.

Uses `runtime`, `sql`, `planning`, `operators` and the algebra.
Used by `storage`, `maintain` and `setup`.
"""
