"""A roll-out that can't succeed ends the update with one message, and going back works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import ROOT
from tests.e2e.bench import is_ready, without_traceback

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]

SHORT: dict[str, Any] = {"startup": {"initialDelaySeconds": 0, "periodSeconds": 1, "failureThreshold": 5}}
"""A start-up budget of 5 s, so that Kubernetes gives up after that and the grace period of 30 s."""


def test_an_image_that_cannot_be_pulled_is_named_and_the_previous_configuration_heals(
    bench_of: Callable[[str], Bench],
) -> None:
    bench = bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(
        modelserver={
            "replicas": {"prefill": 2, "decode": 2},
            "probes": SHORT,
            "serveEnv": {"VLLM_ENGINE_READY_TIMEOUT_S": 60},
        }
    )
    bench.up()
    before = {pod["metadata"]["uid"] for pod in bench.pods()}

    good = bench.blocks
    annotations = {"local.serving-stack.dev/failure": "ImagePullBackOff"}
    bench.change(modelserver={"image": {"tag": "gone"}, "podOverrides": {"decode": {"annotations": annotations}}})
    said = bench.refuse()
    assert "rel-decode did not roll out" in said
    assert "modelserver ImagePullBackOff" in said
    assert without_traceback(said)
    serving = [pod for pod in bench.pods("llm-d.ai/role=decode") if is_ready(pod)]
    assert len(serving) == 2, "the old Pods go on serving"

    bench.write(**good)
    bench.up()
    assert all(is_ready(pod) for pod in bench.pods())
    decode = {pod["metadata"]["uid"] for pod in bench.pods("llm-d.ai/role=decode")}
    assert decode <= before, "no Pod that was never replaced is restarted"
    assert bench.preview() == {}
