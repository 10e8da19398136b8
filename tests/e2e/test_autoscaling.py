"""A scaler owns the number of Pods: Kubernetes' own really scales a role, and no update touches what it chose."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from local.waiting import wait_until
from tests.builders import ROOT, plan
from tests.e2e.bench import EngineError
from tests.e2e.metrics_stand_in import metrics_stand_in
from tests.e2e.record import record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.bench import Bench
    from tests.e2e.metrics_stand_in import MetricsStandIn

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]

SCALE_SECONDS = 90
PODS = "v1/pods"
HPAS, SCALED_OBJECTS = "autoscaling/v2/horizontalpodautoscalers", "keda.sh/v1alpha1/scaledobjects"
FLOOR, CEILING, CONFIGURED = 2, 4, 3
SLOTS, TARGET = 4, 2.4
QUICK = {
    "scaleUp": {"periodSeconds": 1},
    "scaleDown": {"stabilizationWindowSeconds": 0, "periodSeconds": 1},
}
SCALED: dict[str, Any] = {
    "decode": {"provider": "hpa", "minReplicas": FLOOR, "maxReplicas": CEILING, "behavior": QUICK}
}
WITH_KEDA: dict[str, Any] = {
    "prefill": {"provider": "keda", "maxReplicas": 8, "tokensPerSecond": 9000},
    "ratio": {"min": 0.5, "max": 2},
    "prometheus": {"serverAddress": "http://p:9090", "triggerAuthentication": "a", "authModes": "bearer"},
}
OFF: dict[str, Any] = {"decode": {"provider": "none"}}


def asked_for(bench: Bench) -> int:
    """Pods that the live Deployment of decode asks for."""
    return bench.plane.api.get(f"{bench.path('apps/v1/deployments')}/rel-decode")["spec"]["replicas"]


def until_asked_for(bench: Bench, pods: int) -> None:
    wait_until(lambda: asked_for(bench) == pods, timeout=SCALE_SECONDS, what=f"{pods} decode Pods to be asked for")


def scalers(bench: Bench) -> list[str]:
    return [each["metadata"]["name"] for each in bench.list(HPAS)]


def load(metrics: MetricsStandIn, requests: float, *, pods: Callable[[], int]) -> None:
    """So many requests in flight, shared evenly; no Pod runs more than its slots."""
    metrics.value = lambda _: min(float(SLOTS), requests / max(1, pods()))


def dev(bench: Bench, **blocks: Any) -> None:
    """Stack dev with one prefill Pod, and in `decode` what is configured."""
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(modelserver={"replicas": {"prefill": 1, "decode": CONFIGURED}}, **blocks)


def test_a_role_is_scaled_and_updates_leave_its_count_alone(bench_of: Callable[[str], Bench], tmp_path: Path) -> None:
    """From the first update on; until it is turned off, when the configured count holds at once."""
    bench = bench_of("small")
    with metrics_stand_in(bench.plane.api, bench.namespace, tmp_path) as metrics:
        # First update: no count is written, the scaler brings its floor, and the update waits for that.
        metrics.value = lambda _: TARGET
        dev(bench, autoscaling=SCALED)
        bench.up()
        assert asked_for(bench) == FLOOR
        assert bench.parts().counts["decode"] == FLOOR
        assert bench.preview() == {}

        # Up, as load asks, to the ceiling and no further.
        load(metrics, 100, pods=lambda: asked_for(bench))
        until_asked_for(bench, CEILING)
        assert metrics.asked["vllm_num_requests_running"] > 0, "it was Kubernetes that asked"
        assert bench.preview() == {}, "what the scaler chose is no difference"

        # An update that restarts the role keeps the count, also while it rolls.
        before = bench.parts()
        bench.change(modelserver={"serveArgs": {"decode": {"seed": 7}}})
        bench.up()
        assert asked_for(bench) == CEILING
        assert bench.parts().new_since(before) == {"decode"}
        assert bench.preview() == {}

        # Down again, one at a time, to the floor.
        load(metrics, 0, pods=lambda: asked_for(bench))
        until_asked_for(bench, FLOOR)
        assert bench.preview() == {}

        # Off: the scaler goes first, then the configured count is written, and stays.
        load(metrics, 100, pods=lambda: asked_for(bench))
        until_asked_for(bench, CEILING)
        bench.change(autoscaling=OFF)
        with record(bench, HPAS, PODS) as seen:
            bench.up()
        [gone] = seen.ended(HPAS)
        left = seen.ended(PODS, "decode")
        assert len(left) == CEILING - CONFIGURED
        assert all(gone.until < pod.until for pod in left), "before a Pod went for the count"
        assert scalers(bench) == []
        assert asked_for(bench) == CONFIGURED
        assert bench.preview() == {}
        bench.up()
        assert asked_for(bench) == CONFIGURED, "nothing undid it meanwhile"


def test_turning_a_scaler_on_keeps_the_live_count_and_a_new_topology_returns_at_the_floor(
    bench_of: Callable[[str], Bench], tmp_path: Path
) -> None:
    bench = bench_of("small")
    with metrics_stand_in(bench.plane.api, bench.namespace, tmp_path) as metrics:
        metrics.value = lambda _: TARGET  # just as much as is aimed at: no reason to change anything
        dev(bench)
        bench.up()
        assert asked_for(bench) == CONFIGURED
        before = bench.parts()

        bench.change(autoscaling=SCALED)
        bench.up()
        assert asked_for(bench) == CONFIGURED, "neither reset to 1 nor to the floor"
        assert bench.parts() == before, "no Pod was touched"
        assert bench.preview() == {}

        # The number was written once, by an update; an engine that does not know the Deployment gives it up.
        state = bench.export_state()
        state["deployment"]["resources"] = []
        file = tmp_path / "state.json"
        file.write_text(json.dumps(state))
        bench.run("stack", "import", "--file", str(file))
        bench.up()
        assert asked_for(bench) == CONFIGURED, "an emptied state takes no Pod"
        assert bench.parts() == before
        assert bench.preview() == {}
        bench.up()
        assert asked_for(bench) == CONFIGURED

        keda = {"decode": {"provider": "keda"}, "prometheus": {"serverAddress": "http://prometheus:9090"}}
        bench.change(autoscaling=keda)
        with record(bench, HPAS, SCALED_OBJECTS) as seen:
            bench.up()
        [old], [new] = seen.ended(HPAS), seen.begun(SCALED_OBJECTS)
        assert old.until < new.since, "never two of them at a time"
        assert bench.parts() == before, "still no Pod was touched"

        bench.change(autoscaling=SCALED)  # back, since KEDA does not run here
        bench.up()
        assert bench.list(SCALED_OBJECTS) == []
        bench.change(modelserver={"model": "other/model"})
        report = bench.foresee().report
        assert report is not None
        assert report.impact is not None
        [part] = [each for each in report.impact.parts if each.part == "decode"]
        assert part.after == FLOOR
        assert any(f"returns at its floor of {FLOOR}" in note for note in part.notes)
        bench.up()
        assert asked_for(bench) == FLOOR
        assert bench.preview() == {}


def test_two_scalers_and_a_ceiling_without_devices_are_refused(bench_of: Callable[[str], Bench]) -> None:
    bench = bench_of("small")
    dev(bench)
    bench.up()
    theirs = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "theirs", "namespace": bench.namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "rel-decode"},
            "minReplicas": 3,
            "maxReplicas": 3,
        },
    }
    bench.plane.api.create(theirs)
    bench.change(autoscaling=SCALED)
    with pytest.raises(EngineError, match="HorizontalPodAutoscaler theirs scales Deployment rel-decode as well"):
        bench.foresee()
    bench.plane.api.delete(f"{bench.path(HPAS)}/theirs")

    bench.change(autoscaling={"decode": {"maxReplicas": 40}})
    with pytest.raises(EngineError, match="a scaler would ask for Pods that wait for ever"):
        bench.foresee()


@pytest.mark.parametrize("provider", ["keda", "aibrix", "hpa"])
def test_every_kind_of_scaler_is_taken_as_it_is_planned(bench_of: Callable[[str], Bench], provider: str) -> None:
    """KEDA and AIBrix do not run here, but the API server has their CRDs, and drops or refuses what they don't know."""
    bench = bench_of("small")
    planned = plan(
        namespace=bench.namespace,
        modelserver={"replicas": {"prefill": 2, "decode": 2}},
        autoscaling={
            "decode": {"provider": provider, "maxReplicas": 8},
            **(WITH_KEDA if provider == "keda" else {}),
        },
    )
    assert planned.modelserver.scalers
    for scaler in planned.modelserver.scalers:
        stored = bench.plane.api.create(scaler.object.manifest)
        assert without_defaults(stored["spec"], scaler.object.manifest["spec"]) == scaler.object.manifest["spec"]


def without_defaults(stored: Any, sent: Any) -> Any:
    """What is stored, without what was not sent."""
    match sent:
        case dict():
            keys = cast("dict[str, Any]", sent)
            return {key: without_defaults(stored[key], value) for key, value in keys.items() if key in stored}
        case list():
            return [without_defaults(*pair) for pair in zip(stored, cast("list[Any]", sent), strict=True)]
        case _:
            return stored
