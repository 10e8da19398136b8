"""The impact table, devices: how a Pod asks for its accelerators and NICs, and a claim template as it is exchanged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.bench import without_traceback
from tests.e2e.impact import DECODE, NONE, PREFILL, SERVERS, Cell, cell, cells, see, serve_configs, start, templates
from tests.e2e.prediction import as_foreseen
from tests.e2e.record import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("impact-devices")]
INVENTORY = str(Path(__file__).parent / "inventory" / "both-ways.yaml")
TEMPLATES = "resource.k8s.io/v1/resourceclaimtemplates"
TEMPLATE = frozenset({"ResourceClaimTemplate/rel-devices-*"})


def claims(*drivers: str) -> dict[str, Any]:
    """Devices of a Pod by a claim template that the stack makes; NPUs must be of all these drivers."""
    selectors = [f'device.driver == "{driver}"' for driver in drivers]
    requests = [
        {"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 1, "selectors": selectors},
        {"name": "nic", "deviceClassName": "dranet", "count": 1},
    ]
    constraints = [{"requests": ["npu", "nic"], "matchAttribute": "resource.kubernetes.io/numaNode"}]
    return {"claimTemplateName": None, "claimTemplate": {"requests": requests, "constraints": constraints}}


@pytest.fixture(scope="module")
def live(module_bench_of: Callable[[str], Bench]) -> Bench:
    bench = module_bench_of(INVENTORY)
    bench.add_claim_template("one", npus=1, nics=1)
    bench.add_claim_template("two", npus=2, nics=1)
    return start(
        bench,
        rollout={"patienceSeconds": 5},
        devices={
            "claimTemplate": None,
            "claimTemplateName": "one",
            "npu": {"count": 1},
            "rdma": {"count": 1, "resourceName": "rdma/nic-a"},
        },
    )


@cells(
    cell("devices.claimTemplateName", "two", SERVERS, and_back=True),
    cell("devices.rdma.discoveryTimeoutSeconds", 200, SERVERS),
    cell("devices.rdma.sideChannel.host", "10.32.0.1", SERVERS),
    cell(
        "devices.rdma.mode",
        "devicePlugin",
        SERVERS,
        because=frozenset(f"devices.rdma.{of}" for of in ("mode", "count", "resourceName")),
    ),
    cell("devices.rdma.count, by device plugin", 2, SERVERS),
    cell("devices.rdma.resourceName", "rdma/nic-b", SERVERS),
    cell(
        "devices.npu.mode",
        "devicePlugin",
        SERVERS,
        because=frozenset(
            {"devices.claimTemplateName"} | {f"devices.npu.{of}" for of in ("mode", "count", "resourceName")}
        ),
    ),
    Cell(
        key="devices.npu.count, by device plugin",
        # Not alone: the engines must use what they are given.
        change={
            "devices": {"npu": {"count": 2}},
            "modelserver": {"serveArgs": {"common": {"tensor-parallel-size": 2}}},
        },
        restarts=SERVERS,
        changes=serve_configs("prefill", "decode"),
        because=frozenset({"devices.npu.count", "modelserver.serveArgs.{part}.tensor-parallel-size"}),
    ),
    cell("devices.npu.resourceName", "rebellions.ai/npu-b", SERVERS),
    cell(
        "devices.rdma.enabled",
        value=False,
        restarts=SERVERS,
        because=frozenset(
            f"devices.rdma.{of}" for of in ("enabled", "mode", "count", "resourceName", "discoveryTimeoutSeconds")
        ),
    ),
)
def test_all_model_servers_restart(live: Bench, each: Cell) -> None:
    assert each.restarts == SERVERS
    see(live, each)


@cells(
    cell("devices.rdma.sideChannel.basePort.prefill", 5700, PREFILL),
    cell("devices.rdma.sideChannel.basePort.decode", 5800, DECODE),
)
def test_only_the_role_restarts(live: Bench, each: Cell) -> None:
    see(live, each)


def claimed(live: Bench) -> None:
    """Claims again, with a template of the stack, and Pods that take a moment to leave."""
    before = live.blocks
    drain = {"annotations": {"local.serving-stack.dev/drain-delay": "2s"}}
    live.change(
        devices={"npu": {"mode": "dra", "count": 1}, "rdma": {"mode": "dra", "enabled": True}, **claims()},
        modelserver={
            "podOverrides": {"prefill": drain, "decode": drain},
            "serveArgs": {"common": {"tensor-parallel-size": 1}},
        },
    )
    if live.blocks != before:
        with as_foreseen(live):
            live.up()


@cells(cell("devices.npu.count, by claim", 2), cell("devices.rdma.count, by claim", 3))
def test_a_count_means_nothing_where_a_claim_decides(live: Bench, each: Cell) -> None:
    claimed(live)
    assert each.restarts == NONE
    see(live, each)


def test_after_a_stuck_exchange_of_the_claim_template_the_previous_configuration_restarts_no_pod(live: Bench) -> None:
    claimed(live)
    good, before, were = live.blocks, live.parts(), templates(live)
    live.change(devices=claims("nobody.example.com"))
    assert "cannot fit" in live.refuse(), "there are none of that driver"
    live.change(guards={"devices": "warn"})
    with as_foreseen(live, fails=True):
        said = live.refuse()
    assert "unschedulable" in said
    assert without_traceback(said)
    live.write(**good)
    with as_foreseen(live):
        live.up()
    assert live.parts() == before
    assert templates(live) == were
    assert live.preview() == {}


def test_a_claim_template_of_the_stack_is_exchanged_before_the_pods_and_goes_after_the_last_that_names_it(
    live: Bench,
) -> None:
    claimed(live)
    with record(live, "v1/pods", TEMPLATES) as seen:
        see(
            live,
            Cell(
                key="devices.claimTemplate",
                change={"devices": claims("npu.rebellions.ai")},
                restarts=SERVERS,
                changes=TEMPLATE,
                because=frozenset({"devices.claimTemplate"}),
            ),
        )
    [old], [new] = seen.ended(TEMPLATES), seen.begun(TEMPLATES)
    assert new.since < seen.begun("v1/pods", *SERVERS)[0].since
    assert old.until > seen.ended("v1/pods", *SERVERS)[-1].until


def test_after_all_of_it_nothing_is_left_to_change(live: Bench) -> None:
    assert live.preview() == {}
