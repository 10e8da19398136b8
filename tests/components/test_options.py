"""The options of each object, which decide what the engine does at a change. Reasons stand in the components."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from stack.facts import ClaimFacts, ClusterFacts
from tests.builders import plan
from tests.components.programs import PLANS, whole_stack

if TYPE_CHECKING:
    from collections.abc import Callable

    from stack.planned import StackPlan
    from tests.components.recorder import Recorded, Recorder, Stage

NAMED_BY_CONTENT = re.compile(r"^rel-(serve-(prefill|decode|aggregated)|epp|devices)-[0-9a-f]{8}$")
IGNORED_ON_VOLUMES = [
    "spec.storageClassName",
    "spec.accessModes",
    "spec.selector",
    "spec.volumeName",
    "spec.volumeMode",
    "metadata.finalizers",
    'metadata.annotations["pv.kubernetes.io/bind-completed"]',
    'metadata.annotations["pv.kubernetes.io/bound-by-controller"]',
    'metadata.annotations["volume.kubernetes.io/storage-provisioner"]',
    'metadata.annotations["volume.beta.kubernetes.io/storage-provisioner"]',
    'metadata.annotations["volume.kubernetes.io/selected-node"]',
]


def name_in_cluster(recorded: Recorded) -> str:
    return recorded.inputs["metadata"]["name"]


def workloads(seen: Recorder, planned: StackPlan) -> list[Recorded]:
    names = {workload.object.name for workload in planned.modelserver.workloads}
    return [r for r in seen.of("Deployment") if name_in_cluster(r) in names]


def scalers(seen: Recorder, planned: StackPlan) -> list[Recorded]:
    wanted = {(scaler.object.kind, scaler.object.name) for scaler in planned.modelserver.scalers}
    return [r for r in seen.objects if (r.kind, name_in_cluster(r)) in wanted]


def anchor(seen: Recorder) -> Recorded:
    return seen.named("rel-topology", "ConfigMap")


def seats(seen: Recorder) -> dict[str, Recorded]:
    """Role -> its seat."""
    return {recorded.name.removeprefix("rel-"): recorded for recorded in seen.of("RoleSeat")}


# --- every object -----------------------------------------------------------------------------------------------------


def test_every_object_uses_the_one_explicit_provider(seen: Recorder) -> None:
    assert {r.options["provider"] for r in seen.objects} == {"cluster"}


def test_what_has_a_fixed_name_is_deleted_before_it_is_replaced(seen: Recorder) -> None:
    for recorded in seen.objects:
        is_by_content = NAMED_BY_CONTENT.match(name_in_cluster(recorded)) is not None
        assert recorded.request.deleteBeforeReplaceDefined, "the engine's own choice is create-first"
        assert recorded.request.deleteBeforeReplace != is_by_content, recorded.name


def test_what_pods_read_and_what_is_immutable_is_named_by_its_content(seen: Recorder) -> None:
    for recorded in [*seen.of("ConfigMap"), *seen.of("ResourceClaimTemplate")]:
        if recorded.name not in {"rel-topology", "rel-dashboard"}:  # no Pod of the stack reads these
            assert NAMED_BY_CONTENT.match(name_in_cluster(recorded)), recorded.name
            assert name_in_cluster(recorded).rpartition("-")[2] == recorded.name.rpartition("-")[2], (
                "the hash stands in the logical name too, so that a change is another resource"
            )


def test_only_volumes_are_retained(seen: Recorder) -> None:
    retained = {r.urn for r in seen.resources if r.request.retainOnDelete}
    assert retained == {r.urn for r in seen.of("PersistentVolumeClaim")}
    assert not any(r.request.protect for r in seen.resources), "a protected object would stop a mode switch"


def test_no_object_has_a_delete_hook(seen: Recorder) -> None:
    """`pulumi destroy` would refuse."""
    for recorded in seen.resources:
        moments = set(recorded.options.get("hooks", {}))
        assert not moments & {"before_delete", "after_delete"}


def test_only_workloads_have_hooks_and_stand_in_the_replaced_set(seen: Recorder, planned: StackPlan) -> None:
    mine, scaling = {r.urn for r in workloads(seen, planned)}, {r.urn for r in scalers(seen, planned)}
    for option, want in (("hooks", mine), ("deletedWith", mine), ("replaceWith", mine | scaling)):
        assert {r.urn for r in seen.resources if option in r.options} == want
    assert {r.urn for r in seen.resources if "replaceOnChanges" in r.options} == {anchor(seen).urn}
    triggered = {r.urn for r in seen.resources if "replacementTrigger" in r.options}
    assert triggered == {r.urn for r in (*seats(seen).values(), *seen.of("ScalerSeat"))}


def test_property_paths_are_written_as_kubernetes_writes_them(seen: Recorder) -> None:
    """A path in snake case would be sent as it is and match nothing."""
    for recorded in seen.objects:
        for path in (*recorded.request.ignoreChanges, *recorded.request.replaceOnChanges):
            assert re.fullmatch(r'data|(spec|metadata)(\.[a-z][A-Za-z]*)+(\["[a-z./-]+"\])?', path), path


# --- the anchor -------------------------------------------------------------------------------------------------------


def test_the_anchor_is_replaced_when_its_data_change_and_the_data_are_the_key(
    seen: Recorder, planned: StackPlan
) -> None:
    """What is refreshed decides, and not what an update of long ago left in the state.

    A replacement trigger is the state's: an outdated one holds an earlier key, and the engine would take down Pods that
    are as wanted.
    """
    assert anchor(seen).options["replaceOnChanges"] == ["data"]
    assert "replacementTrigger" not in anchor(seen).options
    assert anchor(seen).inputs["data"] == {"key": planned.modelserver.topology.key}
    assert anchor(seen).request.deleteBeforeReplace


@pytest.mark.parametrize("preview", [False, True], ids=["update", "preview"])
def test_the_key_is_plain_text_that_a_preview_knows(
    situation: str, recording: Callable[[str, bool], Recorder], preview: bool
) -> None:
    """An unknown one would show every preview as a replacement, or none."""
    assert re.fullmatch("[0-9a-f]{10}", anchor(recording(situation, preview)).inputs["data"]["key"])


def test_another_key_is_the_only_change_of_data_that_a_configuration_can_make(declare: Stage) -> None:
    """Of two configurations with one key the anchor stays, whatever else is changed; its metadata may be updated."""
    first = declare(whole_stack(plan()))
    again = declare(whole_stack(plan(modelserver={"replicas": {"decode": 0}, "image": {"tag": "9.9.9"}})))
    other = declare(whole_stack(plan(modelserver={"replicas": {"aggregated": 1}})))
    assert anchor(again).inputs["data"] == anchor(first).inputs["data"]
    assert anchor(other).inputs["data"] != anchor(first).inputs["data"]


def test_the_anchor_waits_for_the_last_pod_to_leave(seen: Recorder, planned: StackPlan) -> None:
    seconds = planned.modelserver.topology.leave_seconds
    assert anchor(seen).options["customTimeouts"] == {"delete": f"{seconds}s"}
    assert seconds > max(workload.leave_seconds for workload in planned.modelserver.workloads)


def test_the_anchor_comes_after_all_the_rest_and_so_leaves_before_it(seen: Recorder, planned: StackPlan) -> None:
    """So whatever else fails does so while everything runs, and the last Pod drains while its way is still there."""
    others = (*workloads(seen, planned), *scalers(seen, planned))
    stand_on_it = {recorded.urn for recorded in (anchor(seen), *others)}
    rest = [recorded for recorded in seen.objects if recorded.urn not in stand_on_it]
    assert set(anchor(seen).request.dependencies) == {recorded.urn for recorded in rest}
    servers = planned.modelserver
    assert len(rest) == len(planned.objects()) - 1 - len(servers.workloads) - len(servers.scalers)


def test_the_data_path_that_outlives_the_pods_is_all_there(seen: Recorder) -> None:
    kinds = {kind for r in seen.objects if r.name in anchor(seen).options["dependsOn"] for kind in [r.kind]}
    assert {"ConfigMap", "Deployment", "Service", "ServiceAccount", "Role", "RoleBinding"} <= kinds
    assert kinds >= {r.kind for r in seen.objects} & {
        "Gateway",
        "HTTPRoute",
        "InferencePool",
        "DestinationRule",
        "ResourceClaimTemplate",
        "PersistentVolumeClaim",
        "PodMonitor",
        "VMPodScrape",
    }


# --- seats ------------------------------------------------------------------------------------------------------------

SEATS = {
    "the smallest": {"prefill": "taken", "decode": "taken", "aggregated": "empty"},
    "everything made by the stack": {"prefill": "taken", "decode": "taken", "aggregated": "empty"},
    "aggregated, nothing made but what must be": {"prefill": "empty", "decode": "empty", "aggregated": "taken"},
    "roles that are scaled": {"prefill": "taken", "decode": "taken", "aggregated": "empty"},
    "a role that AIBrix scales": {"prefill": "empty", "decode": "empty", "aggregated": "taken"},
    # Each entry is a Deployment of its own, and what is dropped from the end of the list frees nothing for the others.
    "entries on nodes": {},
}


def test_every_role_has_a_seat_that_says_whether_it_has_pods(situation: str, seen: Recorder) -> None:
    """Also a role without: else there would be nothing to replace, and so no order, when it loses its Pods."""
    triggers = {role: recorded.options["replacementTrigger"] for role, recorded in seats(seen).items()}
    assert triggers == SEATS[situation]


def test_a_seat_is_replaced_at_once_and_stands_on_the_anchor_alone(seen: Recorder) -> None:
    for recorded in seats(seen).values():
        assert recorded.options.keys() == {"deleteBeforeReplace", "dependsOn", "parent", "replacementTrigger"}
        assert recorded.options["dependsOn"] == ["rel-topology"]


@pytest.mark.parametrize(
    ("replicas", "want"),
    [
        pytest.param({"prefill": 2, "decode": 2}, {"prefill": "taken", "decode": "taken"}, id="both run"),
        pytest.param({"prefill": 0, "decode": 4}, {"prefill": "empty", "decode": "taken"}, id="one at 0"),
        pytest.param({"prefill": 1, "decode": 3}, {"prefill": "taken", "decode": "taken"}, id="other numbers"),
    ],
)
def test_only_the_way_to_0_and_back_replaces_a_seat(
    declare: Stage, replicas: dict[str, int], want: dict[str, str]
) -> None:
    seen = declare(whole_stack(plan(modelserver={"replicas": replicas})))
    found = {role: recorded.options["replacementTrigger"] for role, recorded in seats(seen).items()}
    assert found == want | {"aggregated": "empty"}


def test_the_seats_of_every_situation_are_written_down() -> None:
    assert SEATS.keys() == PLANS.keys()


# --- scalers ----------------------------------------------------------------------------------------------------------


def test_a_scaler_has_a_seat_that_says_what_it_is_and_goes_with_it(seen: Recorder, planned: StackPlan) -> None:
    """So that it is deleted before any workload changes: when it goes for good, and when another kind takes over."""
    found = {r.name: r for r in seen.of("ScalerSeat")}
    triggers = {name: r.options["replacementTrigger"] for name, r in found.items()}
    of = {scaler.role: scaler.provider for scaler in planned.modelserver.scalers}
    assert triggers == {f"rel-{role}-scaler": of.get(role, "none") for role in ("prefill", "decode", "aggregated")}
    assert all(r.options["deleteBeforeReplace"] and r.options["dependsOn"] == ["rel-topology"] for r in found.values())
    for scaler in planned.modelserver.scalers:
        recorded = seen.named(f"rel-{scaler.object.logical_name}", scaler.object.kind)
        assert list(recorded.request.replace_with) == [found[f"rel-{scaler.role}-scaler"].urn]
        assert recorded.options["dependsOn"] == [f"rel-{scaler.role}"], "after its Deployment, and before it at destroy"


def test_who_scales_owns_the_number_of_pods(seen: Recorder, planned: StackPlan) -> None:
    scaled = {scaler.workload for scaler in planned.modelserver.scalers}
    for recorded in workloads(seen, planned):
        is_scaled = name_in_cluster(recorded) in scaled
        assert ("replicas" in recorded.inputs["spec"]) is not is_scaled
        assert recorded.options.get("ignoreChanges", []) == (["spec.replicas"] if is_scaled else [])


# --- workloads --------------------------------------------------------------------------------------------------------


def test_workloads_are_owned_by_the_anchor_and_go_with_it(seen: Recorder, planned: StackPlan) -> None:
    for recorded in workloads(seen, planned):
        [owner] = recorded.inputs["metadata"]["ownerReferences"]
        assert owner == planned.modelserver.topology.owner_reference(owner["uid"]), "as it was tried in the dry run"
        assert owner["uid"], "without it the garbage collector would take the workload at once"
        assert recorded.request.deletedWith == anchor(seen).urn, "never a seat, which takes nothing along"
        assert recorded.options["dependsOn"] == ["rel-topology"]


def test_workloads_are_replaced_with_the_anchor_and_with_the_seat_of_their_own_role(
    seen: Recorder, planned: StackPlan
) -> None:
    roles = {workload.object.name: workload.role for workload in planned.modelserver.workloads}
    for recorded in workloads(seen, planned):
        own = seats(seen).get(roles[name_in_cluster(recorded)])
        want = {anchor(seen).urn, *([] if own is None else [own.urn])}
        assert set(recorded.request.replace_with) == want


def test_workloads_have_all_the_time_they_may_need(seen: Recorder, planned: StackPlan) -> None:
    by_name = {workload.object.name: workload for workload in planned.modelserver.workloads}
    for recorded in workloads(seen, planned):
        workload = by_name[name_in_cluster(recorded)]
        seconds = f"{workload.timeout_seconds}s"
        assert recorded.options["customTimeouts"] == {"create": seconds, "update": seconds, "delete": seconds}
        assert workload.timeout_seconds >= workload.ready_seconds + workload.leave_seconds


def test_workloads_wait_for_devices_and_have_no_other_hook(seen: Recorder, planned: StackPlan) -> None:
    for recorded in workloads(seen, planned):
        assert recorded.options["hooks"] == {"before_create": ["rel-devices-free"]}


def test_scrape_objects_come_after_the_router(seen: Recorder, planned: StackPlan) -> None:
    """Among them a token Secret, which Kubernetes deletes while the EPP's ServiceAccount is not there."""
    router = {f"rel-{o.logical_name}" for o in planned.router}
    assert "rel-epp-service-account" in router
    for scrape in planned.monitoring:
        assert set(seen.named(f"rel-{scrape.logical_name}", scrape.kind).options["dependsOn"]) == router


def test_the_endpoint_picker_is_no_workload_of_the_anchor(seen: Recorder) -> None:
    """It routes while the model servers drain."""
    epp = seen.named("rel-epp", "Deployment")
    assert "ownerReferences" not in epp.inputs["metadata"]
    assert {"deletedWith", "replaceWith", "hooks"}.isdisjoint(epp.options)


# --- volumes ----------------------------------------------------------------------------------------------------------


def test_volumes_are_never_replaced_and_ignore_what_would_replace_them(seen: Recorder) -> None:
    for recorded in seen.of("PersistentVolumeClaim"):
        assert recorded.options["ignoreChanges"] == IGNORED_ON_VOLUMES
        assert {"replaceWith", "replacementTrigger", "replaceOnChanges", "protect", "deletedWith"}.isdisjoint(
            recorded.options
        )


def test_volumes_are_known_by_namespace_and_name(seen: Recorder) -> None:
    for recorded in seen.of("PersistentVolumeClaim"):
        assert recorded.name == f"ns-{name_in_cluster(recorded)}"


@pytest.mark.parametrize(
    ("claims", "want"),
    [
        (None, {}),
        ((), {}),
        (
            ("rel-compile-cache-decode", "foreign"),
            {"rel-compile-cache-decode": "ns/rel-compile-cache-decode"},
        ),
    ],
    ids=["the claims are not known", "there are none", "one is left from an earlier install"],
)
def test_only_claims_that_are_there_are_taken_over(
    declare: Stage, claims: tuple[str, ...] | None, want: dict[str, str]
) -> None:
    known = None if claims is None else {name: ClaimFacts(name=name, instance="rel") for name in claims}
    seen = declare(whole_stack(plan(ClusterFacts(claims=known))))
    taken = {name_in_cluster(r): r.request.importId for r in seen.objects if r.request.importId}
    assert taken == want


def test_the_other_objects_ignore_nothing(seen: Recorder, planned: StackPlan) -> None:
    scaled = {scaler.workload for scaler in planned.modelserver.scalers}
    ignoring = [r for r in seen.objects if "ignoreChanges" in r.options and name_in_cluster(r) not in scaled]
    assert {r.kind for r in ignoring} <= {"PersistentVolumeClaim"}


def test_the_situations_cover_every_kind_of_object() -> None:
    """Else a rule above would hold for want of anything to hold for."""
    kinds = {o.kind for planned in PLANS.values() for o in planned.objects()}
    assert kinds == {
        *("ConfigMap", "Deployment", "PersistentVolumeClaim", "ResourceClaimTemplate", "Secret", "Service"),
        "PodDisruptionBudget",
        *("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"),
        *("DestinationRule", "Gateway", "HTTPRoute", "InferencePool"),
        *("PodMonitor", "PrometheusRule", "ServiceMonitor", "VMPodScrape", "VMRule", "VMServiceScrape"),
        *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
        *("HorizontalPodAutoscaler", "ScaledObject", "PodAutoscaler"),
    }
