"""What is said of claims that are there: what differs, what can't grow, and who can't mount them."""

from __future__ import annotations

from typing import Any

import pytest

from stack.guards.volumes import default_class
from tests.unit.guards.scene import GOING, Scene, claim, scene, storage_class

CACHE = "rel-compile-cache-decode"
ONE_DECODE: dict[str, Any] = {"replicas": {"prefill": 0, "decode": 1}}
NO_SURGE: dict[str, Any] = {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}
PLACED: list[dict[str, str]] = [{"role": "decode", "node": f"npu-{index}"} for index in (0, 1)]
STABLE = "storageclass.kubernetes.io/is-default-class"
BETA = "storageclass.beta.kubernetes.io/is-default-class"
DEFAULT = {STABLE: "true"}
SAME_NODE = [{"role": "decode", "node": "npu-0"}] * 2


def with_cache(live: dict[str, Any], *, classes: dict[str, Any] | None = None, **cache: Any) -> Scene:
    """One decode Pod whose cache is there; blocks by keyword are of `storage.compileCache`."""
    found = scene(modelserver=ONE_DECODE, storage={"compileCache": {"size": "200Gi"} | cache})
    store = {"model-store": claim("model-store")}
    found = found.but(volume_claims=store | {CACHE: live})
    return found if classes is None else found.but(storage_classes=classes)


def with_store(live: dict[str, Any] | None, *, storage: dict[str, Any] | None = None, **server: Any) -> Scene:
    """Pods that mount the operator's model store."""
    found = scene(modelserver=server, storage=storage or {})
    return found.but(volume_claims={} if live is None else {"model-store": live})


def test_claims_that_are_as_wanted_are_in_nobodys_way() -> None:
    assert with_cache(claim(CACHE, size="200Gi")).findings() == ()
    assert with_cache(claim(CACHE, size="204800Mi"), storageClass="standard").findings() == (), "the same amount"
    assert with_store(claim("model-store")).findings() == ()


@pytest.mark.parametrize(
    ("live", "cache", "want_key", "want"),
    [
        pytest.param(
            claim(CACHE, size="200Gi"),
            {"storageClass": "fast"},
            "storageClass = fast",
            ["has class standard", "Set storage.compileCache.storageClass to standard", f"delete pvc {CACHE}"],
            id="another class",
        ),
        pytest.param(
            claim(CACHE, size="200Gi", spec={"storageClassName": ""}),
            {"storageClass": "standard"},
            "storageClass = standard",
            ["has no class"],
            id="a class where the claim has none",
        ),
        pytest.param(
            claim(CACHE, size="200Gi", modes=("ReadWriteOnce",)),
            {},
            "accessModes = ReadWriteMany",
            ["is there with ReadWriteOnce", "Set storage.compileCache.accessModes to [ReadWriteOnce]"],
            id="other modes",
        ),
        pytest.param(
            claim(CACHE, size="300Gi"),
            {},
            "size = 200Gi",
            ["is there with 300Gi", "never shrinks", "Set storage.compileCache.size to 300Gi or more"],
            id="smaller",
        ),
        pytest.param(
            claim(CACHE, size="100Gi", spec={"storageClassName": ""}),
            {},
            "size = 200Gi",
            ["has 100Gi and no class"],
            id="growing without a class",
        ),
        pytest.param(
            claim(CACHE, size="100Gi", spec={"storageClassName": "gone"}),
            {},
            "size = 200Gi",
            ["class gone is not there any more"],
            id="growing in a class that went",
        ),
        pytest.param(
            claim(CACHE, size="100Gi", status={"phase": "Pending"}),
            {},
            "size = 200Gi",
            ["is not bound", f"delete pvc {CACHE}"],
            id="another size before it is bound",
        ),
    ],
)
def test_a_difference_is_refused_with_both_values_and_a_way_out(
    live: dict[str, Any], cache: dict[str, Any], want_key: str, want: list[str]
) -> None:
    found = with_cache(live, **cache).only()
    assert found.is_refusal
    assert str(found.problem).startswith(f"storage.compileCache.{want_key}: claim {CACHE} ")
    for words in want:
        assert words in str(found.problem)


def test_growing_needs_a_class_that_can() -> None:
    small = claim(CACHE, size="100Gi")
    assert with_cache(small).findings() == ()
    fixed = {"standard": storage_class("standard", is_default=True, allowVolumeExpansion=False)}
    found = with_cache(small, classes=fixed).only()
    assert found.is_refusal
    assert "has 100Gi, and its class standard does not let it grow" in found.problem.why
    assert "kubectl patch storageclass standard -p '{\"allowVolumeExpansion\": true}'" in found.problem.fix
    assert with_cache(small).but(storage_classes=None).findings() == (), "what is not known is judged by nobody"


@pytest.mark.parametrize(
    ("server", "wanted", "is_refused"),
    [
        ("v1.36.3", "150Gi", False),
        ("v1.36.3", "100Gi", True),
        ("v1.31.9", "150Gi", True),
        (None, "150Gi", True),
    ],
)
def test_growth_that_has_not_happened_may_be_taken_back(server: str | None, wanted: str, is_refused: bool) -> None:
    grown = claim(CACHE, size="200Gi", status={"capacity": {"storage": "100Gi"}})
    found = with_cache(grown, size=wanted).but(server_version=server).findings()
    assert [each.problem.key for each in found] == ["storage.compileCache.size"] * is_refused


def test_the_store_of_the_stack_is_told_by_its_own_key() -> None:
    found = scene(storage={"model": {"kind": "pvc", "existingClaim": None, "size": "20Gi"}})
    found = found.but(volume_claims={"rel-model-cache": claim("rel-model-cache", size="30Gi")})
    assert found.letters() == ["refuses storage.model.size"]
    assert "copy the weights" in found.only().problem.fix


@pytest.mark.parametrize(
    ("live", "want_why"),
    [
        pytest.param(None, "there is no claim of this name in namespace ns", id="missing"),
        pytest.param(claim("model-store", metadata=GOING), "is being deleted", id="going"),
        pytest.param(
            claim("model-store", status={"phase": "Lost"}, spec={"volumeName": "pv-7"}),
            "has lost its volume pv-7",
            id="without its volume",
        ),
        pytest.param(claim("model-store", spec={"volumeMode": "Block"}), "raw block device", id="no file system"),
    ],
)
def test_a_claim_from_outside_that_nobody_can_mount_is_refused(live: dict[str, Any] | None, want_why: str) -> None:
    found = with_store(live).only()
    assert (found.problem.key, found.problem.value) == ("storage.model.existingClaim", "model-store")
    assert found.is_refusal
    assert want_why in found.problem.why
    assert found.workloads == {"rel-prefill", "rel-decode"}
    assert found.idle == "warn", "Pods that run have it mounted"


def test_a_cache_from_outside_is_told_by_its_role() -> None:
    given = {"prefill": "cache-p", "decode": "cache-d"}
    found = scene(storage={"compileCache": {"kind": "existingClaim", "existingClaim": given}})
    found = found.but(volume_claims={name: claim(name) for name in ("model-store", "cache-p")})
    assert found.letters() == ["refuses storage.compileCache.existingClaim.decode"]
    assert found.only().workloads == {"rel-decode"}


@pytest.mark.parametrize(
    ("modes", "server", "want"),
    [
        pytest.param(("ReadWriteMany",), {}, None, id="shared, four and four Pods"),
        pytest.param(("ReadWriteOnce", "ReadWriteMany"), {}, None, id="shared among others"),
        pytest.param(("ReadWriteOnce",), {}, "refuses: only one node can mount this claim, and 8 Pods do", id="RWO"),
        pytest.param(("ReadWriteOncePod",), {}, "refuses: only one Pod can mount this claim, and 8 Pods do", id="RWOP"),
        pytest.param(("ReadWriteOnce",), ONE_DECODE, "warns: only one node", id="RWO, one Pod that surges"),
        pytest.param(("ReadWriteOncePod",), ONE_DECODE, "refuses: only one Pod", id="RWOP, one Pod that surges"),
        pytest.param(("ReadWriteOnce",), ONE_DECODE | NO_SURGE, None, id="RWO, one Pod without surge"),
        pytest.param(("ReadWriteOncePod",), ONE_DECODE | NO_SURGE, None, id="RWOP, one Pod without surge"),
        pytest.param(("ReadWriteOnce",), {"nodePlacement": PLACED}, "refuses: only one node", id="RWO, two nodes"),
        pytest.param(("ReadWriteOnce",), {"nodePlacement": SAME_NODE}, None, id="RWO, two Pods of one node"),
        pytest.param(
            ("ReadWriteOncePod",), {"nodePlacement": SAME_NODE}, "refuses: only one Pod", id="RWOP, two Pods of a node"
        ),
        pytest.param(("ReadOnlyMany",), {}, "warns: this claim can only be read", id="ROX mounted for writing"),
    ],
)
def test_the_modes_of_a_claim_from_outside(modes: tuple[str, ...], server: dict[str, Any], want: str | None) -> None:
    found = with_store(claim("model-store", modes=modes), **server).findings()
    said = [f"{'refuses' if each.is_refusal else 'warns'}: {each.problem.why}" for each in found]
    assert len(said) == (want is not None)
    assert all(each.startswith(want or "") for each in said)


@pytest.mark.parametrize(("mode", "who"), [("ReadWriteOnce", "node"), ("ReadWriteOncePod", "Pod")])
def test_a_claim_for_one_is_refused_where_a_scaler_may_bring_a_second_pod(mode: str, who: str) -> None:
    """Whatever runs now, and whether or not this change starts a Pod: when the scaler does, nobody is asked."""
    decode = {"provider": "hpa", "minReplicas": 1}
    live = claim("model-store", modes=(mode,))

    def scaled(most: int) -> Scene:
        found = scene(modelserver=ONE_DECODE | NO_SURGE, autoscaling={"decode": decode | {"maxReplicas": most}})
        return found.but(volume_claims={"model-store": live})

    found = scaled(8).only()
    assert found.problem.why == f"only one {who} can mount this claim, and up to 8 Pods do"
    assert found.is_refusal
    assert found.idle == "refuse"
    assert scaled(1).findings() == ()


def test_a_store_that_can_only_be_read_suits_pods_that_only_read() -> None:
    assert (
        with_store(claim("model-store", modes=("ReadOnlyMany",)), storage={"model": {"readOnly": True}}).findings()
        == ()
    )


def test_the_modes_of_the_volume_count_more_than_those_that_were_asked_for() -> None:
    live = claim("model-store", modes=("ReadWriteOnce",), status={"accessModes": ["ReadWriteOnce", "ReadWriteMany"]})
    assert with_store(live).findings() == ()


@pytest.mark.parametrize(("binding", "want"), [("Immediate", True), ("WaitForFirstConsumer", False)])
def test_a_claim_from_outside_that_waits_for_its_volume(binding: str, want: bool) -> None:
    classes = {"standard": storage_class("standard", volumeBindingMode=binding)}
    live = claim("model-store", status={"phase": "Pending"})
    found = scene(storage={"compileCache": {"kind": "emptyDir"}}).but(
        volume_claims={"model-store": live}, storage_classes=classes
    )
    assert found.letters() == ["warns storage.model.existingClaim"] * want


def test_claims_that_are_not_known_are_judged_by_nobody() -> None:
    assert with_cache(claim(CACHE, size="900Gi")).but(volume_claims=None).findings() == ()


@pytest.mark.parametrize(
    ("classes", "want"),
    [
        pytest.param([("slow", {"a": "b"}, "2026-01-01")], None, id="none is the default"),
        pytest.param([("slow", DEFAULT, "2026-01-01"), ("fast", DEFAULT, "2026-01-02")], "fast", id="the newest"),
        pytest.param([("slow", DEFAULT, "2026-01-01"), ("fast", DEFAULT, "2026-01-01")], "fast", id="then by name"),
        pytest.param([("old", {BETA: "true"}, "2026-01-01")], "old", id="by the annotation of old"),
        pytest.param([("off", {STABLE: "false"}, "2026-01-01")], None, id="a default no more"),
    ],
)
def test_the_default_class_is_chosen_as_kubernetes_does(
    classes: list[tuple[str, dict[str, str], str]], want: str | None
) -> None:
    found = {
        name: {"metadata": {"name": name, "annotations": annotations, "creationTimestamp": made}}
        for name, annotations, made in classes
    }
    assert default_class(found) == want
