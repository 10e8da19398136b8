"""Reads what a role's Pods ran, and what waited, over time: from a file, or from Prometheus. Needs numpy.

A file is CSV with a line of names, or lines of JSON, and says `time` (ISO 8601, or seconds since 1970), `pod`,
`running` and `waiting`: the two gauges of vLLM at one time.
"""

from __future__ import annotations

import csv
import json
import math
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median
from typing import IO, TYPE_CHECKING, Any, Final, cast

from cli.prometheus import NOT_SCRAPED, Prometheus, numbers
from cli.samples import blocks
from stack.advice import History, history
from stack.durations import Buckets, Interval
from stack.errors import EMPTY, MISSING, Problem, UnusableError, show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

RUNNING: Final = "vllm:num_requests_running"
WAITING: Final = "vllm:num_requests_waiting"
QUEUE: Final = "vllm:request_queue_time_seconds"
"""Gauges and histogram of vLLM (`vllm/v1/metrics/loggers.py`); the time in a queue is that before the first step."""
NAMES: Final = ("time", "pod", "running", "waiting")
STEP: Final = 60
"""Seconds between two looks, where nothing says it."""
LATEST: Final = 32_503_680_000
"""Seconds since 1970: the year 3000. What is beyond is in milliseconds."""
LONG_WAIT: Final = 5.0
"""Seconds in a queue that somebody notices; an edge of vLLM's buckets."""


@dataclass(frozen=True, kw_only=True)
class QueueTimes:
    """How long requests were in a queue, in seconds, and the share of them that waited longer than `LONG_WAIT`."""

    half: Interval
    most: Interval
    long: float


def load_of_file(stream: IO[bytes], name: str, *, step: float | None) -> History:
    """The history in a file; without a step that in which the file itself looks.

    Raises:
        UnusableError: it cannot be read, or a line does not say what it should.
    """
    rows: list[tuple[float, str, float, float]] = []
    for number, row in _rows(stream, name):
        at = f"{name}, line {number}"
        missing = [key for key in NAMES if row.get(key) is None or row.get(key) == ""]
        if missing:
            fix = f"Write the columns {', '.join(NAMES)}"
            raise _refuse(f"{at}, {missing[0]}", MISSING, "is needed of every sample", fix=fix)
        running, waiting = (_number(row[key], f"{at}, {key}") for key in ("running", "waiting"))
        rows.append((_time(row["time"], f"{at}, time"), str(row["pod"]), running, waiting))
    if not rows:
        raise _refuse(name, EMPTY, "there is nothing to learn from", fix=f"Give lines with {', '.join(NAMES)}")
    times, pods, running, waiting = zip(*rows, strict=True)
    return history(times, pods, running, waiting, step=step or _step(times, pods), key=name)


def _step(times: Sequence[float], pods: Sequence[str]) -> float:
    """Seconds between two looks at the Pod that was looked at most."""
    [(most, _)] = Counter(pods).most_common(1)
    at = sorted({time for time, pod in zip(times, pods, strict=True) if pod == most})
    return median([later - earlier for earlier, later in pairwise(at)]) if len(at) > 1 else STEP


def _rows(stream: IO[bytes], name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Each line's values by name, with its number."""
    names: list[str] | None = None
    number = 0
    for block in blocks(stream, name):
        try:
            lines = block.decode("utf-8").split("\n")[:-1]  # whole lines
        except UnicodeDecodeError:
            raise _refuse(name, "", "is no text in UTF-8", fix="Save it in UTF-8") from None
        for line in lines:
            number += 1
            if not line.strip():
                continue
            if names is None and line.lstrip().startswith("{"):
                yield number, _json(line, f"{name}, line {number}")
                continue
            try:
                cells = [cell.strip() for cell in next(csv.reader([line]))]
            except csv.Error as error:
                fix = f"Write {', '.join(NAMES)} in each line"
                raise _refuse(
                    f"{name}, line {number}", show(line), f"is no line of a table ({error})", fix=fix
                ) from None
            if names is None:
                names = cells
                if lacking := [key for key in NAMES if key not in names]:
                    why = f"has no column {' and none '.join(lacking)} in its first line"
                    raise _refuse(name, show(line), why, fix=f"Write a first line with {','.join(NAMES)}")
            else:
                yield number, dict(zip(names, cells, strict=False))


def _json(line: str, key: str) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _refuse(key, show(line), "is no map in JSON", fix=f"Write a map with {', '.join(NAMES)} a line")
    return cast("dict[str, Any]", value)


def _number(value: object, key: str) -> float:
    number = _float(value)
    if number is None or number < 0:
        raise _refuse(key, show(value), "is no number of requests", fix="Correct the line or leave it out")
    return number


def _time(value: object, key: str) -> float:
    seconds = _float(value)
    if seconds is None and isinstance(value, str):
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(value)
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if seconds is None or not 0 <= seconds < LATEST:
        raise _refuse(key, show(value), "is no time", fix="Write ISO 8601, or seconds since 1970")
    return seconds


def _float(value: object) -> float | None:
    """A number that is written as one, or as text; None if it is none, or has no end."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def load_of_prometheus(asked: Prometheus, labels: str, *, role: str, window: int, step: int) -> History:
    """The history of a role's Pods up to now.

    Raises:
        UnusableError: no answer, or no series.
    """
    end = math.floor(time.time() / step) * step
    found: dict[str, dict[tuple[str, float], float]] = {RUNNING: {}, WAITING: {}}
    for metric, values in found.items():
        query = f"sum by (pod) ({metric}{{{labels}}})"
        for series in asked.range(query, start=end - window, end=end, step=step):
            pod = series.labels.get("pod", "")
            values.update(((pod, at), value) for at, value in numbers(series).items())
    both = sorted(found[RUNNING].keys() & found[WAITING].keys(), key=lambda each: (each[1], each[0]))
    if not both:
        lacks = [metric for metric, values in found.items() if not values] or [f"{RUNNING} and {WAITING} at one time"]
        raise UnusableError(
            Problem(
                key="--prometheus",
                value=asked.address,
                why=f"has no {' and no '.join(lacks)} of {role} Pods in this window ({{{labels}}})",
                fix=NOT_SCRAPED,
            )
        )
    return history(
        [at for _, at in both],
        [pod for pod, _ in both],
        [found[RUNNING][each] for each in both],
        [found[WAITING][each] for each in both],
        step=step,
        key=f"{RUNNING} of {role} Pods",
    )


def queue_times(asked: Prometheus, labels: str, *, window: int) -> QueueTimes | None:
    """How long requests were queued; None where there is no such histogram, or nothing in it.

    Raises:
        UnusableError: no answer, or a histogram that contradicts itself.
    """
    cumulative = asked.buckets(f"sum by (le) (increase({QUEUE}_bucket{{{labels}}}[{window}s]))")
    sums = asked.instant(f"sum(increase({QUEUE}_sum{{{labels}}}[{window}s]))")
    count = cumulative.get(math.inf, 0.0)
    if not sums or not count > 0:
        return None
    total = sums[0].values[0]
    if total <= 0:
        nothing = Interval(low=0.0, high=0.0)
        return QueueTimes(half=nothing, most=nothing, long=0.0)
    measured = Buckets(cumulative, total, key=QUEUE)
    edge = min((edge for edge in cumulative if edge >= LONG_WAIT), default=math.inf)
    return QueueTimes(
        half=measured.quantile(0.5), most=measured.quantile(0.99), long=max(1 - cumulative[edge] / count, 0.0)
    )


def _refuse(key: str, value: str, why: str, *, fix: str) -> UnusableError:
    return UnusableError(Problem(key=key, value=value, why=why, fix=fix))
