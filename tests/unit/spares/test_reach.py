"""From where volumes can be reached, and that no Pod is promised devices where it can't reach its own."""

from __future__ import annotations

from typing import Any

import pytest

from stack.spares.demand import read_demand
from stack.spares.fit import Outcome, Verdict, judge
from stack.spares.reach import Reach, reach_of_claims
from stack.spares.supply import read_supply
from tests import devices as make

Object = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
NAMES = frozenset({"cache"})
WAITS = {"slow": {"volumeBindingMode": "WaitForFirstConsumer"}}


def selector(key: str, *values: str) -> Object:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]}


def volume(labels: Object | None = None, *, affinity: Object | None = None) -> Object:
    spec: Object = {} if affinity is None else {"nodeAffinity": {"required": affinity}}
    return {"metadata": {"name": "pv", "labels": labels or {}}, "spec": spec}


def claim(volume_name: str | None = "pv", *modes: str) -> Object:
    spec: Object = {"accessModes": list(modes or ("ReadWriteOnce",)), "storageClassName": "slow"}
    return {"spec": spec if volume_name is None else spec | {"volumeName": volume_name}}


def reach(of: Object | None, held: Object | None = None, classes: Object | None = WAITS) -> Reach | None:
    claims: Object = {} if of is None else {"cache": of}
    return reach_of_claims(NAMES, claims, {} if held is None else {"pv": held}, classes).get("cache")


@pytest.mark.parametrize(
    ("of", "held", "want"),
    [
        pytest.param(None, None, None, id="a claim that this update makes"),
        pytest.param(claim(), volume(), Reach(), id="a volume that is everywhere"),
        pytest.param(
            claim(),
            volume(affinity=selector("host", "a")),
            Reach(selectors=(selector("host", "a"),)),
            id="a volume of one node",
        ),
        pytest.param(
            claim(), None, Reach(unknown="the volume of claim cache could not be read"), id="a volume that is not read"
        ),
        pytest.param(claim(None, "ReadWriteMany"), None, Reach(), id="no volume yet, and one for all nodes"),
        pytest.param(
            claim(None),
            None,
            Reach(unknown="claim cache has no volume yet, and gets one where its first Pod goes"),
            id="no volume yet, and one for some nodes",
        ),
    ],
)
def test_where_a_claim_can_be_used(of: Object | None, held: Object | None, want: Reach | None) -> None:
    assert reach(of, held) == want


def test_a_claim_that_gets_its_volume_at_once_and_has_none_yet_ties_nobody() -> None:
    assert reach(claim(None), classes={"slow": {"volumeBindingMode": "Immediate"}}) == Reach()
    assert (reach(claim(None), classes=None) or Reach()).unknown is not None, "the class could not be read"


def test_claims_that_could_not_be_read_are_not_known() -> None:
    assert reach_of_claims(NAMES, None, {}, {}) == {
        "cache": Reach(unknown="the claims that it mounts could not be read")
    }


# --- what comes of it for devices -------------------------------------------------------------------------------------


def verdict(held: Object, *, zone_of: dict[str, str] | None = None, pods: int = 1) -> Verdict:
    """Two nodes with devices for one Pod each; the Pods mount the claim of this volume."""
    zones = {"a": "z1", "b": "z2"} if zone_of is None else zone_of
    names = ("a", "b")
    nodes = [make.node(name, labels={ZONE: zones[name]} if name in zones else {}) for name in names]
    supply = read_supply(
        nodes=nodes,
        pods=[],
        slices=[make.resource_slice("npu.x", make.devices("npu", 4), on=name) for name in names],
        classes={"npu": make.device_class("npu", 'device.driver == "npu.x"')},
        claims=[],
    )
    mounts = [{"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}}]
    reaches = reach_of_claims(NAMES, {"cache": claim()}, {"pv": held}, {})
    template = make.pod_template("t", volumes=mounts)
    demand = read_demand("decode", template, {"t": make.claim_spec(make.request("npu", "npu", 4))}, reaches)
    return judge(supply, [(demand, pods)])


@pytest.mark.parametrize(
    ("held", "fits"),
    [
        pytest.param(volume(), 2, id="anywhere"),
        pytest.param(volume(affinity=selector("kubernetes.io/hostname", "b")), 1, id="on one node"),
        pytest.param(volume({ZONE: "z1"}), 1, id="in one zone"),
        pytest.param(volume({"failure-domain.beta.kubernetes.io/zone": "z1"}), 1, id="in one zone of old"),
        pytest.param(volume({ZONE: "z1__z2"}), 2, id="in two zones"),
        pytest.param(volume({ZONE: "z1"}, affinity=selector("kubernetes.io/hostname", "b")), 0, id="nowhere"),
    ],
)
def test_devices_count_where_the_volume_can_be_reached(held: Object, fits: int) -> None:
    assert verdict(held, pods=max(fits, 1)).outcome is (Outcome.ANY_ORDER if fits else Outcome.CANNOT)
    assert verdict(held, pods=fits + 1).outcome is Outcome.CANNOT


def test_a_node_that_says_nothing_of_its_zone_will_do_for_any() -> None:
    assert verdict(volume({ZONE: "z9"}), zone_of={"a": "z1"}).outcome is Outcome.ANY_ORDER
    assert verdict(volume({ZONE: "z9"}), zone_of={"a": "z1"}, pods=2).outcome is Outcome.CANNOT


def test_a_volume_that_is_not_known_leaves_it_unknown() -> None:
    template = make.pod_template(volumes=[{"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}}])
    reaches = reach_of_claims(NAMES, {"cache": claim()}, {}, {})
    assert read_demand("decode", template, {}, reaches).unknown == ("the volume of claim cache could not be read",)
