"""Charts as SVG: one text for pages, notebooks and files.

Colours are attributes, which work in notebooks and files, light and dark; the page's stylesheet overrides
them by class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

INK, SOFT, RULE = "currentColor", "#808080", "rgba(128,128,128,.35)"
ACCENT, ACCENT_SOFT, GOOD, WARN = "#4a90b8", "rgba(74,144,184,.22)", "#3d9a63", "#c98a1b"
_TITLE, _GAP = 22.0, 14.0


class Chart:
    """Something that is drawn: `width` and `height` in pixels, and `svg()`."""

    width: float
    height: float

    def svg(self) -> str:
        """The chart as an SVG element."""
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        """Writes it to an SVG file."""
        Path(path).write_text(self.svg() + "\n", encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg()

    def __html__(self) -> str:
        return self.svg()


@dataclass(frozen=True)
class Charts(Chart):
    """Charts one below the other, each with its title: a notebook shows them, `save` writes an SVG file."""

    titled: tuple[tuple[str, Chart], ...]

    @property
    def width(self) -> float:  # type: ignore[override]
        return max((chart.width for _, chart in self.titled), default=0.0)

    @property
    def height(self) -> float:  # type: ignore[override]
        return sum(_TITLE + chart.height + _GAP for _, chart in self.titled)

    def svg(self) -> str:
        """One SVG element around those of the charts."""
        pieces, top = [], 0.0
        for title, chart in self.titled:
            style = {"font-size": 13, "font-weight": 600}
            pieces.append(text(title, {"class": "title", "x": 0, "y": top + 15, **style}))
            pieces.append(element("svg", {"x": 0, "y": top + _TITLE}, [chart.svg()]))
            top += _TITLE + chart.height + _GAP
        label = ", ".join(title for title, _ in self.titled)
        return frame("charts", self.width, self.height, label, pieces)


def element(name: str, attributes: dict[str, object], inside: Sequence[str] = ()) -> str:
    """An element; what is inside is SVG already."""
    written = "".join(f' {key}="{escape(_written(value))}"' for key, value in attributes.items())
    return f"<{name}{written}>{''.join(inside)}</{name}>" if inside else f"<{name}{written} />"


def frame(kind: str, width: float, height: float, label: str, inside: Sequence[str]) -> str:
    """The outermost element of a chart; the label says in words what it shows."""
    size = {"width": width, "height": height, "viewBox": f"0 0 {_written(width)} {_written(height)}"}
    fonts = {"font-family": "sans-serif", "font-size": 11}
    known = {"xmlns": "http://www.w3.org/2000/svg", "class": kind, **size, **fonts}
    return element("svg", {**known, "role": "img", "aria-label": label}, [tooltip(label), *inside])


def text(words: str, attributes: dict[str, object]) -> str:
    """Text at a place."""
    return element("text", {"fill": INK, **attributes}, [escape(words)])


def tooltip(words: str) -> str:
    """The tooltip of the element around it."""
    return f"<title>{escape(words)}</title>"


def line(kind: str, start: tuple[float, float], end: tuple[float, float], stroke: str, **more: object) -> str:
    """A straight line."""
    ends = {"x1": start[0], "y1": start[1], "x2": end[0], "y2": end[1]}
    own = {key.replace("_", "-"): value for key, value in more.items()}
    return element("line", {**({"class": kind} if kind else {}), **ends, "stroke": stroke, **own})


def _written(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)
