"""Curves of advice: as text for a terminal, and as an image. Needs plotext and matplotlib (extra `advice`).

What is shown is handed over as points; nothing is computed here.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WIDTH, HEIGHT = 78, 17
"""Of a plot as text, in letters."""
LEAST_PERCENT: Final = 0.01
"""Where a logarithmic axis of percent begins: zero has no place on it."""
_COLORS = ("#1f5fa8", "#c2410c", "#2e7d32", "#6b7280")


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line through points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One picture.

    Attributes:
        across, up: values to mark by a line: (value, what it is).
        is_percent: whether y is in percent and shown by its magnitude.
    """

    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    across: tuple[tuple[float, str], ...] = ()
    up: tuple[tuple[float, str], ...] = ()
    is_percent: bool = False

    @property
    def top(self) -> float:
        """The highest value of any curve or line; 100 of percent."""
        highest = max([*(value for curve in self.curves for value in curve.y), *(value for value, _ in self.across)])
        return 100.0 if self.is_percent else highest * 1.05 or 1.0


def as_text(plot: Plot, *, width: int = WIDTH) -> str:
    """The plot in letters, without colors, with what its lines mean below it."""
    # plotext keeps one figure for the whole process.
    p: Any = importlib.import_module("plotext")
    p.clear_figure()
    p.theme("clear")
    p.plotsize(max(width, 40), HEIGHT)
    for curve in plot.curves:
        p.plot(
            [*curve.x], [*_shown(plot, curve.y)], marker="braille", label=curve.name if len(plot.curves) > 1 else None
        )
    for value, _ in plot.up:
        p.vline(value)
    for value, _ in plot.across:
        p.hline(_height(plot, value))
    if plot.is_percent:
        ticks = (0.01, 0.1, 1.0, 10.0, 100.0)
        p.yticks([math.log10(tick) for tick in ticks], [f"{tick:g} %" for tick in ticks])
        p.ylim(math.log10(LEAST_PERCENT), 2)
    else:
        p.ylim(0, plot.top)
    ticks = nice_ticks([value for curve in plot.curves for value in curve.x])
    p.xticks([*ticks], [f"{tick:g}" for tick in ticks])
    p.title(plot.title)
    p.xlabel(plot.x)
    text: str = p.uncolorize(p.build())
    p.clear_figure()
    lines = [line.rstrip() for line in text.splitlines()]
    marked = [*(f"upright line: {said}" for _, said in plot.up), *(f"level line: {said}" for _, said in plot.across)]
    return "\n".join([*lines, *([f"  {plot.y}; {', '.join(marked)}"] if marked else [f"  {plot.y}"])])


def as_image(plots: Sequence[Plot], path: Path) -> None:
    """Write plots, one below the other, as SVG or PNG by the name of the file; the same bytes for the same plots.

    Raises:
        OSError: the file cannot be written.
    """
    mpl: Any = importlib.import_module("matplotlib")
    figures: Any = importlib.import_module("matplotlib.figure")
    kind = path.suffix.lower().removeprefix(".")
    with mpl.rc_context({"svg.hashsalt": "serving-stack", "svg.fonttype": "none", "font.size": 10}):
        figure = figures.Figure(figsize=(8, 3.6 * len(plots)), layout="constrained")
        for at, plot in enumerate(plots, 1):
            _draw(figure.add_subplot(len(plots), 1, at), plot)
        held = BytesIO()
        figure.savefig(held, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {"Software": None})
    path.write_bytes(held.getvalue())


def _draw(axes: Any, plot: Plot) -> None:
    for color, curve in zip(_COLORS, plot.curves, strict=False):
        axes.plot(
            curve.x, [max(value, LEAST_PERCENT) for value in curve.y] if plot.is_percent else curve.y, color=color
        )
    for value, said in plot.up:
        axes.axvline(value, color="#111827", linewidth=1)
        axes.annotate(said, (value, 1), xycoords=("data", "axes fraction"), xytext=(4, -12), textcoords="offset points")
    for value, said in plot.across:
        axes.axhline(value, color="#6b7280", linewidth=1, linestyle="--")
        axes.annotate(
            said, (1, value), xycoords=("axes fraction", "data"), xytext=(-4, 3), textcoords="offset points", ha="right"
        )
    if plot.is_percent:
        axes.set_yscale("log")
        axes.set_ylim(LEAST_PERCENT, 100)
        axes.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01 %", "0.1 %", "1 %", "10 %", "100 %"])
    else:
        axes.set_ylim(0, plot.top)
    if len(plot.curves) > 1:
        axes.legend([curve.name for curve in plot.curves], loc="upper right", frameon=False)
    axes.set(title=plot.title, xlabel=plot.x, ylabel=plot.y)
    axes.grid(visible=True, color="#e5e7eb")
    axes.spines[["top", "right"]].set_visible(False)


def nice_ticks(values: Sequence[float], *, most: int = 8) -> tuple[float, ...]:
    """Round numbers within the range of the values, a round step apart."""
    low, high = min(values), max(values)
    magnitude = 10.0 ** math.floor(math.log10((high - low) or 1.0))
    steps = [magnitude * factor for factor in (0.1, 0.2, 0.3, 0.5, 0.6, 1.0, 2.0, 3.0)]
    step = next((step for step in steps if (high - low) / step < most), magnitude)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(round(at * step, 10) for at in range(first, last + 1))


def _shown(plot: Plot, values: Sequence[float]) -> list[float]:
    return [_height(plot, value) for value in values]


def _height(plot: Plot, value: float) -> float:
    return math.log10(max(value, LEAST_PERCENT)) if plot.is_percent else value
