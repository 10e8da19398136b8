"""Strategy `auto` on a live stack: what it chooses with and without spare devices, and what is then seen of Pods."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from local.waiting import wait_until
from tests.builders import ROOT, merged
from tests.e2e.bench import is_ready, without_traceback
from tests.e2e.prediction import as_foreseen
from tests.e2e.test_failing_roll_out import WHOLE_NUMA_NODES, stranger
from tests.e2e.test_guards import is_gone, untouched, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]

SURGE, IN_TURN = (1, 0), (0, 1)


@pytest.fixture(scope="module")
def live(module_bench_of: Callable[[str], Bench]) -> Bench:
    """Stack dev with three Pods, each on a NUMA node of its own, of which there are four."""
    bench = module_bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(
        modelserver={"replicas": {"prefill": 1, "decode": 2}, "strategy": {"type": "auto"}},
        devices={"claimTemplate": WHOLE_NUMA_NODES},
    )
    bench.up()
    return bench


def strategies(bench: Bench) -> dict[str, tuple[int, int]]:
    """maxSurge and maxUnavailable of each role."""
    found: dict[str, tuple[int, int]] = {}
    for role in ("prefill", "decode"):
        numbers = bench.plane.api.get(f"{bench.path('apps/v1/deployments')}/rel-{role}")["spec"]["strategy"][
            "rollingUpdate"
        ]
        found[role] = numbers["maxSurge"], numbers["maxUnavailable"]
    return found


def restart(*roles: str, value: str) -> dict[str, Any]:
    """Another environment of these roles."""
    return {"modelserver": {"extraServeEnv": {role: {"ROUND": value} for role in roles}}}


def roll(bench: Bench, change: dict[str, Any]) -> tuple[dict[str, int], str]:
    """Make a change: fewest Ready Pods of each role meanwhile, and what was said. Then nothing is left to change.

    It comes as it was foreseen.
    """
    bench.change(**change)
    with as_foreseen(bench) as seen:
        said = bench.up()
    assert all(is_ready(pod) for pod in bench.pods(""))
    assert bench.preview() == {}
    return {role: seen.fewest_ready(role) for role in ("prefill", "decode")}, said


@contextmanager
def full(bench: Bench) -> Generator[None]:
    """Somebody else's Pod has the last NUMA node, for a while."""
    name = stranger(bench)["metadata"]["name"]
    path = f"{bench.path('v1/pods')}/{name}"
    try:
        yield
    finally:
        bench.plane.api.delete(path, grace_seconds=0)
        wait_until(partial(is_gone, bench, path), timeout=60, what="the other's Pod to go")


# --- alone on the nodes -----------------------------------------------------------------------------------------------


def test_a_claim_that_grows_is_rolled_as_its_last_step_allows(bench_of: Callable[[str], Bench]) -> None:
    """Four Pods hold a NIC each, and ask for both of a NUMA node. The last one finds them when all others are new."""
    bench = bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    pods = {"replicas": {"prefill": 0, "decode": 0, "aggregated": 4}, "strategy": {"type": "auto"}}
    bench.change(modelserver=pods)
    bench.up()
    good = bench.blocks

    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    larger = {"devices": {"claimTemplate": WHOLE_NUMA_NODES}}
    bench.write(**merged(good, {"modelserver": {"strategy": surge}} | larger))
    before = versions(bench)
    said = bench.refuse_preview()
    assert re.search(r"step \d of 4 does not come to its end: with \d old Pods? gone, whichever (it is|they are)", said)
    assert versions(bench) == before, "nothing was touched"

    bench.write(**merged(good, larger))
    with as_foreseen(bench):
        said = bench.up()
    assert "aggregated: auto chose maxSurge 0, maxUnavailable 1" in said
    assert all(is_ready(pod) for pod in bench.pods())
    assert bench.preview() == {}


def test_a_volume_for_one_pod_is_handed_on_by_recreate_if_that_is_allowed(bench_of: Callable[[str], Bench]) -> None:
    bench = bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(
        modelserver={"replicas": {"prefill": 0, "decode": 0, "aggregated": 1}, "strategy": {"type": "auto"}},
        storage={"compileCache": {"accessModes": ["ReadWriteOncePod"]}},
    )
    bench.up()
    bench.change(**restart("aggregated", value="1"))
    before = versions(bench)
    said = bench.refuse_preview()
    assert "one Pod alone can mount claim rel-compile-cache-aggregated, so aggregated stops" in said
    assert "modelserver.strategy.allowOutage: [aggregated]" in said
    assert versions(bench) == before, "nothing was touched"

    bench.change(modelserver={"strategy": {"allowOutage": ["aggregated"]}})
    with as_foreseen(bench) as seen:
        said = bench.up()
    assert "aggregated: auto chose Recreate" in said
    assert seen.fewest_ready("aggregated") == 0
    assert all(is_ready(pod) for pod in bench.pods())
    assert bench.preview() == {}


# --- a stack that lives on --------------------------------------------------------------------------------------------


@contextmanager
def away(bench: Bench, folder: Path) -> Generator[None]:
    """The API server is not to be reached, for a while."""
    here = bench.environment["KUBECONFIG"]
    bench.environment["KUBECONFIG"] = bench.kubeconfig_to_nowhere(folder)
    try:
        yield
    finally:
        bench.environment["KUBECONFIG"] = here


def test_it_surges_with_spare_devices_and_takes_turns_without(live: Bench, tmp_path: Path) -> None:
    assert strategies(live) == {"prefill": SURGE, "decode": IN_TURN}, "nobody asked for spare devices yet"
    assert live.preview() == {}

    fewest, said = roll(live, restart("decode", value="1"))
    assert strategies(live) == {"prefill": SURGE, "decode": SURGE}
    assert "decode: auto chose maxSurge 1, maxUnavailable 0: devices are spare" in said
    assert fewest == {"prefill": 1, "decode": 2}, "no capacity is lost"

    with away(live, tmp_path):
        # Fails if the strategies were others than those that the engine holds, as the one of decode would be for a
        # stack that is new.
        live.run("preview", "--refresh=false", "--expect-no-changes")

    fewest, said = roll(live, restart("prefill", "decode", value="2"))
    assert strategies(live) == {"prefill": SURGE, "decode": IN_TURN}, "what is spare is for the single replica"
    assert "decode: auto chose maxSurge 0, maxUnavailable 1: no devices are spare for one Pod more" in said
    assert fewest == {"prefill": 1, "decode": 1}, "one replica is short"


def test_a_change_that_restarts_nothing_leaves_the_strategy(live: Bench) -> None:
    before = strategies(live)
    live.change(modelserver={"replicas": {"decode": 3}})
    with as_foreseen(live):
        live.up()
    assert strategies(live) == before
    live.change(modelserver={"replicas": {"decode": 2}}, gateway={"port": 8081})
    with as_foreseen(live):
        live.up()
    assert strategies(live) == before
    assert live.preview() == {}


def test_a_single_replica_without_spare_devices_stops_only_by_name(live: Bench) -> None:
    good = live.blocks
    change = restart("prefill", value="3")
    with full(live):
        live.write(**merged(good, change))
        before = versions(live)
        for said in (live.refuse_preview(), live.refuse()):
            assert without_traceback(said)
            assert "modelserver.strategy = auto: devices for the Pods that this change adds: cannot fit" in said
            assert "modelserver.strategy.allowOutage: [prefill]" in said
        assert versions(live) == before, "nothing was touched"

        allowed = merged(change, {"modelserver": {"strategy": {"allowOutage": ["prefill"]}}})
        fewest, said = roll(live, allowed)
        assert strategies(live)["prefill"] == IN_TURN
        assert "outage, for " in said
        assert fewest == {"prefill": 0, "decode": 2}

    fewest, said = roll(live, restart("prefill", value="4"))
    assert strategies(live)["prefill"] == SURGE, "nothing has to stop any more"
    assert fewest == {"prefill": 1, "decode": 2}


def test_a_strategy_that_stops_a_role_is_warned_of_with_its_outage(live: Bench) -> None:
    good = live.blocks
    try:
        for strategy, key in (
            ({"type": "Recreate"}, "modelserver.strategy.type = Recreate"),
            (
                {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
                "modelserver.strategy.rollingUpdate.maxUnavailable = 1",
            ),
        ):
            # Written anew, since what belongs to auto is refused beside another type.
            modelserver = good["modelserver"] | {"strategy": strategy, "extraServeEnv": {"prefill": {"ROUND": key}}}
            live.write(**good | {"modelserver": modelserver})
            with untouched(live):
                said = live.foresee().said
            assert (
                f"{key}: the only prefill Pod leaves before a new one is Ready: prefill serves nothing for about"
                in said
            )
    finally:
        live.write(**good)
