"""What holds for every plan: of the stack files in the tree, of the tables below, and of whatever hypothesis finds."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.facts import NOTHING_READ
from stack.modelserver import SLACK_SECONDS
from stack.plan import plan_stack
from stack.planned import RollOutPlan
from stack.rules import accept
from stack.scalars import canonical
from tests.builders import EMPTY_CLUSTER, STACK_FILES, accepted, plan, plan_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stack.planned import StackPlan

LABEL_1035 = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
SUBDOMAIN = rf"(?=.{{1,253}}$){LABEL}(\.{LABEL})*"
NAMES = {"Service": LABEL_1035, "InferencePool": LABEL}
PATH_SEGMENT = r"(?!\.{1,2}$)[^/%]+"
RIGHTS = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def deployments(whole: StackPlan) -> list[dict[str, Any]]:
    return [o.manifest for o in whole.objects() if o.kind == "Deployment"]


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*spec.get("initContainers", []), *spec["containers"]]


def quantities(value: Any) -> Iterator[str]:
    """Every quantity of a manifest: below requests and limits, and size limits."""
    match value:
        case dict():
            for key, inner in cast("dict[str, Any]", value).items():
                if key in {"requests", "limits"} and isinstance(inner, dict):
                    yield from cast("dict[str, Any]", inner).values()
                elif key == "sizeLimit":
                    yield inner
                else:
                    yield from quantities(inner)
        case list():
            for item in cast("list[Any]", value):
                yield from quantities(item)
        case _:
            pass


def check(whole: StackPlan) -> None:
    """Fail on the first thing that no plan may have."""
    check_identities(whole)
    for manifest in deployments(whole):
        check_pod(manifest)
        check_wait(manifest)
        check_references(whole, manifest)
    check_pool(whole)
    check_roll_outs(whole)


def check_identities(whole: StackPlan) -> None:
    text = json.dumps([o.manifest for o in whole.objects()])
    assert json.loads(text) == [o.manifest for o in whole.objects()], "plain JSON, without tuples or numbers as keys"
    json.dumps([whole.applied, whole.outputs, [dict(w.contributions) for w in whole.modelserver.workloads]])
    assert not [name for name, count in Counter(o.logical_name for o in whole.objects()).items() if count > 1]
    seen = Counter((o.kind, o.manifest["metadata"].get("namespace"), o.name) for o in whole.objects())
    assert not [identity for identity, count in seen.items() if count > 1]
    for o in whole.objects():
        meta = o.manifest["metadata"]
        assert meta["annotations"]["pulumi.com/patchForce"] == "true"
        assert meta["annotations"]["pulumi.com/patchFieldManager"] == "serving-stack"
        assert meta["labels"]["app.kubernetes.io/instance"] == whole.release
        assert meta.get("namespace") == (None if o.kind in CLUSTER_SCOPED else whole.namespace)
        assert re.fullmatch(PATH_SEGMENT if o.kind in RIGHTS else NAMES.get(o.kind, SUBDOMAIN), o.name), (
            o.kind,
            o.name,
        )
        assert all(len(value) <= 63 for value in meta["labels"].values())
        assert o.kind != "Secret" or not {"data", "stringData"} & o.manifest.keys()
        is_read_by_none_of_ours = o == whole.modelserver.topology.anchor or o.logical_name == "dashboard"
        is_immutable = o.kind in {"ConfigMap", "ResourceClaimTemplate"} and not is_read_by_none_of_ours
        assert o.is_named_by_content == is_immutable
        assert not is_immutable or re.search(r"-[0-9a-f]{8}$", o.name)
        assert [q for q in quantities(o.manifest) if q != canonical(q)] == []


def check_pod(manifest: dict[str, Any]) -> None:
    template = manifest["spec"]["template"]
    selector = manifest["spec"]["selector"]["matchLabels"]
    assert selector.items() <= template["metadata"]["labels"].items()
    assert "app.kubernetes.io/instance" in selector
    assert all(len(value) <= 63 for value in template["metadata"]["labels"].values())
    assert len(manifest["metadata"]["name"]) <= 63 - len("-0123456789-01234")
    spec = template["spec"]
    volumes = [volume["name"] for volume in spec["volumes"]]
    assert len(volumes) == len(set(volumes))
    ports = [port for container in containers(spec) for port in container.get("ports", [])]
    for key in ("name", "containerPort"):
        assert len({port[key] for port in ports}) == len(ports), "containers of a Pod share its address"
    assert all(len(port["name"]) <= 15 for port in ports)
    claims = [claim["name"] for claim in spec.get("resourceClaims", [])]
    for container in containers(spec):
        assert not is_refused_by_the_kubelet(spec, container), container["name"]
        mounts = container.get("volumeMounts", [])
        assert {mount["name"] for mount in mounts} <= set(volumes)
        assert len({mount["mountPath"] for mount in mounts}) == len(mounts)
        names = [entry["name"] for entry in container.get("env", [])]
        assert len(names) == len(set(names))
        assert {claim["name"] for claim in container.get("resources", {}).get("claims", [])} <= set(claims)


def is_refused_by_the_kubelet(spec: dict[str, Any], container: dict[str, Any]) -> bool:
    """Root by number under runAsNonRoot; the container's own word counts, else the Pod's."""
    in_force = {**spec["securityContext"], **container["securityContext"]}
    return in_force.get("runAsUser") == 0 and in_force.get("runAsNonRoot", False)


def check_wait(manifest: dict[str, Any]) -> None:
    """The program awaits every roll-out, and the provider has nothing to wait for."""
    assert manifest["metadata"]["annotations"]["pulumi.com/waitFor"] == "jsonpath={.metadata.uid}"


def check_references(whole: StackPlan, manifest: dict[str, Any]) -> None:
    """What a Pod names is in the plan, or the operator's."""
    made = {(o.kind, o.name) for o in whole.objects()}
    spec = manifest["spec"]["template"]["spec"]
    for volume in spec["volumes"]:
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in made
        claim = volume.get("persistentVolumeClaim", {}).get("claimName", "")
        assert not claim.startswith(f"{whole.release}-") or ("PersistentVolumeClaim", claim) in made
    assert ("ServiceAccount", spec["serviceAccountName"]) in made or spec["serviceAccountName"] == "given"
    for claim in spec.get("resourceClaims", []):
        name = claim["resourceClaimTemplateName"]
        assert not name.startswith(f"{whole.release}-") or ("ResourceClaimTemplate", name) in made


def check_pool(whole: StackPlan) -> None:
    """The pool selects every role Pod and no other, at all ports where it serves."""
    for pool in (o.manifest["spec"] for o in whole.objects() if o.kind == "InferencePool"):
        targets = {port["number"] for port in pool["targetPorts"]}
        assert 1 <= len(targets) <= 8
        for manifest in deployments(whole):
            pod = manifest["spec"]["template"]["metadata"]
            is_selected = pool["selector"]["matchLabels"].items() <= pod["labels"].items()
            is_server = "llm-d.ai/role" in pod["labels"]
            assert is_selected == is_server
            if is_server:
                active = pod["annotations"]["inference.networking.k8s.io/active-ports"].split(",")
                assert set(map(int, active)) <= targets


def check_roll_outs(whole: StackPlan) -> None:
    """Each Deployment is awaited: those of model servers to the last Pod, the EPP until one of its Pods serves."""
    workloads = {workload.object.name: workload for workload in whole.modelserver.workloads}
    scalers = {each.workload: f"{each.object.kind.lower()} {each.object.name}" for each in whole.modelserver.scalers}
    assert whole.roll_outs.keys() == {manifest["metadata"]["name"] for manifest in deployments(whole)}
    for manifest in deployments(whole):
        name, spec = manifest["metadata"]["name"], manifest["spec"]
        workload, found = workloads.get(name), whole.roll_outs[name]
        assert found == RollOutPlan(
            name=name,
            scaler=scalers.get(name, ""),
            part="epp" if workload is None else workload.role,
            selector=spec["selector"]["matchLabels"],
            pods=spec["replicas"] if workload is None else workload.replicas,
            ready=1 if workload is None else workload.replicas,
            floor=None if workload is None else workload.floor,
            awaits_leave=workload is not None,
            is_owned=workload is not None,
            timeout_seconds=found.timeout_seconds,
            patience_seconds=whole.applied["rollout"]["patienceSeconds"],
        )
        assert found.timeout_seconds >= spec["progressDeadlineSeconds"], "Kubernetes may say first that it is stuck"
        leave = spec["template"]["spec"]["terminationGracePeriodSeconds"]
        assert found.timeout_seconds > leave, "the last old Pod may have to go before the first new one is Ready"
        assert workload is None or found.timeout_seconds == workload.timeout_seconds, "as long as the engine waits"


def check_applied(whole: StackPlan) -> None:
    """The applied configuration is a stack file that gives the same plan, and says of itself what it says."""
    again = plan_stack(accept(json.loads(json.dumps(whole.applied)), context=whole.provider.context), NOTHING_READ)
    # Warnings name the place where a value is written, and now all of them are.
    assert replace(again, warnings=()) == replace(whole, warnings=())


CLAIM: dict[str, Any] = {
    "requests": [
        {"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 4},
        {"name": "nic", "deviceClassName": "dranet", "count": 2},
    ]
}
MONITORED: dict[str, Any] = {
    "enabled": True,
    "scraper": {"serviceAccount": {"name": "vmagent", "namespace": "monitoring"}},
}
ROOT: dict[str, Any] = {"runAsUser": 0, "runAsNonRoot": False}
SITUATIONS: dict[str, dict[str, Any]] = {
    "the reference": {},
    "the longest release": {
        "release": "r" * 32,
        "namespace": "n" * 63,
        "monitoring": MONITORED,
        "gateway": {"name": "g"},
        "rollout": {"protectTopology": True},
    },
    "aggregated": {"modelserver": {"replicas": {"aggregated": 3}}, "devices": {"rdma": {"enabled": False}}},
    "placed": {"modelserver": {"nodePlacement": [{"role": r, "node": "n1"} for r in ("prefill", "decode", "decode")]}},
    "a managed claim": {"devices": {"claimTemplate": CLAIM}},
    "GPUs": {"recipe": "gpt-oss-120b-nvidia"},
    "small": {"recipe": "qwen3-0.6b"},
    "root in one role, privileged in the other": {
        "modelserver": {
            "podOverrides": {
                "prefill": {"securityContext": ROOT | {"privileged": True, "allowPrivilegeEscalation": True}},
                "decode": {"podSecurityContext": ROOT, "securityContext": {"runAsNonRoot": False}},
            }
        }
    },
    "standalone": {"router": {"inferencePool": {"create": False}}, "gateway": {"enabled": False}},
    "monitored by Prometheus": {"monitoring": {"enabled": True, "provider": "prometheus-operator"}},
    "everything on": {
        "monitoring": MONITORED,
        "tracing": {"enabled": True},
        "storage": {
            "model": {"kind": "pvc", "existingClaim": None, "size": "1024Gi"},
            "modelOffload": {"enabled": True, "size": "2048Gi"},
        },
        "modelserver": {"resources": {"requests": {"cpu": 0.5, "memory": "1000000"}}},
        "router": {"epp": {"replicas": 2, "resources": {"requests": {"cpu": "1000m"}}}},
        "imagePullSecrets": ["one"],
    },
}


@pytest.mark.parametrize("path", STACK_FILES, ids=lambda path: path.name)
def test_the_stack_file_plans(path: Any) -> None:
    check(plan_file(path))
    check_applied(plan_file(path))


@pytest.mark.parametrize("blocks", SITUATIONS.values(), ids=SITUATIONS)
def test_a_sound_plan_for(blocks: dict[str, Any]) -> None:
    check(plan(**blocks))
    check_applied(plan(**blocks))


@pytest.mark.parametrize("blocks", SITUATIONS.values(), ids=SITUATIONS)
def test_the_same_input_gives_the_same_plan_for(blocks: dict[str, Any]) -> None:
    again = plan_stack(accepted(**json.loads(json.dumps(blocks))), NOTHING_READ)
    before = plan(**blocks)
    assert again == before
    assert [json.dumps(o.manifest) for o in again.objects()] == [json.dumps(o.manifest) for o in before.objects()]


def test_the_order_in_which_keys_are_written_changes_nothing() -> None:
    def backwards(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: backwards(inner) for key, inner in reversed(cast("dict[str, Any]", value).items())}

    blocks: dict[str, Any] = SITUATIONS["everything on"] | {"devices": {"claimTemplate": CLAIM}}
    assert plan(**backwards(blocks)).objects() == plan(**blocks).objects()


def test_two_releases_in_one_namespace_share_no_object_and_select_no_pod_of_one_another() -> None:
    one, other = plan(release="one", monitoring=MONITORED), plan(release="one-more", monitoring=MONITORED)
    ours = {(o.kind, o.name) for o in one.objects()}
    assert ours.isdisjoint({(o.kind, o.name) for o in other.objects()})
    selectors = [manifest["spec"]["selector"]["matchLabels"] for manifest in deployments(one)]
    selectors += [o.manifest["spec"]["selector"]["matchLabels"] for o in one.objects() if o.kind == "InferencePool"]
    for manifest in deployments(other):
        found = manifest["spec"]["template"]["metadata"]["labels"]
        assert not [selector for selector in selectors if selector.items() <= found.items()]


def test_outputs_say_where_to_send_requests_and_what_things_are_called() -> None:
    found = plan(devices={"claimTemplate": CLAIM}).outputs
    assert found["endpoint"] == "http://rel-istio.ns.svc.cluster.local:80/v1"
    assert found["model"] == "MiniMaxAI/MiniMax-M2.7"
    assert found["names"]["workloads"] == ["rel-prefill", "rel-decode"]
    assert found["names"]["claims"] == ["rel-compile-cache-prefill", "rel-compile-cache-decode"]
    assert found["names"]["claimTemplate"].startswith("rel-devices-")
    assert (found["topology"]["mode"], found["topology"]["disaggregated"]) == ("replicas", True)
    assert found["devices"] == {"accelerators": 32, "nics": 16}


def test_warnings_of_the_rules_are_carried_along() -> None:
    [warning] = plan(EMPTY_CLUSTER, router={"epp": {"replicas": 2}}).warnings
    assert (warning.key, warning.value) == ("router.epp.replicas", "2")


def test_model_servers_and_the_epp_are_awaited_by_these_numbers() -> None:
    whole = plan(
        modelserver={"replicas": {"prefill": 2, "decode": 3}},
        router={"epp": {"replicas": 2}},
        rollout={"patienceSeconds": 7},
    )
    prefill = whole.modelserver.workloads[0]
    assert whole.roll_outs == {
        "rel-prefill": RollOutPlan(
            name="rel-prefill",
            part="prefill",
            selector={"app.kubernetes.io/instance": "rel", "app.kubernetes.io/component": "prefill"},
            pods=2,
            ready=2,
            awaits_leave=True,
            is_owned=True,
            # In the worst case one Pod after the other: it leaves, and the next one loads.
            timeout_seconds=2 * (prefill.ready_seconds + 140) + SLACK_SECONDS,
            patience_seconds=7,
        ),
        "rel-decode": RollOutPlan(
            name="rel-decode",
            part="decode",
            selector={"app.kubernetes.io/instance": "rel", "app.kubernetes.io/component": "decode"},
            pods=3,
            ready=3,
            awaits_leave=True,
            is_owned=True,
            timeout_seconds=3 * (prefill.ready_seconds + 110) + SLACK_SECONDS,
            patience_seconds=7,
        ),
        "rel-epp": RollOutPlan(
            name="rel-epp",
            part="epp",
            selector={"app.kubernetes.io/instance": "rel", "llm-d-router-gateway": "rel-epp"},
            pods=2,
            ready=1,  # the one that leads
            awaits_leave=False,
            is_owned=False,
            timeout_seconds=115 + 600,  # 60 s for streams, 55 s around them; then 10 minutes to start
            patience_seconds=7,
        ),
    }


def test_each_entry_is_awaited_for_itself() -> None:
    placed = [{"role": role, "node": "n1"} for role in ("prefill", "decode", "decode")]
    found = plan(modelserver={"nodePlacement": placed}).roll_outs
    assert {name: (each.part, each.pods) for name, each in found.items()} == {
        "rel-prefill-0": ("prefill", 1),
        "rel-decode-1": ("decode", 1),
        "rel-decode-2": ("decode", 1),
        "rel-epp": ("epp", 1),
    }
    assert found["rel-decode-2"].selector["serving-stack.dev/entry"] == "2"


def test_a_role_without_pods_is_not_awaited() -> None:
    assert set(plan(modelserver={"replicas": {"prefill": 0, "decode": 2}}).roll_outs) == {"rel-decode", "rel-epp"}


def test_the_provider_is_pinned_to_the_context_and_the_cluster() -> None:
    provider = plan(cluster={"identifier": "mine", "providerVersion": "4.25.0"}).provider
    assert (provider.context, provider.cluster_identifier, provider.version) == ("test", "mine", "4.25.0")


# --- any configuration ------------------------------------------------------------------------------------------------


def some(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Maps with any of these keys."""
    return st.fixed_dictionaries({}, optional=parts)


ROLES = st.sampled_from(["prefill", "decode"])
AMOUNTS: st.SearchStrategy[Any] = st.sampled_from(["1", "1500m", 0.5, 4, "1e1"])
SIZES = st.sampled_from(["1Gi", "1024Mi", "1.5Gi", "2000000000"])
LABELS = st.dictionaries(st.sampled_from(["team", "example.com/cost"]), st.sampled_from(["", "a", "b-c"]))
OVERRIDES = some(
    labels=LABELS,
    annotations=LABELS,
    nodeSelector=LABELS,
    resources=some(requests=some(cpu=AMOUNTS, memory=SIZES)),
    priorityClassName=st.just("high"),
    tolerations=st.just([{"operator": "Exists"}]),
    securityContext=st.just({"runAsUser": 1000}),
)
TOPOLOGIES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.tuples(st.integers(0, 5), st.integers(1, 5)).map(
        lambda counts: {"replicas": {"prefill": counts[0], "decode": counts[1]}}
    ),
    st.integers(1, 5).map(lambda a: {"replicas": {"aggregated": a}}),
    st.lists(
        st.fixed_dictionaries({"role": ROLES, "node": st.sampled_from(["n1", "n2.example.com"])}),
        min_size=1,
        max_size=9,
    ).map(lambda entries: {"nodePlacement": entries}),
)
MODELSERVERS = st.tuples(
    TOPOLOGIES,
    some(
        image=st.sampled_from([{"tag": "1.0"}, {"digest": f"sha256:{'0' * 64}"}, {"repository": "mirror.example/x"}]),
        strategy=st.sampled_from([{"type": "Recreate"}, {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "50%"}}]),
        serveArgs=some(common=some(seed=st.integers(0, 9)), decode=some(seed=st.integers(0, 9))),
        serveEnv=st.dictionaries(
            st.sampled_from(["A", "B"]), st.one_of(st.integers(0, 9), st.text("x: '#{", max_size=3))
        ),
        removeServeArgs=st.just(["speculative-config"]),
        podOverrides=some(prefill=OVERRIDES, decode=OVERRIDES),
        hfTokenSecret=st.none(),
        serviceAccountName=st.just("given"),
        resources=some(requests=some(cpu=AMOUNTS, memory=SIZES)),
    ),
).map(lambda parts: {**parts[0], **parts[1]})
NOTHING: dict[str, Any] = {}
DEVICES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just(NOTHING),
    st.just({"claimTemplateName": "mine"}),
    st.just({"claimTemplate": CLAIM}),
    st.just({"npu": {"mode": "devicePlugin"}, "rdma": {"enabled": False}}),
    st.just({"rdma": {"mode": "devicePlugin", "resourceName": "rdma/hca", "count": 1}}),
)
STORAGE = some(
    compileCache=st.one_of(
        some(size=SIZES, mountPath=st.just("/cache"), adopt=st.booleans()),
        st.just({"kind": "emptyDir"}),
        st.just({"storageClass": "fast"}),
    ),
    modelOffload=SIZES.map(lambda size: {"enabled": True, "size": size}),
    shm=SIZES.map(lambda size: {"sizeLimit": size}),
    tmp=SIZES.map(lambda size: {"sizeLimit": size}),
)
CONFIGS = some(
    release=st.from_regex(r"\A[a-z][a-z0-9-]{0,20}[a-z0-9]\Z"),
    modelserver=MODELSERVERS,
    devices=DEVICES,
    storage=STORAGE,
    gateway=some(enabled=st.booleans(), className=st.sampled_from(["istio", "agentgateway"])),
    router=some(
        inferencePool=some(create=st.booleans()),
        epp=some(replicas=st.integers(1, 3), drainSeconds=st.sampled_from([60, 600, 86400])),
    ),
    rollout=some(patienceSeconds=st.integers(1, 900), protectTopology=st.booleans()),
    routing=some(proxy=some(port=st.just(9000), resources=some(limits=some(cpu=AMOUNTS)))),
    monitoring=st.sampled_from([{}, MONITORED, {"enabled": True, "provider": "prometheus-operator"}]),
    tracing=some(enabled=st.booleans()),
    imagePullSecrets=st.just(["pull"]),
    eppServiceName=st.just("picker"),
)


@settings(deadline=None, max_examples=25)
@given(CONFIGS)
def test_any_configuration_that_is_accepted_has_a_sound_plan(blocks: dict[str, Any]) -> None:
    whole = plan_stack(accepted(**blocks), NOTHING_READ)
    check(whole)
    check_applied(whole)
