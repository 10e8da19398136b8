"""Whose leave a Pod without a node waits for."""

from __future__ import annotations

from typing import Any

import pytest

from stack.rollout.devices import asks_for_devices, gives_back_devices, who_holds
from tests import live
from tests.builders import merged
from tests.live import pod, resource_claim, with_claim, without_node

NPU, NIC, GPU = "npu.rebellions.ai", "dranet", "gpu.nvidia.com"
WAITING = with_claim(without_node("new"), "new-devices")
ASKED = resource_claim("new-devices", NPU)
ON_A_NODE: dict[str, Any] = {"spec": {"nodeName": "node-1"}}


def leaving(name: str = "old", claim: str | None = "old-devices", **over: Any) -> dict[str, Any]:
    going = pod(name, "old", **merged(merged(live.LEAVING, ON_A_NODE), over))
    return with_claim(going, claim) if claim is not None else going


def held(device_class: str = NPU, *, by: str = "old") -> dict[str, Any]:
    return resource_claim("old-devices", device_class, holder=by)


def holder(waiting: dict[str, Any], others: list[dict[str, Any]], claims: list[dict[str, Any]] | None) -> str | None:
    by_name = {claim["metadata"]["name"]: claim for claim in claims} if claims is not None else None
    found = who_holds([waiting], others, {"ns": by_name}).get(waiting["metadata"]["name"])
    return None if found is None else found["metadata"]["name"]


def first_available(*classes: str) -> dict[str, Any]:
    choices = [{"name": f"c{index}", "deviceClassName": name} for index, name in enumerate(classes)]
    return merged(ASKED, {"spec": {"devices": {"requests": [{"name": "npu", "firstAvailable": choices}]}}})


SHARED = merged(held(), {"status": {"reservedFor": [{"uid": "uid-old"}, {"uid": "uid-stays"}]}})


@pytest.mark.parametrize(
    ("sentence", "waiting", "others", "claims", "want"),
    [
        ("one leaves with a device of that class", WAITING, [leaving()], [ASKED, held()], "old"),
        ("of another class", WAITING, [leaving()], [ASKED, held(GPU)], None),
        ("of one of several classes that would do", WAITING, [leaving()], [first_available(GPU, NPU), held()], "old"),
        ("none of the classes that would do", WAITING, [leaving()], [first_available(GPU, NIC), held()], None),
        (
            "it holds its device and stays",
            WAITING,
            [with_claim(pod("x", **ON_A_NODE), "old-devices")],
            [ASKED, held()],
            None,
        ),
        ("it is over", WAITING, [leaving(status={"phase": "Failed"})], [ASKED, held()], None),
        (
            "it never had a node",
            WAITING,
            [with_claim(pod("old", **live.LEAVING), "old-devices")],
            [ASKED, held()],
            None,
        ),
        ("its claim is not allocated", WAITING, [leaving()], [ASKED, resource_claim("old-devices", NPU)], None),
        ("it has no claim any more", WAITING, [leaving()], [ASKED], None),
        ("it shares its claim with one that stays", WAITING, [leaving()], [ASKED, SHARED], None),
        ("it shares it with one that leaves too", WAITING, [leaving(), leaving("stays", None)], [ASKED, SHARED], "old"),
        ("none leaves", WAITING, [], [ASKED], None),
        ("no device is asked for", without_node("new"), [leaving()], [held()], None),
        ("its own claim was not made yet", WAITING, [leaving()], [held()], None),
        ("claims may not be read, and both have some", WAITING, [leaving()], None, "old"),
        ("claims may not be read, and the one that leaves has none", WAITING, [leaving(claim=None)], None, None),
        (
            "the first of several, by name",
            WAITING,
            [leaving("z"), leaving("y", "old-devices")],
            [ASKED, held(by="y")],
            "y",
        ),
    ],
)
def test_a_leaving_pod_holds_what_another_waits_for(
    sentence: str,
    waiting: dict[str, Any],
    others: list[dict[str, Any]],
    claims: list[dict[str, Any]] | None,
    want: str | None,
) -> None:
    assert holder(waiting, others, claims) == want, sentence


def with_resources(live_pod: dict[str, Any], where: str = "limits", **resources: str) -> dict[str, Any]:
    named = {name.replace("__", "/").replace("_", "."): count for name, count in resources.items()}
    return merged(live_pod, {"spec": {"containers": [{"name": "m", "resources": {where: named}}]}})


ATOMS = with_resources(without_node("new"), rebellions_ai__ATOM="4", cpu="1", memory="1Gi")


@pytest.mark.parametrize(
    ("sentence", "waiting", "other", "want"),
    [
        ("the same resource", ATOMS, with_resources(leaving(claim=None), rebellions_ai__ATOM="1"), "old"),
        ("by requests", ATOMS, with_resources(leaving(claim=None), "requests", rebellions_ai__ATOM="1"), "old"),
        ("another resource", ATOMS, with_resources(leaving(claim=None), nvidia_com__gpu="1"), None),
        ("only CPU, of which the scheduler knows more", ATOMS, with_resources(leaving(claim=None), cpu="1"), None),
        (
            "only huge pages",
            with_resources(without_node("new"), **{"hugepages-2Mi": "1Gi"}),
            with_resources(leaving(claim=None), **{"hugepages-2Mi": "1Gi"}),
            None,
        ),
        ("a claim, where a plain resource is waited for", ATOMS, leaving(), None),
    ],
)
def test_devices_of_a_device_plugin_go_by_the_name_of_their_resource(
    sentence: str, waiting: dict[str, Any], other: dict[str, Any], want: str | None
) -> None:
    assert holder(waiting, [other], [held()]) == want, sentence
    assert holder(waiting, [other], None) == want, f"{sentence}, and claims may not be read"


@pytest.mark.parametrize(
    ("host", "want"), [("node-1", "old"), ("node-2", None), (None, "old")], ids=["that node", "another", "any node"]
)
def test_only_a_device_on_a_node_that_may_be_used_would_do(host: str | None, want: str | None) -> None:
    selector = {} if host is None else {"kubernetes.io/hostname": host}
    pinned = merged(WAITING, {"spec": {"nodeSelector": {"kubernetes.io/arch": "amd64", **selector}}})
    assert holder(pinned, [leaving()], [ASKED, held()]) == want


def test_a_pod_of_another_namespace_counts_with_the_claims_of_its_own() -> None:
    theirs = merged(leaving(), {"metadata": {"namespace": "theirs"}})
    found = who_holds([WAITING], [theirs], {"ns": {"new-devices": ASKED}, "theirs": {"old-devices": held()}})
    assert found["new"]["metadata"]["namespace"] == "theirs"
    assert who_holds([WAITING], [theirs], {"ns": {"new-devices": ASKED, "old-devices": held()}, "theirs": {}}) == {}


def test_each_waiting_pod_is_told_its_own_holder() -> None:
    other = with_claim(without_node("other"), "other-devices")
    claims = {claim["metadata"]["name"]: claim for claim in (ASKED, held(), resource_claim("other-devices", GPU))}
    assert list(who_holds([WAITING, other], [leaving()], {"ns": claims})) == ["new"]


def test_a_claim_that_is_named_in_the_spec_counts_like_one_that_was_made_for_the_pod() -> None:
    named = without_node("new", spec={"resourceClaims": [{"name": "devices", "resourceClaimName": "new-devices"}]})
    assert holder(named, [leaving()], [ASKED, held()]) == "old"


def test_the_simple_questions() -> None:
    assert [asks_for_devices(p) for p in (WAITING, ATOMS, without_node("x"))] == [True, True, False]
    pods = (leaving(), pod("x", **ON_A_NODE), pod("x", **live.LEAVING))
    assert [gives_back_devices(each) for each in pods] == [True, False, False], "who has no node holds nothing"
