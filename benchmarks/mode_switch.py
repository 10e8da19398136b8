"""How long a mode switch leaves the stack without any new Pod, against the longest drain of a single old one.

The full reference: four nodes, one prefill and one decode Pod on each, no device to spare. Prefill Pods need 15 s to
leave, decode Pods 9 s. `replicas` is switched to `nodePlacement` and back; every old Pod must be gone before the first
new one is made, so the drains have to run side by side and nothing else may take long: at most 1.1 times the longest.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.stage import command, machine, print_results, project_on
from local.waiting import wait_until
from tests.builders import ROOT

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from local.api import Object
    from tests.e2e.bench import Bench

NODES = 4
DRAIN_SECONDS = {"prefill": 15, "decode": 9}
TARGET = 1.1
WATCH_SECONDS = 3600
QUIET_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Sight:
    """A Pod when something was first seen of it, by our clock."""

    at: float
    pod: Object


@dataclass
class Watch:
    """What a watch on the role Pods showed.

    Attributes:
        begun: the Pods that were there at first, by UID.
        made, leaving, gone: the first sight of each, by UID.
    """

    begun: set[str]
    made: dict[str, Sight] = field(default_factory=dict[str, Sight])
    leaving: dict[str, Sight] = field(default_factory=dict[str, Sight])
    gone: dict[str, Sight] = field(default_factory=dict[str, Sight])

    def see(self, event: str, pod: Object) -> None:
        """Take in one event."""
        uid, sight = pod["metadata"]["uid"], Sight(at=time.monotonic(), pod=pod)
        self.made.setdefault(uid, sight)
        if "deletionTimestamp" in pod["metadata"]:
            self.leaving.setdefault(uid, sight)
        if event == "DELETED":
            self.gone.setdefault(uid, sight)

    def is_over(self) -> bool:
        """Whether every old Pod was seen gone and as many new ones made."""
        return self.begun <= self.gone.keys() and len(self.made) >= 2 * len(self.begun)


@contextmanager
def watching(bench: Bench) -> Generator[Watch]:
    """Watch the role Pods from before the block until the switch in it has been seen to its end."""
    pods = f"/api/v1/namespaces/{bench.namespace}/pods"
    seen = Watch(begun={pod["metadata"]["uid"] for pod in bench.pods()})
    begun = threading.Event()

    def watch() -> None:
        for event, pod in bench.plane.api.watch(pods, timeout=WATCH_SECONDS, labelSelector="llm-d.ai/role"):
            seen.see(event, pod)
            if seen.begun <= seen.made.keys():
                begun.set()
            if seen.is_over():
                return

    threading.Thread(target=watch, daemon=True).start()
    if not begun.wait(QUIET_SECONDS):
        raise TimeoutError("the watch on Pods does not begin")
    yield seen
    wait_until(seen.is_over, timeout=QUIET_SECONDS, what="the watch to have seen the switch to its end")


def measure(switch: str, seen: Watch, up_seconds: float) -> dict[str, Any]:
    """The row of one switch."""
    new = [sight for uid, sight in seen.made.items() if uid not in seen.begun]
    leaving = [seen.leaving[uid] for uid in seen.begun]
    drains = [seen.gone[uid].at - seen.leaving[uid].at for uid in seen.begun]
    outage = min(sight.at for sight in new) - min(sight.at for sight in leaving)
    by_api = min(_created(sight.pod) for sight in new) - min(_told_to_go(sight.pod) for sight in leaving)
    return {
        "switch": switch,
        "Pods": len(seen.begun),
        "shortest drain s": min(drains),
        "longest drain s": max(drains),
        "without Pods s": outage,
        "by the API's clock s": int(by_api.total_seconds()),
        "ratio": outage / max(drains),
        "up s": up_seconds,
    }


def _created(pod: Object) -> datetime:
    return _time(pod["metadata"]["creationTimestamp"])


def _told_to_go(pod: Object) -> datetime:
    """The API writes down when a Pod has to be gone: its grace period later."""
    grace = timedelta(seconds=pod["metadata"]["deletionGracePeriodSeconds"])
    return _time(pod["metadata"]["deletionTimestamp"]) - grace


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def modes() -> Mapping[str, dict[str, Any]]:
    """Block `modelserver` in either mode, with the same Pods."""
    roles = list(DRAIN_SECONDS)
    return {
        "nodePlacement": {
            "replicas": dict.fromkeys(roles, 0),
            "nodePlacement": [{"role": role, "node": f"npu-{index}"} for index in range(NODES) for role in roles],
        },
        "replicas": {"replicas": dict.fromkeys(roles, NODES), "nodePlacement": []},
    }


def install(bench: Bench) -> None:
    """The reference, with what its Pods need to leave."""
    bench.write_file(ROOT / "Pulumi.prod.yaml")
    drains = {
        role: {"annotations": {"local.serving-stack.dev/drain-delay": f"{seconds}s"}}
        for role, seconds in DRAIN_SECONDS.items()
    }
    bench.change(
        modelserver={"podOverrides": drains, **modes()["replicas"]},
        storage={"compileCache": {"storageClass": "kwok-volume"}},
    )
    bench.add_what_an_operator_has()
    bench.up()


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often to switch there and back.")] = 1,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure a mode switch against the longest drain."""
    on, rows = machine(), list[dict[str, Any]]()
    with project_on("reference") as bench:
        install(bench)
        for _ in range(rounds):
            for mode, block in modes().items():
                bench.change(modelserver=block)
                with watching(bench) as seen:
                    begun = time.monotonic()
                    bench.up()
                    took = time.monotonic() - begun
                rows.append(measure(f"to {mode}", seen, took))
        bench.destroy()
    print_results(
        rows,
        title=f"Mode switch: time without any new Pod, aimed at {TARGET} times the longest drain at most",
        ran=command("benchmarks.mode_switch"),
        on=on,
        as_json=as_json,
    )


if __name__ == "__main__":
    typer.run(main)
