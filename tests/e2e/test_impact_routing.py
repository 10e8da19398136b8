"""The impact table, the way to the model servers: gateway, monitoring, routing proxy, endpoint picker and pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stack.impact import Happening, Method
from tests.e2e.impact import DECODE, EPP, NONE, Cell, cell, cells, deployment, see, serve_configs, start
from tests.e2e.prediction import as_foreseen

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("impact-routing")]
GATEWAY, ROUTE, RULE = (frozenset({of}) for of in ("Gateway/rel", "HTTPRoute/rel", "DestinationRule/rel-epp"))
POOL = frozenset({"InferencePool/rel"})
SERVICE = frozenset({"Service/rel-epp"})
PLUGINS = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: []
schedulingProfiles: []
"""


@pytest.fixture(scope="module")
def live(module_bench_of: Callable[[str], Bench]) -> Bench:
    return start(module_bench_of("small"), monitoring={"provider": "prometheus-operator"})


@cells(
    cell("gateway.port", 8080, updates=GATEWAY),
    cell("gateway.annotations", {"example.com/balancer": "internal"}, updates=GATEWAY),
    cell("gateway.requestTimeout", "600s", updates=ROUTE),
    cell("gateway.hostnames", ["chat.example.com"], updates=ROUTE),
    cell("gateway.name", "front", replaces=frozenset({"Gateway/front"}), updates=ROUTE),
    cell("gateway.backend, with a pool", {"name": "proxy", "port": 8080}),
    cell(
        "monitoring.enabled",
        value=True,
        creates=frozenset(
            {
                "PodMonitor/rel-prefill",
                "PodMonitor/rel-decode",
                "PodMonitor/rel-gateway",
                "ServiceMonitor/rel-epp-monitor",
                "Secret/rel-epp-metrics-reader",
                "PrometheusRule/rel",
                "ConfigMap/rel-dashboard",
                *(
                    f"{kind}/rel-ns-{name}"
                    for kind in ("ClusterRole", "ClusterRoleBinding")
                    for name in ("epp", "epp-metrics-reader")
                ),
            }
        ),
        and_back=True,
    ),
)
def test_no_pod_restarts(live: Bench, each: Cell) -> None:
    assert each.restarts == NONE
    see(live, each)


@cells(cell("eppServiceName", "picker", replaces=frozenset({"Service/picker"}), updates=POOL | RULE))
def test_the_service_of_the_endpoint_picker_is_renamed_and_no_pod_restarts(live: Bench, each: Cell) -> None:
    """Better than the chart, which restarts every model server for it, though none of them asks for the Service."""
    see(live, each)


@cells(
    cell("routing.proxy.image", {"repository": "mirror.example/proxy"}, DECODE),
    cell("routing.proxy.port", 8100, DECODE, updates=POOL),
    cell("routing.proxy.modelServerPort", 8300, DECODE, changes=serve_configs("decode")),
    cell("routing.proxy.kvConnector", "shared-storage", DECODE),
    cell("routing.proxy.resources", {"requests": {"cpu": "1"}}, DECODE),
    cell("routing.proxy.extraArgs", ["--zap-log-level=debug"], DECODE),
)
def test_only_decode_restarts(live: Bench, each: Cell) -> None:
    assert each.restarts == DECODE
    see(live, each)


@cells(
    cell(
        "router.epp.pluginsCustomConfig",
        {"mine.yaml": PLUGINS},
        EPP,
        changes=frozenset({"ConfigMap/rel-epp-*"}),
        and_back=True,
    ),
    cell(
        "router.epp.resources",
        {"requests": {"cpu": "4", "memory": "9Gi"}},
        EPP,
        because=frozenset({"router.epp.resources.requests.memory", "router.epp.resources.limits.memory"}),
    ),
)
def test_only_the_endpoint_picker_restarts(live: Bench, each: Cell) -> None:
    """Better than the chart for its plugins: there a new configuration waits until somebody restarts the Pod."""
    assert each.restarts == EPP
    see(live, each)


@pytest.mark.parametrize(
    ("count", "happens", "method"),
    [
        pytest.param(2, Happening.RESTARTS, Method.RECREATE, id="router.epp.replicas, from one to several"),
        pytest.param(3, Happening.SCALES_UP, Method.START, id="router.epp.replicas, more of several"),
        pytest.param(2, Happening.SCALES_DOWN, Method.LEAVE, id="router.epp.replicas, fewer of several"),
        pytest.param(1, Happening.RESTARTS, Method.ROLLING, id="router.epp.replicas, from several to one"),
    ],
)
def test_endpoint_pickers_restart_when_there_begin_or_cease_to_be_others_to_choose_a_leader_from(
    live: Bench, count: int, happens: Happening, method: Method
) -> None:
    before = live.parts()
    live.change(router={"epp": {"replicas": count}})
    with as_foreseen(live):
        live.up()
    after = live.parts()
    assert after.counts == before.counts | {"epp": count}
    if happens is Happening.SCALES_UP:
        assert after["epp"] > before["epp"]
    elif happens is Happening.SCALES_DOWN:
        assert after["epp"] < before["epp"]
    else:
        assert after["epp"].isdisjoint(before["epp"])
    report = live.report()
    assert report is not None
    assert report.impact is not None
    picker = report.impact.parts[-1]
    assert (picker.part, picker.happens, picker.method) == ("epp", happens, method)
    assert [key.key for key in picker.keys] == ["router.epp.replicas"]


@cells(
    cell(
        "router.inferencePool.create",
        value=False,
        restarts=EPP,
        replaces=frozenset({deployment("epp")}),
        updates=frozenset({"Service/picker"}) | ROUTE,
        deletes=POOL,
        because=frozenset(
            {
                "router.inferencePool.create",
                # What the pool knows is told to it by arguments then.
                "router.modelServers.matchLabels.llm-d.ai/inference-serving",
                "router.modelServers.targetPorts",
            }
        ),
        and_back=True,
    )
)
def test_a_toggle_of_the_pool_replaces_the_endpoint_picker_and_spares_the_model_servers(
    live: Bench, each: Cell
) -> None:
    """Better than the chart, where everything has to be uninstalled and installed again. It is a gap in routing.

    The route leads to `gateway.backend` meanwhile.
    """
    see(live, each)


@cells(
    cell("gateway.className", "agentgateway", updates=frozenset({"Gateway/front"}), deletes=RULE),
    cell("gateway.enabled", value=False, deletes=frozenset({"Gateway/front"}) | ROUTE),
)
def test_the_gateway_changes_hands_or_goes_and_no_pod_restarts(live: Bench, each: Cell) -> None:
    see(live, each)


@cells(cell("routing.proxy.secure", value=True, restarts=DECODE))
def test_a_proxy_with_a_certificate_of_its_own_needs_another_gateway_and_only_decode_restarts(
    live: Bench, each: Cell
) -> None:
    see(live, each)


def test_after_all_of_it_nothing_is_left_to_change(live: Bench) -> None:
    assert live.preview() == {}
