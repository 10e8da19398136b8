"""After `pulumi destroy`: the same release finds its claims again and may grow them, another one makes its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.builders import ROOT
from tests.e2e.bench import is_ready

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]


def test_claims_are_found_again_and_grow_and_another_release_makes_its_own(bench_of: Callable[[str], Bench]) -> None:
    bench = bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.up()
    claims = bench.volume_uids()
    bench.destroy()
    assert bench.volume_uids() == claims

    bench.change(storage={"compileCache": {"size": "30Gi"}, "model": {"size": "60Gi"}})
    assert bench.foresee().objects["import"] == {f"PersistentVolumeClaim/{name}" for name in claims}
    bench.up()
    assert bench.volume_uids() == claims
    sizes = {name: claim["spec"]["resources"]["requests"]["storage"] for name, claim in bench.volume_claims().items()}
    assert sizes == {name: "60Gi" if name == "rel-model-cache" else "30Gi" for name in claims}
    assert bench.preview() == {}
    bench.destroy()

    bench.write_over(release="other")
    bench.up()
    others = {name.replace("rel-", "other-") for name in claims}
    assert bench.volume_uids().items() > claims.items(), "those of the first release stay"
    assert set(bench.volume_uids()) == others | set(claims)
    assert all(is_ready(pod) for pod in bench.pods())
    mounted = {
        volume["persistentVolumeClaim"]["claimName"]
        for pod in bench.pods()
        for volume in pod["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert mounted == others, "they start with volumes of their own"
