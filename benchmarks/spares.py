"""How long a verdict on spare devices takes on large clusters, once they have been read.

Aimed at: under 1 s for 1,000 nodes, 8,000 devices and 2,000 claims, and linear up to four times that. Half of the
devices are held; each node has its own amount of free CPU, every device its own identity, as in real clusters.

Run with `python -m benchmarks.spares [--json]`.
"""

from __future__ import annotations

import gc
import sys
import time
from typing import Any

from benchmarks.stage import command, machine, print_results
from stack.spares.demand import read_demand
from stack.spares.fit import judge
from stack.spares.supply import read_supply
from tests import devices as make

Object = dict[str, Any]
NODES, PER_NUMA_NODE, CLAIMS_PER_NODE = 1_000, 4, 2
DRIVER = "npu.example"


def cluster(nodes: int) -> dict[str, Any]:
    """The lists that an API server would give back."""
    found: dict[str, Any] = {"nodes": [], "pods": [], "slices": [], "claims": []}
    for n in range(nodes):
        name = f"node-{n}"
        held: list[Object] = [
            make.device(
                f"npu-{i}", numa=i // PER_NUMA_NODE, uuid=f"{name}-{i}", model="CA25", capacity={"memory": "144Gi"}
            )
            for i in range(2 * PER_NUMA_NODE)
        ]
        found["nodes"].append(make.node(name, cpu="96"))
        found["slices"].append(make.resource_slice(DRIVER, held, on=name))
        for c in range(CLAIMS_PER_NODE):
            user = f"pod-{n}-{c}"
            taken = [(DRIVER, name, f"npu-{PER_NUMA_NODE * (n % 2) + 2 * c + i}") for i in range(2)]
            found["claims"].append(make.claim(f"claim-{n}-{c}", taken, user))
            found["pods"].append(make.pod(user, on=name, cpu=str(1 + n % 17)))
    expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].model == "CA25"'
    return found | {"classes": {"npu": make.device_class("npu", expression)}}


def measure(factor: int) -> dict[str, Any]:
    """One row: a small change (a surge Pod of each role) and a large one (as many Pods as there are nodes).

    The processor's time is less changed by others who use the machine.
    """
    lists = cluster(NODES * factor)
    claim = make.claim_spec(make.request("npu", "npu", 4), together=make.NUMA)
    template = make.pod_template("t", cpu="16")
    roles = [read_demand(role, template, {"t": claim}) for role in ("prefill", "decode")]
    gc.collect()
    gc.freeze()  # as the program does with what it has read
    started, processor = time.perf_counter(), time.thread_time()
    supply = read_supply(**lists)
    read = time.perf_counter()
    small = judge(supply, [(role, 1) for role in roles])
    judged, processor = time.perf_counter(), time.thread_time() - processor
    large = judge(supply, [(roles[0], NODES * factor + 1)])
    ended = time.perf_counter()
    return {
        "nodes": len(lists["nodes"]),
        "devices": sum(len(held["spec"]["devices"]) for held in lists["slices"]),
        "claims": len(lists["claims"]),
        "take stock s": read - started,
        "two surge Pods s": judged - read,
        "is": small.outcome.value,
        "a Pod too many s": ended - judged,
        "it": large.outcome.value,
        "first verdict s": judged - started,
        "of it CPU s": processor,
    }


def main() -> None:
    """Measure and print."""
    rows = [measure(factor) for factor in (1, 2, 4)]
    title = "Spare devices: seconds after the reads (aimed at: first verdict under 1 s for 1,000 nodes, then linear)"
    print_results(rows, title=title, ran=command("benchmarks.spares"), on=machine(), as_json="--json" in sys.argv[1:])


if __name__ == "__main__":
    main()
