"""The impact table, volumes: what is mounted how restarts the Pods, a size does not, and no claim is ever lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local.waiting import wait_until
from tests.e2e.impact import NONE, SERVERS, Cell, cell, cells, see, serve_configs, start
from tests.e2e.prediction import as_foreseen

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("impact-storage")]
BOTH = serve_configs("prefill", "decode")
CACHES = frozenset(
    {"PersistentVolumeClaim/rel-compile-cache-prefill", "PersistentVolumeClaim/rel-compile-cache-decode"}
)
MODEL = frozenset({"PersistentVolumeClaim/rel-model-cache"})
RESIZE_SECONDS = 60


@pytest.fixture(scope="module")
def live(module_bench_of: Callable[[str], Bench]) -> Bench:
    return start(module_bench_of("small"))


@pytest.mark.parametrize(
    ("each", "size"),
    [
        pytest.param(cell("storage.compileCache.size", "12Gi", updates=CACHES), "12Gi", id="storage.compileCache.size"),
        pytest.param(cell("storage.model.size", "24Gi", updates=MODEL), "24Gi", id="storage.model.size"),
    ],
)
def test_a_size_grows_the_live_claim_and_no_pod_restarts(live: Bench, each: Cell, size: str) -> None:
    assert each.restarts == NONE
    see(live, each)
    grown = {name.partition("/")[2] for name in each.updates}

    def has_grown() -> bool:
        claims = live.volume_claims()
        return all(
            claims[name]["spec"]["resources"]["requests"]["storage"] == size
            and claims[name]["status"]["capacity"]["storage"] == size
            for name in grown
        )

    wait_until(has_grown, timeout=RESIZE_SECONDS, what=f"{grown} to request and to have {size}")


@cells(
    cell("storage.compileCache.mountPath", "/cache", SERVERS),
    cell("storage.model.mountPath", "/weights", SERVERS),
    cell("storage.model.path", "qwen", SERVERS),
    cell("storage.shm.sizeLimit", "3Gi", SERVERS),
    cell("storage.tmp.sizeLimit", "12Gi", SERVERS),
    cell(
        "storage.modelOffload.enabled",
        value=True,
        restarts=SERVERS,
        because=frozenset(f"storage.modelOffload.{of}" for of in ("enabled", "size", "mountPath")),
    ),
    cell("storage.modelOffload.size", "600Gi", SERVERS),
    cell("storage.modelOffload.mountPath", "/spill", SERVERS),
    cell("storage.modelOffload.storageClass", "kwok-volume", SERVERS),
)
def test_all_model_servers_restart(live: Bench, each: Cell) -> None:
    see(live, each)


def test_a_compile_cache_of_the_operator_takes_turns_with_that_of_the_stack_which_is_kept(live: Bench) -> None:
    """The claims of the stack leave its state, and are found again under their names, as they were."""
    for role in ("prefill", "decode"):
        live.add_model_store(f"cache-{role}")
    kept = {name: uid for name, uid in live.volume_uids().items() if f"PersistentVolumeClaim/{name}" in CACHES}
    assert len(kept) == len(CACHES)
    own = {
        "compileCache": {
            "kind": "existingClaim",
            "existingClaim": {"prefill": "cache-prefill", "decode": "cache-decode"},
        }
    }
    claims = frozenset({"storage.compileCache.existingClaim.{part}"})
    see(live, Cell(key="there", change={"storage": own}, restarts=SERVERS, deletes=CACHES, because=claims))

    back = {"compileCache": {"kind": "pvc", "existingClaim": {"prefill": None, "decode": None}}}
    before = live.parts()
    live.change(storage=back)
    foreseen = live.foresee()
    assert foreseen.objects == {
        "import": set(CACHES),
        "update": {"Deployment/rel-prefill", "Deployment/rel-decode"},
    }
    with as_foreseen(live, foreseen.report):
        live.up()
    assert live.parts().new_since(before) == SERVERS
    assert kept.items() <= live.volume_uids().items()


@cells(
    cell(
        "storage.compileCache.kind",
        "emptyDir",
        SERVERS,
        deletes=CACHES,
        because=frozenset({"storage.compileCache.kind", "storage.compileCache.existingClaim.{part}"}),
    ),
    cell("storage.compileCache.sizeLimit", "50Gi", SERVERS),
)
def test_a_compile_cache_that_goes_with_the_pod_restarts_all_and_leaves_the_claims_in_the_cluster(
    live: Bench, each: Cell
) -> None:
    see(live, each)


def test_a_model_store_of_the_operator_may_be_read_only(live: Bench) -> None:
    live.add_model_store()
    own = {"model": {"kind": "existingClaim", "existingClaim": "model-store"}}
    claim = frozenset({"storage.model.existingClaim"})
    see(live, Cell(key="storage.model.kind", change={"storage": own}, restarts=SERVERS, deletes=MODEL, because=claim))
    see(live, cell("storage.model.readOnly", value=True, restarts=SERVERS))


def test_after_all_of_it_nothing_is_left_to_change(live: Bench) -> None:
    assert live.preview() == {}
