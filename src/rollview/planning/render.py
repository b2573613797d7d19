"""A view definition as text: the normal form, for people and for tests. Equal views give equal text."""

from __future__ import annotations

from rollview.algebra.text import facts
from rollview.algebra.view import STAGE_MARK, View


def render(view: View) -> str:
    """The whole view, one fact per line; its stages have numbers here, from inside to outside."""
    properties = [f"{key} = {value}" for key, value in sorted(view.properties.items())]
    lines = [f"view {view.name}", *facts("properties", properties), *view.root.render()]
    for stage in view.parts[:-1]:
        lines += [f"stage {stage.name}", *stage.root.render()]
    text = "\n".join(lines) + "\n"
    for number, stage in enumerate(view.parts[:-1], start=1):
        text = text.replace(stage.name, f"{view.name}{STAGE_MARK}{number}")
    return text
