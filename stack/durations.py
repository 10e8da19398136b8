"""How long a Pod that leaves should wait for its requests: N, chosen from how long requests take.

A request that runs at a random moment is biased towards the long ones, so requests weigh by their time (*Rollouts and
scaling*, Choosing N): of all the time that requests take, `cut(N) = sum(max(d - N, 0)) / sum(d)` lies beyond N. N is
the smallest multiple of a step with at most a given cut, held between two limits.

Durations come one by one (`Durations`), where cut is exact, or counted in buckets with their exact sum (`Buckets`),
where it lies in an interval. The interval is as narrow as buckets and sum allow, and its upper end, the safe one,
decides.

Where they come from, and what N means for a Pod, is not decided here. Needs numpy (extra `advice`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from stack.errors import Problem, UnusableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

STEP, LEAST, MOST = 30, 60, 900
"""Seconds: N is a multiple of the first, and not outside of the other two."""
MOST_CUT = 0.01
DISAGREE = 0.02
"""By how much sum and buckets may contradict each other: Prometheus extrapolates each series by itself."""
_ROUNDING = 1e-12
NOBODY = 1e-9
"""Share of all requests below which a bucket is empty: sums of `increase()` differ by roundings, and one request that
is not there would take all that the sum leaves open."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """What is known of a number: it is not outside of these two. Both are the same where it is known."""

    low: float
    high: float

    @property
    def is_exact(self) -> bool:
        """Whether the number itself is known."""
        return self.low == self.high


class Measured(Protocol):
    """How long requests took, whatever is known of it."""

    @property
    def count(self) -> float:
        """Requests; with a fraction where Prometheus extrapolated."""
        ...

    @property
    def total(self) -> float:
        """Seconds of all requests together."""
        ...

    @property
    def longest(self) -> Interval:
        """Seconds of the longest."""
        ...

    def quantile(self, share: float) -> Interval:
        """Seconds within which a share of the requests ended, each counted once."""
        ...

    def cut(self, seconds: float) -> Interval:
        """Share of the time of all requests that lies beyond so many seconds of each."""
        ...


class Durations:
    """Requests one by one."""

    def __init__(self, seconds: Numbers | Sequence[float], *, key: str = "durations") -> None:
        """Sort once, sum once: every question after that is a search.

        Raises:
            UnusableError: there are none, one is negative or no number, or all are zero.
        """
        values = np.sort(np.asarray(seconds, dtype=np.float64))
        if not values.size:
            raise _unusable(key, "", "hold no durations", fix="Give a sample of requests that ended well")
        if not math.isfinite(float(values[-1])):
            raise _unusable(key, str(values[-1]), "is no duration", fix="Leave such requests out")
        if values[0] < 0:
            raise _unusable(key, f"{values[0]:g}", "is negative", fix="Leave such requests out")
        self._sorted: Numbers = values
        # Sums from the longest down: few additions where differences matter most.
        self._beyond: Numbers = np.concatenate([np.cumsum(values[::-1])[::-1], [0.0]])
        if self.total <= 0:
            raise _unusable(
                key, "0", "is what every request took, so there is nothing to cut", fix="Look at the column"
            )

    @property
    def count(self) -> float:
        """As `Measured.count`."""
        return float(self._sorted.size)

    @property
    def total(self) -> float:
        """As `Measured.total`."""
        return float(self._beyond[0])

    @property
    def longest(self) -> Interval:
        """As `Measured.longest`."""
        return _exactly(float(self._sorted[-1]))

    def quantile(self, share: float) -> Interval:
        """As `Measured.quantile`."""
        return _exactly(float(self._sorted[max(math.ceil(share * self._sorted.size), 1) - 1]))

    def cut(self, seconds: float) -> Interval:
        """As `Measured.cut`."""
        first = int(np.searchsorted(self._sorted, seconds, side="right"))
        over = float(self._beyond[first]) - (self._sorted.size - first) * seconds
        return _exactly(min(max(over / self.total, 0.0), 1.0))


class Buckets:
    """Requests counted by how long they took, and the exact sum of their durations: a histogram of Prometheus."""

    def __init__(self, cumulative: Mapping[float, float], total: float, *, key: str = "the histogram") -> None:
        """Take counts up to each upper edge in seconds, infinity among them, as `le` has them.

        Raises:
            UnusableError: nothing was counted, a number is none, an edge is missing, or buckets and sum disagree.
        """
        edges = np.array(sorted(cumulative), dtype=np.float64)
        found = np.array([cumulative[edge] for edge in edges], dtype=np.float64)
        if not edges.size or not math.isinf(float(edges[-1])):
            raise _unusable(
                key,
                "",
                "has no bucket +Inf, so some of its series are missing",
                fix="Look for relabelling or sampling that drops buckets",
            )
        if not (np.isfinite(found).all() and math.isfinite(total)):
            raise _unusable(
                key, "NaN", "is no count", fix="Choose another window, or look at the series in Prometheus itself"
            )
        if found[-1] <= 0 or total <= 0:
            raise _unusable(key, "", "counted no request in this time", fix="Choose a window with traffic in it")
        rising = np.maximum.accumulate(found)
        if float(np.max(rising - found)) > DISAGREE * float(found[-1]) or found[0] < 0:
            raise _unusable(key, "", "counts fewer requests up to a longer duration", fix=_PARTIAL)
        self._low: Numbers = np.concatenate([[0.0], edges[:-1]])
        self._high: Numbers = edges
        counts = np.diff(rising, prepend=0.0)
        self._counts: Numbers = np.where(counts < NOBODY * float(rising[-1]), 0.0, counts)
        self._total = total
        filled = self._counts > 0
        least = float(np.sum(self._counts * self._low))
        most = float(np.sum(self._counts[filled] * self._high[filled]))
        if not least * (1 - DISAGREE) <= total <= most * (1 + DISAGREE):
            raise _unusable(
                key,
                f"a sum of {total:.6g} s",
                f"lies outside of what its buckets allow ({least:.6g} to {most:.6g} s)",
                fix=_PARTIAL,
            )
        # Seconds above the lower edges, which the sum says are there, and buckets do not say where.
        self._slack = max(total - least, 0.0)

    @property
    def count(self) -> float:
        """As `Measured.count`."""
        return float(self._counts.sum())

    @property
    def total(self) -> float:
        """As `Measured.total`."""
        return self._total

    @property
    def longest(self) -> Interval:
        """As `Measured.longest`."""
        return self.quantile(1.0)

    @property
    def edges(self) -> tuple[float, ...]:
        """The upper edges that are numbers, in seconds."""
        return tuple(float(edge) for edge in self._high[:-1])

    def quantile(self, share: float) -> Interval:
        """As `Measured.quantile`."""
        reached: Numbers = np.cumsum(self._counts)
        at = int(np.searchsorted(reached, min(share, 1.0) * float(reached[-1]) * (1 - _ROUNDING)))
        return Interval(low=float(self._low[at]), high=float(self._high[at]))

    def cut(self, seconds: float) -> Interval:
        """As `Measured.cut`: the least and the most over all durations that fit buckets and sum.

        Start every request at its bucket's lower edge; what the sum has beyond that, the slack, is then put where it
        counts most, or least: beyond N every second counts, in the bucket around N a part of it, below N none.
        """
        above = self._low >= seconds
        around = (self._low < seconds) & (self._high > seconds)
        below = ~above & ~around
        room = self._room()
        cut = float(np.sum(self._counts[above] * (self._low[above] - seconds)))
        beyond = min(self._slack, float(np.sum(room[above])))
        most = cut + beyond + self._most_around(int(np.argmax(around)), seconds, beyond) * bool(around.any())
        unseen = float(np.sum(room[below])) + float(np.sum(self._counts[around] * (seconds - self._low[around])))
        least = cut + max(self._slack - unseen, 0.0)
        return Interval(low=_share(min(least, most), self._total), high=_share(most, self._total))

    def _most_around(self, at: int, seconds: float, used: float) -> float:
        """Seconds beyond N that the bucket around N holds at most, of the slack that is left."""
        count, low, high = (float(row[at]) for row in (self._counts, self._low, self._high))
        left = self._slack - used
        if count <= 0:
            return 0.0
        if math.isinf(high):
            # All of it in one request, the others at the edge.
            return max(left - min(count, 1.0) * (seconds - low), 0.0)
        # Each request at one of the two edges.
        return min(left, count * (high - low)) * (high - seconds) / (high - low)

    def _room(self) -> Numbers:
        """Seconds that each bucket's requests may take above its lower edge."""
        filled = self._counts > 0
        room = np.zeros_like(self._counts)
        room[filled] = self._counts[filled] * (self._high[filled] - self._low[filled])
        return room


class Clamp(StrEnum):
    """Which limit decided, and not the cut."""

    LEAST = "least"
    MOST = "most"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """N and how it came about, in seconds.

    Attributes:
        seconds: N.
        cut: at N.
        wanted: the smallest multiple of the step that keeps to the cut, before the limits; None if none is known to.
        wanted_low: the same if buckets are read as kindly as they allow. With durations one by one equal to `wanted`.
        clamp: the limit that decided; None if the cut did.
        step, most_cut: what was asked for.
    """

    seconds: int
    cut: Interval
    wanted: int | None
    wanted_low: int | None
    clamp: Clamp | None
    step: int
    most_cut: float


def choose(
    measured: Measured, *, step: int = STEP, least: int = LEAST, most: int = MOST, most_cut: float = MOST_CUT
) -> Choice:
    """The smallest multiple of a step with at most a cut, held between two limits.

    Raises:
        ValueError: a step that is not positive, limits the wrong way round, or a cut that is no share.
    """
    if step < 1 or not 0 <= least <= most or not 0 <= most_cut < 1:
        raise ValueError("a positive step, limits in order and a share are needed")
    wanted = _smallest(measured, step, lambda cut: cut.high <= most_cut + _ROUNDING)
    kindly = _smallest(measured, step, lambda cut: cut.low <= most_cut + _ROUNDING)
    seconds = most if wanted is None else min(max(wanted, least), most)
    clamp = Clamp.MOST if wanted is None or wanted > most else Clamp.LEAST if wanted < least else None
    return Choice(
        seconds=seconds,
        cut=measured.cut(seconds),
        wanted=wanted,
        wanted_low=kindly,
        clamp=clamp,
        step=step,
        most_cut=most_cut,
    )


def _smallest(measured: Measured, step: int, is_enough: Callable[[Interval], bool]) -> int | None:
    """The smallest multiple of the step that is enough, found by halving: cut never rises."""
    longest = measured.longest
    low, high = 0, math.ceil((longest.low if math.isinf(longest.high) else longest.high) / step)
    if not is_enough(measured.cut(high * step)):
        return None  # the last bucket has no end
    while low < high:
        middle = (low + high) // 2
        if is_enough(measured.cut(middle * step)):
            high = middle
        else:
            low = middle + 1
    return low * step


_PARTIAL = "Some Pods or buckets are scraped in part: choose a window in which none was, or name fewer Pods"


def _exactly(value: float) -> Interval:
    return Interval(low=value, high=value)


def _share(part: float, whole: float) -> float:
    return min(max(part / whole, 0.0), 1.0)


def _unusable(key: str, value: str, why: str, *, fix: str) -> UnusableError:
    return UnusableError(Problem(key=key, value=value, why=why, fix=fix))
