"""What an autoscaler should be told of a role: the fewest Pods, and the occupancy at which it adds one.

The fewest Pods come from how long requests would wait, not from the longest queue there ever was (*Rollouts and
scaling*, Autoscaling): what was asked for is played again through a scaler with its target, its pace and its cold
starts, and a floor is taken with which at most a given share of the requests' time passes in a queue, and with one Pod
less more than that. The occupancy comes from where a real backlog begins: occupancy as the scaler sees it, over all
Pods, by the depth of the queue at that time.

The replay is a replay: what would have waited longer does not ask again, and Pods that leave take nothing with them.
Where the numbers come from is not decided here. Needs numpy (extra `advice`).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from stack.errors import Problem, UnusableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stack.durations import Numbers

DAY = 86_400.0
WEEK = 7 * DAY
MOST_WAIT = 0.01
OCCUPANCY = 0.6
"""Share of the slots, *Rollouts and scaling*: above it too little is left for the time of a cold start."""
FITS = 0.3
"""Where requests wait at less than this, slots are not what they wait for."""
ROUNDED_TO = 0.05
TOLERANCE = 0.1
"""Of the HorizontalPodAutoscaler: a smaller difference moves nothing."""
ENOUGH = 20
"""Times with a backlog from which something is concluded."""
DEPTHS: tuple[float, ...] = (0, 1, 2, 4, 8, 16)
"""Waiting requests a Pod: each up to this, and beyond the last."""


@dataclass(frozen=True, kw_only=True)
class History:
    """What a role was asked for, at times a step apart; times without data are left out.

    Attributes:
        step: seconds from one to the next.
        times: seconds since 1970.
        running, waiting: requests of all Pods.
        pods: Pods that said so.
    """

    step: float
    times: Numbers
    running: Numbers
    waiting: Numbers
    pods: Numbers

    @property
    def days(self) -> float:
        """From the first time to the last."""
        return float(self.times[-1] - self.times[0] + self.step) / DAY

    @property
    def covered(self) -> float:
        """Share of that of which there is data."""
        return min(self.times.size * self.step / (self.days * DAY), 1.0)


def history(
    times: Sequence[float] | Numbers,
    pods: Sequence[str],
    running: Sequence[float] | Numbers,
    waiting: Sequence[float] | Numbers,
    *,
    step: float,
    key: str,
) -> History:
    """Put samples of single Pods together, step by step; of several samples of a Pod in a step the mean counts.

    Raises:
        UnusableError: there are none, or a number is negative or none.
    """
    at = np.asarray(times, dtype=np.float64)
    values = np.stack([np.asarray(running, dtype=np.float64), np.asarray(waiting, dtype=np.float64)])
    if not at.size:
        raise UnusableError(Problem(key=key, value="", why="holds no samples", fix="Choose another window"))
    if not (np.isfinite(values).all() and np.isfinite(at).all() and (values >= 0).all()):
        why = "holds a time, or running or waiting requests, that are negative or no number"
        raise UnusableError(Problem(key=key, value="", why=why, fix="Leave such samples out"))
    slot = np.floor(at / step).astype(np.int64)
    _, pod = np.unique(np.asarray(pods), return_inverse=True)
    pairs, where, counts = np.unique(np.stack([slot, pod]), axis=1, return_inverse=True, return_counts=True)
    of_pod = np.stack([np.bincount(where.ravel(), weights=row) / counts for row in values])
    slots, first, seen = np.unique(pairs[0], return_index=True, return_counts=True)
    summed = np.add.reduceat(of_pod, first, axis=1)
    return History(
        step=step,
        times=slots.astype(np.float64) * step,
        running=summed[0],
        waiting=summed[1],
        pods=seen.astype(np.float64),
    )


# --- occupancy --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Depth:
    """Occupancy at the times when so many requests waited.

    Attributes:
        above, up_to: waiting requests a Pod; infinity where there is no end.
        times: how often that was.
        low, middle, high: share of the slots that were taken: in all but a tenth of these times at least, in half of
            them, in all but a tenth at most. None if it never was.
    """

    above: float
    up_to: float
    times: int
    low: float | None
    middle: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Target:
    """The occupancy to scale at.

    Attributes:
        occupancy: share of the slots.
        begins: occupancy at which a real backlog begins; None if there was none, or too little of it.
        backlog: waiting requests a Pod from which it is a real one.
        fits: False where requests wait though slots are free, so that no occupancy tells when.
        because: why, in a sentence.
    """

    occupancy: float
    begins: float | None
    backlog: float
    fits: bool
    because: str


def depths(past: History, slots: int) -> tuple[Depth, ...]:
    """Occupancy by depth of the queue."""
    occupancy, depth = past.running / (past.pods * slots), past.waiting / past.pods
    bounds = [-math.inf, *DEPTHS, math.inf]
    found: list[Depth] = []
    for above, up_to in pairwise(bounds):
        there = occupancy[(depth > above) & (depth <= up_to)]
        low, middle, high = (float(np.quantile(there, q)) for q in (0.1, 0.5, 0.9)) if there.size else (None,) * 3
        found.append(
            Depth(above=max(above, 0.0), up_to=up_to, times=int(there.size), low=low, middle=middle, high=high)
        )
    return tuple(found)


def backlog_by_occupancy(past: History, slots: int) -> tuple[tuple[float, float], ...]:
    """Waiting requests a Pod on average, at each occupancy that there was: (middle of a twentieth, requests)."""
    twentieth = np.minimum((past.running / (past.pods * slots) / ROUNDED_TO).astype(np.int64), 40)
    depth = past.waiting / past.pods
    return tuple(
        (round((int(at) + 0.5) * ROUNDED_TO, 4), float(depth[twentieth == at].mean())) for at in np.unique(twentieth)
    )


def choose_target(past: History, slots: int, *, usual: float = OCCUPANCY) -> Target:
    """The usual occupancy, or less where a real backlog begins before it."""
    backlog = max(2.0, math.ceil(slots / 10))
    there = (past.running / (past.pods * slots))[past.waiting / past.pods >= backlog]
    if there.size < ENOUGH:
        said = "no real backlog was seen" if not there.size else f"a real backlog was seen {there.size} times only"
        return Target(
            occupancy=usual, begins=None, backlog=backlog, fits=True, because=f"{said}, so the usual one stays"
        )
    begins = float(np.quantile(there, 0.1))
    if begins >= usual:
        because = f"a real backlog begins at {begins:.2f}, and the time of a cold start has to be bridged from before"
        return Target(occupancy=usual, begins=begins, backlog=backlog, fits=True, because=because)
    occupancy = max(math.floor(begins / ROUNDED_TO + 1e-9) * ROUNDED_TO, ROUNDED_TO)
    fits = begins >= FITS
    because = f"a real backlog begins at {begins:.2f} already" + (
        "" if fits else ": what requests wait for is not a slot (long prefills, or memory of the KV cache)"
    )
    return Target(occupancy=round(occupancy, 2), begins=begins, backlog=backlog, fits=fits, because=because)


# --- floor ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How a scaler moves.

    Attributes:
        slots: requests that a Pod runs at once.
        occupancy: share of the slots that it aims at.
        start: seconds from the decision for a Pod until it serves.
        up, down: seconds between two Pods more, and between two Pods less.
        window: seconds of which the highest recommendation counts before there is a Pod less.
    """

    slots: int
    occupancy: float
    start: float
    up: float = 180.0
    down: float = 300.0
    window: float = 300.0


@dataclass(frozen=True, kw_only=True)
class Replay:
    """How it would have gone with a floor.

    Attributes:
        floor: the fewest Pods.
        most: the most Pods there were. mean: Pods on average, those that start among them.
        wait: share of the time of all requests that they spent in a queue.
        queued: seconds in which there was a queue. longest: the longest of these in one go.
    """

    floor: int
    most: int
    mean: float
    wait: float
    queued: float
    longest: float


def replay(past: History, floor: int, pace: Pace) -> Replay:
    """Play what was asked for through a scaler that has the Pods it wants at the beginning."""
    demand = past.running + past.waiting
    starting: deque[float] = deque()
    recommended: deque[tuple[float, int]] = deque()  # falling, so that the first is the highest of the window
    ready = most = max(math.ceil(float(demand[0]) / (pace.slots * pace.occupancy) - 1e-9), floor)
    waited, queued, longest, in_one_go, pods = 0.0, 0.0, 0.0, 0.0, 0.0
    last_up, last_down = -math.inf, -math.inf
    for now, asked in zip(past.times.tolist(), demand.tolist(), strict=True):
        while starting and starting[0] <= now:
            starting.popleft()
            ready += 1
        waits = max(asked - ready * pace.slots, 0.0)
        waited += waits
        in_one_go = in_one_go + past.step if waits else 0.0
        queued, longest = queued + (past.step if waits else 0.0), max(longest, in_one_go)
        total = ready + len(starting)
        pods += total
        wanted = max(_wanted(asked - waits, ready, pace), floor)
        while recommended and recommended[-1][1] <= wanted:
            recommended.pop()
        recommended.append((now, wanted))
        while recommended[0][0] < now - pace.window:
            recommended.popleft()
        held = recommended[0][1]
        if wanted > total:
            more = min(wanted - total, _allowed(now - last_up, past.step, pace.up))
            starting.extend([now + pace.start] * more)
            last_up = now if more else last_up
        elif held < total:
            fewer = min(total - held, _allowed(now - last_down, past.step, pace.down))
            last_down = now if fewer else last_down
            for _ in range(fewer):
                if starting:
                    starting.pop()
                else:
                    ready -= 1
        most = max(most, ready + len(starting))
    time = float(demand.sum())
    return Replay(
        floor=floor,
        most=most,
        mean=pods / past.times.size,
        wait=waited / time if time else 0.0,
        queued=queued,
        longest=longest,
    )


def _wanted(running: float, ready: int, pace: Pace) -> int:
    """Pods by the rule of the HorizontalPodAutoscaler, over those that serve."""
    aim = pace.slots * pace.occupancy
    if ready and abs(running / (ready * aim) - 1) <= TOLERANCE:
        return ready
    return math.ceil(running / aim - 1e-9)


def _allowed(since: float, step: float, each: float) -> int:
    """Pods that may come or go now; several where steps are longer than the pace."""
    return 0 if since < each else max(int(min(since, step) // each), 1)


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The fewest Pods, and what speaks for it.

    Attributes:
        chosen: the replay with it.
        below: with one Pod less; None if it is 1.
        by_peak: Pods that the longest queue alone would have asked for.
        most_wait: the share that was allowed.
    """

    chosen: Replay
    below: Replay | None
    by_peak: int
    most_wait: float


def choose_floor(past: History, pace: Pace, *, most_wait: float = MOST_WAIT, least: int = 1) -> Floor:
    """A floor with which requests spend at most a share of their time in a queue, and with one Pod less more than that.

    Found by halving. With more Pods less waits, but for small exceptions: fuller Pods ask for others sooner.
    """
    by_peak = max(math.ceil(float((past.running + past.waiting).max()) / pace.slots), least)
    low, high = least, by_peak
    while low < high:
        middle = (low + high) // 2
        if replay(past, middle, pace).wait <= most_wait:
            high = middle
        else:
            low = middle + 1
    below = replay(past, low - 1, pace) if low > 1 else None
    return Floor(chosen=replay(past, low, pace), below=below, by_peak=by_peak, most_wait=most_wait)
