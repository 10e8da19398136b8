"""How long `serving-stack drain-budget` takes for a million durations, from the bytes of the file to N.

Aimed at: at most a second for reading and choosing, of a table or of short lines of JSON. Lines of an access log are
some three hundred bytes long each, and are measured to be known. Starting Python and drawing the plot are not in it.

Run with `python -m benchmarks.drain_budget [--json]`.
"""

from __future__ import annotations

import io
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.stage import command, machine, print_results
from cli.samples import read_sample
from stack.durations import Durations, choose

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 1_000_000
ENVOY = (
    '[2026-11-30T08:15:00.123Z] "POST /v1/chat/completions HTTP/1.1" 200 - via_upstream - "-" 154 2048 {ms} 100 '
    '"10.0.35.28" "OpenAI/Python 2.8.0" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "models.example" "10.0.2.1:8000" '
    "outbound|8000||rel.ns.svc.cluster.local 10.0.0.9:41210 10.0.0.9:80 10.0.35.28:52144 - default"
)
FIELDS = {
    "authority": "models.example",
    "bytes_received": 154,
    "bytes_sent": 2048,
    "method": "POST",
    "path": "/v1/chat/completions",
    "request_id": "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2",
    "response_code": 200,
    "response_flags": "-",
    "start_time": "2026-11-30T08:15:00.123Z",
    "upstream_host": "10.0.2.1:8000",
    "user_agent": "OpenAI/Python 2.8.0",
}
LAYOUTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "CSV, one column": ("duration", lambda d: f"{d:.3f}"),
    "CSV, four columns": ("time,model,duration,status", lambda d: f"2026-11-30T08:15:00Z,m,{d:.3f},200"),
    "JSON lines": ("", lambda d: f'{{"duration": {d:.3f}}}'),
    "access log, text": ("", lambda d: ENVOY.format(ms=round(d * 1000))),
    "access log, JSON": ("", lambda d: json.dumps(FIELDS | {"duration": round(d * 1000)})),
}


def measure(layout: str, drawn: list[float]) -> dict[str, Any]:
    """One row: the same durations, written in a layout; the best of three, since others use the machine too."""
    head, write = LAYOUTS[layout]
    data = "\n".join([*([head] if head else []), *map(write, drawn)]).encode()
    read: list[float] = []
    chosen: list[float] = []
    processor: list[float] = []
    seconds = 0
    for _ in range(3):
        started, cpu = time.perf_counter(), time.process_time()
        sample = read_sample(io.BytesIO(data), "benchmark")
        halfway = time.perf_counter()
        seconds = choose(Durations(sample.seconds)).seconds
        chosen.append(time.perf_counter() - halfway)
        read.append(halfway - started)
        processor.append(time.process_time() - cpu)
    return {
        "layout": layout,
        "MiB": len(data) / 2**20,
        "read s": min(read),
        "choose s": min(chosen),
        "together s": min(a + b for a, b in zip(read, chosen, strict=True)),
        "processor s": min(processor),
        "N": seconds,
    }


def main() -> None:
    """Measure and print."""
    drawn = np.random.default_rng(1).lognormal(3, 1, COUNT).tolist()
    rows = [measure(layout, drawn) for layout in LAYOUTS]
    title = f"N from {COUNT:,} durations (aimed at: together at most 1 s for a table or short lines of JSON)"
    print_results(
        rows, title=title, ran=command("benchmarks.drain_budget"), on=machine(), as_json="--json" in sys.argv[1:]
    )


if __name__ == "__main__":
    main()
