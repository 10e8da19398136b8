"""The embedded control plane, with the real servers: what it promises to those who deploy on it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from local import control_plane
from local.api import Api, ApiError, condition_is_true
from local.control_plane import ControlPlane, running_plane
from local.crds import COLLECTION, PROJECTS
from local.errors import ComponentDiedError, LocalError
from local.inventory import load_inventory
from local.inventory.render import INVENTORY_LABEL
from local.lws import CONFIGURATIONS, LWS_MANAGER, remove_webhooks
from local.ports import choose_ports
from local.processes import see_processes
from local.toolchain import ensure
from local.tools import PROGRAMS
from local.waiting import wait_until
from tests.e2e.processes import processes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from local.api import Object
    from local.tools import Tools

    Seen = dict[str, Object]
    Condition = Callable[[Seen], bool]

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
SECONDS = 60
NODES = ("npu-0", "npu-1")
NUMA = "resource.kubernetes.io/numaNode"
DELAY = "local.serving-stack.dev/startup-delay"
DRAIN = "local.serving-stack.dev/drain-delay"
FAILURE = "local.serving-stack.dev/failure"


@pytest.fixture(scope="module")
def tools() -> Tools:
    return ensure([*PROGRAMS, *PROJECTS])


@pytest.fixture(scope="module")
def planes(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[ControlPlane, ControlPlane]]:
    """Two planes, started at the same moment."""
    folders = [tmp_path_factory.mktemp(name) / name for name in ("left", "right")]
    with contextlib.ExitStack() as held:

        def start(folder: Path) -> ControlPlane:
            manager = running_plane(load_inventory("small"), folder, tools=tools, namespaces=["llm"])
            return held.enter_context(manager)

        with ThreadPoolExecutor(2) as pool:
            left, right = pool.map(start, folders)
        yield left, right


@dataclass(frozen=True, kw_only=True)
class Place:
    """A namespace of one test on a plane that tests share one after the other."""

    api: Api
    namespace: str

    def collection(self, kind: str, api_version: str = "v1") -> str:
        return self.api.collection_of(api_version, kind, namespace=self.namespace)

    def create(self, manifest: Object) -> Object:
        return self.api.create({**manifest, "metadata": {**manifest["metadata"], "namespace": self.namespace}})

    def pods(self, satisfied: Condition, what: str) -> Seen:
        """Wait until the Pods of this namespace, by name, satisfy."""
        found = self.api.wait_for(
            self.collection("Pod"),
            lambda seen: satisfied({key.partition("/")[2]: pod for key, pod in seen.items()}),
            timeout=SECONDS,
            what=what,
        )
        return {key.partition("/")[2]: pod for key, pod in found.items()}

    def claims(self) -> dict[str, Object]:
        """ResourceClaims by the Pod they belong to."""
        listed = self.api.list(self.collection("ResourceClaim", "resource.k8s.io/v1"))
        return {str(claim["metadata"]["ownerReferences"][0]["name"]): claim for claim in listed}

    def event(self, name: str, reason: str) -> Object:
        """Wait for an event about an object."""
        found = self.api.wait_for(
            self.collection("Event"),
            lambda seen: any(
                event["involvedObject"]["name"] == name and event["reason"] == reason for event in seen.values()
            ),
            timeout=SECONDS,
            what=f"event {reason} of {name}",
        )
        return next(
            event for event in found.values() if event["involvedObject"]["name"] == name and event["reason"] == reason
        )


@pytest.fixture
def place(planes: tuple[ControlPlane, ControlPlane], request: pytest.FixtureRequest) -> Generator[Place]:
    """A namespace on the left plane in which an operator has prepared the claim template; its devices are all free."""
    api = planes[0].api
    named = re.sub(r"[^a-z0-9]+", "-", str(request.node.name).lower())[5:50].strip("-")
    created = api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": f"{named}-"}})
    namespace = str(created["metadata"]["name"])
    [template] = [each for each in load_inventory("small").namespace_objects if each["kind"] == "ResourceClaimTemplate"]
    here = Place(api=api, namespace=namespace)
    here.create(template)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_until(lambda: api.find(path), timeout=SECONDS, what="the default ServiceAccount")
    yield here
    for pod in api.list(here.collection("Pod")):
        api.delete(f"{here.collection('Pod')}/{pod['metadata']['name']}", grace_seconds=0)
    here.pods(lambda seen: not seen, "the Pods of the test to be gone")
    wait_until(lambda: not here.claims(), timeout=SECONDS, what="the claims of the test to be gone")
    api.delete(f"/api/v1/namespaces/{namespace}")


def pod(name: str, *, annotations: dict[str, str] | None = None, claims: bool = False, **spec: Any) -> Object:
    container: Object = {"name": "modelserver", "image": "example.com/vllm:1"}
    content: Object = {"containers": [container], **spec}
    if claims:
        container["resources"] = {"claims": [{"name": "devices"}]}
        content["resourceClaims"] = [{"name": "devices", "resourceClaimTemplateName": "npu-rdma"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": content,
    }


def are_ready(names: Iterable[str]) -> Condition:
    wanted = set(names)
    return lambda seen: all(name in seen and condition_is_true(seen[name], "Ready") for name in wanted)


def container(item: Object) -> Object:
    return item["status"]["containerStatuses"][0]


# -- two planes -------------------------------------------------------------------------------------------------------


def test_planes_run_side_by_side_and_know_nothing_of_each_other(planes: tuple[ControlPlane, ControlPlane]) -> None:
    left, right = planes
    ports = [port for plane in planes for port in plane.record.ports.values()]
    assert len(set(ports)) == len(ports) == 8
    assert (left.context, right.context) == ("serving-stack-left", "serving-stack-right")
    for plane in planes:
        assert {node["metadata"]["name"] for node in plane.api.list("/api/v1/nodes")} == set(NODES)
        assert plane.status().state == "running"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "only-left", "namespace": "llm"}}
    left.api.create(secret)
    assert right.api.find("/api/v1/namespaces/llm/secrets/only-left") is None
    assert (
        left.api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
        != (right.api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"])
    )


def test_a_plane_that_somebody_holds_is_not_taken_over(tools: Tools, planes: tuple[ControlPlane, ControlPlane]) -> None:
    with pytest.raises(LocalError, match=f"held by process {os.getpid()}"):
        ControlPlane.start(load_inventory("small"), planes[0].folder, tools=tools)


def test_the_token_of_one_plane_opens_no_other(planes: tuple[ControlPlane, ControlPlane]) -> None:
    left, right = planes
    intruder = Api(server=right.server, ca=right.api.ca, token=left.api.token)
    with pytest.raises(ApiError) as refused:
        intruder.list("/api/v1/nodes")
    assert refused.value.status == 401


def test_the_kubeconfig_works_with_kubectl(planes: tuple[ControlPlane, ControlPlane]) -> None:
    kubectl = str(ensure(["kubectl"]).path("kubectl"))
    shown = subprocess.run(
        [kubectl, "--context", "serving-stack-left", "get", "nodes", "-o", "name"],
        env={"KUBECONFIG": str(planes[0].kubeconfig), "HOME": str(planes[0].folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split() == [f"node/{name}" for name in NODES]


def test_every_crd_is_established(planes: tuple[ControlPlane, ControlPlane]) -> None:
    for plane in planes:
        crds = {str(crd["metadata"]["name"]): crd for crd in plane.api.list(COLLECTION)}
        assert [name for name, crd in crds.items() if not condition_is_true(crd, "Established")] == []
        assert set(crds) >= {
            "gateways.gateway.networking.k8s.io",
            "httproutes.gateway.networking.k8s.io",
            "inferencepools.inference.networking.k8s.io",
            "inferenceobjectives.inference.networking.x-k8s.io",
            "leaderworkersets.leaderworkerset.x-k8s.io",
            "disaggregatedsets.disaggregatedset.x-k8s.io",
            "scaledobjects.keda.sh",
            "podautoscalers.autoscaling.aibrix.ai",
            "prometheusrules.monitoring.coreos.com",
            "podmonitors.monitoring.coreos.com",
            "servicemonitors.monitoring.coreos.com",
            "destinationrules.networking.istio.io",
            "vmpodscrapes.operator.victoriametrics.com",
            "vmservicescrapes.operator.victoriametrics.com",
            "vmrules.operator.victoriametrics.com",
        }


VICTORIA = "operator.victoriametrics.com/v1beta1"
AIBRIX = "autoscaling.aibrix.ai/v1alpha1"
SELECTOR = {"matchLabels": {"llm-d.ai/role": "prefill"}}
DECODE = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "rel-decode"}
OUR_OWN: dict[tuple[str, str], Object] = {
    (VICTORIA, "VMPodScrape"): {
        "selector": SELECTOR,
        "podMetricsEndpoints": [{"port": "metrics", "path": "/metrics", "interval": "10s"}],
    },
    (VICTORIA, "VMServiceScrape"): {
        "selector": SELECTOR,
        "endpoints": [
            {"port": "http-metrics", "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"}
        ],
    },
    (VICTORIA, "VMRule"): {
        "groups": [
            {
                "name": "rel",
                "interval": "30s",
                "rules": [
                    {"alert": "Full", "expr": "x > 1", "for": "5m", "labels": {"severity": "warning"}},
                    {"record": "slots", "expr": "sum(x)", "annotations": {"summary": "{{ $value }} slots"}},
                ],
            }
        ]
    },
    (AIBRIX, "PodAutoscaler"): {
        "scaleTargetRef": DECODE,
        "minReplicas": 1,
        "maxReplicas": 4,
        "scalingStrategy": "HPA",
        "metricsSources": [
            {
                "metricSourceType": "pod",
                "protocolType": "http",
                "port": "8200",
                "path": "metrics",
                "targetMetric": "vllm:num_requests_running",
                "targetValue": "76",
            }
        ],
    },
}


def create_strictly(place: Place, version: str, kind: str, spec: Object) -> Object:
    manifest = {"apiVersion": version, "kind": kind, "metadata": {"generateName": "x-"}, "spec": spec}
    return place.api.request("POST", place.collection(kind, version), manifest, query={"fieldValidation": "Strict"})


@pytest.mark.parametrize(("version", "kind"), OUR_OWN, ids=[kind for _, kind in OUR_OWN])
def test_our_own_crds_take_what_the_operator_takes_and_no_other_field(version: str, kind: str, place: Place) -> None:
    spec = OUR_OWN[version, kind]
    assert create_strictly(place, version, kind, spec)["spec"] == spec, "nothing is dropped on the way"
    with pytest.raises(ApiError, match="unknown field"):
        create_strictly(place, version, kind, {**spec, "podMetricEndpoint": "x"})


GROUP: Object = OUR_OWN[VICTORIA, "VMRule"]["groups"][0]
SCALER: Object = OUR_OWN[AIBRIX, "PodAutoscaler"]
METRIC: Object = SCALER["metricsSources"][0]
NOT_TAKEN = {
    "two groups of one name": (VICTORIA, "VMRule", {"groups": [GROUP, GROUP]}, "Duplicate value"),
    "a rule without an expression": (
        VICTORIA,
        "VMRule",
        {"groups": [{**GROUP, "rules": [{"alert": "Full"}]}]},
        "expr: Required value",
    ),
    "a label that is a number": (
        VICTORIA,
        "VMRule",
        {"groups": [{**GROUP, "rules": [{"alert": "Full", "expr": "x", "labels": {"level": 1}}]}]},
        "must be of type string",
    ),
    "a strategy that AIBrix does not know": (
        AIBRIX,
        "PodAutoscaler",
        {**SCALER, "scalingStrategy": "VPA"},
        "Unsupported value",
    ),
    "a target that is a number": (
        AIBRIX,
        "PodAutoscaler",
        {**SCALER, "metricsSources": [{**METRIC, "targetValue": 76}]},
        "must be of type string",
    ),
    "no ceiling": (
        AIBRIX,
        "PodAutoscaler",
        {key: value for key, value in SCALER.items() if key != "maxReplicas"},
        "maxReplicas: Required value",
    ),
}


@pytest.mark.parametrize(("version", "kind", "spec", "why"), NOT_TAKEN.values(), ids=NOT_TAKEN)
def test_our_own_crds_refuse_what_the_operator_refuses(
    version: str, kind: str, spec: Object, why: str, place: Place
) -> None:
    with pytest.raises(ApiError, match=why):
        create_strictly(place, version, kind, spec)


def test_the_namespace_has_what_an_operator_prepares(planes: tuple[ControlPlane, ControlPlane]) -> None:
    api = planes[0].api
    assert api.find("/api/v1/namespaces/llm/secrets/llm-d-hf-token")
    assert api.find("/apis/resource.k8s.io/v1/namespaces/llm/resourceclaimtemplates/npu-rdma")
    api.wait_for(
        "/api/v1/namespaces/llm/persistentvolumeclaims",
        lambda seen: seen["llm/model-store"]["status"]["phase"] == "Bound",
        timeout=SECONDS,
        what="the model store to be bound",
    )


# -- devices ----------------------------------------------------------------------------------------------------------


def test_the_devices_of_a_pod_are_on_one_numa_node_and_no_more_pods_run_than_fit(place: Place) -> None:
    fitting = [f"fits-{index}" for index in range(4)]
    for name in fitting:
        place.create(pod(name, claims=True))
    place.pods(are_ready(fitting), "four Pods to be Ready")

    numa = {
        (each["spec"]["pool"]["name"], each["spec"]["driver"], device["name"]): device["attributes"][NUMA]["int"]
        for each in place.api.list("/apis/resource.k8s.io/v1/resourceslices")
        for device in each["spec"]["devices"]
    }
    used: list[tuple[str, str, str]] = []
    for name, claim in place.claims().items():
        results = claim["status"]["allocation"]["devices"]["results"]
        devices = [(result["pool"], result["driver"], result["device"]) for result in results]
        assert sorted(driver for _, driver, _ in devices) == ["dra.net"] * 2 + ["npu.rebellions.ai"] * 4, name
        assert len({(pool, numa[pool, driver, device]) for pool, driver, device in devices}) == 1, name
        assert [consumer["name"] for consumer in claim["status"]["reservedFor"]] == [name]
        used += devices
    assert len(set(used)) == len(used) == len(numa), "every device in use, none twice"

    place.create(pod("one-too-many", claims=True))
    assert "cannot allocate all claims" in place.event("one-too-many", "FailedScheduling")["message"]


def test_a_pod_may_ask_for_the_devices_as_an_extended_resource(place: Place) -> None:
    asked = pod("plain")
    asked["spec"]["containers"][0]["resources"] = {"limits": {"rebellions.ai/npu": "4"}}
    place.create(asked)
    place.pods(are_ready(["plain"]), "the Pod to be Ready")
    [result, *more] = place.claims()["plain"]["status"]["allocation"]["devices"]["results"]
    assert result["driver"] == "npu.rebellions.ai"
    assert len(more) == 3


def test_a_pod_with_a_startup_delay_is_ready_after_one_without(place: Place) -> None:
    place.create(pod("slow", annotations={DELAY: "3s"}))
    place.create(pod("quick"))
    ready: list[str] = []

    def note(seen: dict[str, Object]) -> bool:
        ready.extend(name for name in seen if name not in ready and condition_is_true(seen[name], "Ready"))
        return len(ready) == 2

    place.pods(note, "both Pods to be Ready")
    assert ready == ["quick", "slow"]


def test_a_change_to_a_pod_that_starts_does_not_start_its_delay_anew(place: Place) -> None:
    place.create(pod("slow", annotations={DELAY: "4s"}))
    place.create(pod("slower", annotations={DELAY: "6s"}))
    running = place.pods(
        lambda seen: len(seen) == 2 and all("podIP" in each["status"] for each in seen.values()), "them to run"
    )
    assert not any(condition_is_true(each, "Ready") for each in running.values())
    path = f"{place.collection('Pod')}/slow"
    ready: list[str] = []

    def note(seen: dict[str, Object]) -> bool:
        ready.extend(name for name in seen if name not in ready and condition_is_true(seen[name], "Ready"))
        if "slow" not in ready:
            # Each answer to a change is another change: it would never be Ready if they counted.
            place.api.patch(
                path, {"metadata": {"labels": {"touched": str(len(seen["slow"]["metadata"]["managedFields"]))}}}
            )
        return len(ready) == 2

    place.pods(note, "both Pods to be Ready")
    assert ready == ["slow", "slower"]


def test_a_draining_pod_keeps_its_devices_until_it_is_gone(place: Place) -> None:
    names = [f"old-{index}" for index in range(4)]
    for name in names:
        place.create(pod(name, claims=True, annotations={DRAIN: "4s"}, terminationGracePeriodSeconds=60))
    place.pods(are_ready(names), "four Pods to be Ready")
    place.create(pod("next", claims=True))
    place.event("next", "FailedScheduling")

    place.api.delete(f"{place.collection('Pod')}/old-0")
    order: list[str] = []

    def note(seen: dict[str, Object]) -> bool:
        leaving = seen.get("old-0")
        if leaving and leaving["metadata"].get("deletionTimestamp") and "terminating" not in order:
            assert "old-0" in place.claims(), "its claim exists as long as it does"
            order.append("terminating")
        if leaving is None and "gone" not in order:
            order.append("gone")
        if seen["next"]["spec"].get("nodeName") and "scheduled" not in order:
            order.append("scheduled")
        return condition_is_true(seen["next"], "Ready")

    place.pods(note, "the waiting Pod to get the devices")
    assert order == ["terminating", "gone", "scheduled"]


def test_a_drain_never_outlasts_the_grace_period(place: Place) -> None:
    place.create(pod("stubborn", annotations={DRAIN: "1h"}, terminationGracePeriodSeconds=1))
    place.pods(are_ready(["stubborn"]), "the Pod to be Ready")
    place.api.delete(f"{place.collection('Pod')}/stubborn")
    place.pods(lambda seen: not seen, "the Pod to be gone")


def test_a_pod_without_a_drain_leaves_at_once(place: Place) -> None:
    place.create(pod("draining", annotations={DRAIN: "1h"}, terminationGracePeriodSeconds=600))
    place.create(pod("quick"))
    place.pods(are_ready(["draining", "quick"]), "both Pods to be Ready")
    for name in ("draining", "quick"):
        place.api.delete(f"{place.collection('Pod')}/{name}")
    place.pods(lambda seen: set(seen) == {"draining"}, "only the draining Pod to be left")


# -- what a kubelet shows ---------------------------------------------------------------------------------------------


def test_a_native_sidecar_runs_beside_the_main_container_and_other_init_containers_are_done(place: Place) -> None:
    init = [
        {"name": "prepare", "image": "example.com/prepare:1"},
        {"name": "routing-proxy", "image": "example.com/proxy:1", "restartPolicy": "Always"},
    ]
    place.create(pod("decode", initContainers=init))
    status = place.pods(are_ready(["decode"]), "the Pod to be Ready")["decode"]["status"]
    prepared, sidecar = status["initContainerStatuses"]
    assert prepared["state"]["terminated"]["reason"] == "Completed"
    assert "running" in sidecar["state"]
    assert sidecar["ready"]
    assert sidecar["started"]
    assert status["podIP"].startswith("10.128.")


@pytest.mark.parametrize("reason", ["CrashLoopBackOff", "ImagePullBackOff"])
def test_a_pod_can_be_broken_and_healed(reason: str, place: Place) -> None:
    place.create(pod("server", annotations={FAILURE: reason, f"{FAILURE}-message": "as the test wants it"}))
    broken = place.pods(lambda seen: "startTime" in seen["server"]["status"], "the Pod to start")["server"]
    assert container(broken)["state"]["waiting"] == {"reason": reason, "message": "as the test wants it"}
    path = f"{place.collection('Pod')}/server"
    place.api.patch(path, {"metadata": {"annotations": {FAILURE: None}}})
    place.pods(are_ready(["server"]), "the Pod to recover")
    place.api.patch(path, {"metadata": {"annotations": {FAILURE: reason}}})
    place.pods(lambda seen: "waiting" in container(seen["server"])["state"], "the Pod to break")


def test_a_delay_that_is_no_duration_shows_on_the_pod(place: Place) -> None:
    place.create(pod("server", annotations={DELAY: "5 sec"}))
    seen = place.pods(lambda seen: "startTime" in seen["server"]["status"], "the Pod to start")["server"]
    assert container(seen)["state"]["waiting"] == {
        "reason": "CreateContainerConfigError",
        "message": 'annotation local.serving-stack.dev/startup-delay: "5 sec" is not a duration such as 5s',
    }


def test_service_accounts_have_tokens_and_no_rights_that_nobody_gave_them(place: Place) -> None:
    path = f"/api/v1/namespaces/{place.namespace}/serviceaccounts/default/token"
    request: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = place.api.request("POST", path, request)["status"]["token"]
    guest = Api(server=place.api.server, ca=place.api.ca, token=str(token))
    with pytest.raises(ApiError) as refused:
        guest.list(place.collection("Pod"))
    assert refused.value.status == 403
    assert f"system:serviceaccount:{place.namespace}:default" in str(refused.value)
    place.create(pod("server"))
    seen = place.pods(are_ready(["server"]), "the Pod to be Ready")["server"]
    assert seen["spec"]["serviceAccountName"] == "default"
    assert any("projected" in volume for volume in seen["spec"]["volumes"])


# -- storage ----------------------------------------------------------------------------------------------------------


def claim(name: str, storage_class: str | None, mode: str = "ReadWriteMany") -> Object:
    spec: Object = {"accessModes": [mode], "resources": {"requests": {"storage": "10Gi"}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def wait_for_claims(place: Place, satisfied: Condition, what: str) -> Seen:
    collection = place.collection("PersistentVolumeClaim")
    found = place.api.wait_for(
        collection,
        lambda seen: satisfied({key.partition("/")[2]: item for key, item in seen.items()}),
        timeout=SECONDS,
        what=what,
    )
    return {key.partition("/")[2]: item for key, item in found.items()}


def is_bound(name: str) -> Condition:
    return lambda seen: seen[name]["status"].get("phase") == "Bound"


def test_a_claim_binds_in_the_default_class_and_grows(place: Place) -> None:
    place.create(claim("cache", None))
    bound = wait_for_claims(place, is_bound("cache"), "the claim to bind")["cache"]
    assert bound["spec"]["storageClassName"] == "kwok-volume"
    volume = f"/api/v1/persistentvolumes/{bound['spec']['volumeName']}"
    path = f"{place.collection('PersistentVolumeClaim')}/cache"
    place.api.patch(path, {"spec": {"resources": {"requests": {"storage": "20Gi"}}}})
    wait_for_claims(place, lambda seen: seen["cache"]["status"]["capacity"]["storage"] == "20Gi", "the claim to grow")
    assert place.api.get(volume)["spec"]["capacity"]["storage"] == "20Gi"
    place.api.delete(path)
    wait_until(lambda: place.api.find(volume) is None, timeout=SECONDS, what="the volume to be deleted")


def test_a_claim_of_the_class_that_cannot_grow_is_refused_more(place: Place) -> None:
    place.create(claim("cache", "kwok-volume-fixed"))
    wait_for_claims(place, is_bound("cache"), "the claim to bind")
    path = f"{place.collection('PersistentVolumeClaim')}/cache"
    with pytest.raises(ApiError, match="must support resize"):
        place.api.patch(path, {"spec": {"resources": {"requests": {"storage": "20Gi"}}}})


def test_a_late_claim_binds_when_a_pod_wants_it(place: Place) -> None:
    place.create(claim("cache", "kwok-volume-late"))
    place.event("cache", "WaitForFirstConsumer")
    volumes = [{"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}}]
    place.create(pod("server", volumes=volumes))
    place.pods(are_ready(["server"]), "the Pod to be Ready")
    wait_for_claims(place, is_bound("cache"), "the claim to bind")


def test_a_class_for_one_node_provisions_nothing_to_share(place: Place) -> None:
    place.create(claim("shared", "kwok-volume-single-node"))
    place.create(claim("own", "kwok-volume-single-node", "ReadWriteOnce"))
    assert "not supported" in place.event("shared", "ProvisioningFailed")["message"]
    seen = wait_for_claims(place, is_bound("own"), "the other claim to bind")
    assert seen["shared"]["status"]["phase"] == "Pending"


# -- life and death ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Generator[Path]:
    """A folder for a plane that the test starts; nothing of it runs afterwards."""
    path = tmp_path / "plane"
    yield path
    if (plane := ControlPlane.at(path)) is not None:
        plane.stop()
    assert processes_of(path) == []


def pids(plane: ControlPlane) -> dict[str, int | None]:
    return {component.name: component.pid for component in plane.status().components}


def disaggregated_set(image: str, *roles: str) -> Object:
    def role(name: str) -> Object:
        container: Object = {"name": "modelserver", "image": image}
        template: Object = {"size": 1, "workerTemplate": {"spec": {"containers": [container]}}}
        rolling = {"rollingUpdateConfiguration": {"maxSurge": 1, "maxUnavailable": 0}}
        return {"name": name, "spec": {"replicas": 1, "leaderWorkerTemplate": template, "rolloutStrategy": rolling}}

    return {
        "apiVersion": "disaggregatedset.x-k8s.io/v1",
        "kind": "DisaggregatedSet",
        "metadata": {"name": "servers", "namespace": "llm"},
        "spec": {"roles": [role(name) for name in roles]},
    }


def run_image(image: str) -> Condition:
    def one_pod_of_each_role_runs_it(seen: Seen) -> bool:
        pods = [
            each for each in seen.values() if "leaderworkerset.sigs.k8s.io/name" in each["metadata"].get("labels", {})
        ]
        images = [each["spec"]["containers"][0]["image"] for each in pods]
        return images == [image] * 2 and all(condition_is_true(each, "Ready") for each in pods)

    return one_pod_of_each_role_runs_it


def deploy_and_roll_a_disaggregated_set(api: Api) -> None:
    with pytest.raises(ApiError):
        api.create(disaggregated_set("example.com/vllm:1", "prefill"))  # the CRD wants two roles
    partitioned = disaggregated_set("example.com/vllm:1", "prefill", "decode")
    partitioned["spec"]["roles"][0]["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["partition"] = 1
    with pytest.raises(ApiError, match=r"vdisaggregatedset\.kb\.io"):
        api.create(partitioned)

    for image in ("example.com/vllm:1", "example.com/vllm:2"):
        api.apply(disaggregated_set(image, "prefill", "decode"))
        what = f"both roles to run {image}"
        api.wait_for("/api/v1/namespaces/llm/pods", run_image(image), timeout=SECONDS, what=what)

    # A plane that is started without the manager must not keep its webhooks, or sets could not be changed any more.
    remove_webhooks(api)
    assert api.list(f"{CONFIGURATIONS}/mutatingwebhookconfigurations") == []
    assert api.list(f"{CONFIGURATIONS}/validatingwebhookconfigurations") == []


def test_a_plane_is_started_once_dies_visibly_comes_back_with_its_data_and_more_and_stops_for_good(
    folder: Path,
) -> None:
    tools = ensure([*PROGRAMS, LWS_MANAGER, *PROJECTS])
    small = load_inventory("small")
    plane = ControlPlane.start(small, folder, tools=tools, name="dev", namespaces=["llm"])
    plane.check()
    assert len(processes_of(folder)) == len(PROGRAMS) + 1
    assert set(pids(plane)) == {*PROGRAMS, "supervisor"}
    plane.api.create({**pod("server"), "metadata": {"name": "server", "namespace": "llm"}})

    again = ControlPlane.start(small, folder, tools=tools, name="dev", namespaces=["more"])
    assert pids(again) == pids(plane), "one that runs is not started again"
    assert again.status().namespaces == ("llm", "more")
    assert again.api.find("/api/v1/namespaces/more/secrets/llm-d-hf-token"), "but it gets what it lacks"
    with pytest.raises(LocalError, match=r"runs in .* already"), running_plane(small, folder, tools=tools, name="dev"):
        pass

    killed = pids(plane)["kube-scheduler"]
    assert killed
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: plane.status().state == "broken", timeout=SECONDS, what="the death to be seen")
    with pytest.raises(ComponentDiedError, match="kube-scheduler was ended by signal 9") as died:
        plane.check()
    assert died.value.last_lines, "with the last it had to say"
    [dead] = [component for component in plane.status().components if component.state == "died"]
    assert (dead.name, dead.exit_code) == ("kube-scheduler", -9)
    assert dead.last_lines

    said: list[str] = []
    revived = ControlPlane.start(
        small, folder, tools=tools, name="dev", namespaces=["llm"], lws=True, progress=said.append
    )
    assert "kube-scheduler was ended by signal 9" in said[0]
    assert set(pids(revived)) == {*PROGRAMS, LWS_MANAGER, "supervisor"}
    assert revived.server == plane.server, "at its old address"
    assert revived.api.find("/api/v1/namespaces/llm/pods/server"), "with its data"
    revived.api.create({**pod("another"), "metadata": {"name": "another", "namespace": "llm"}})
    revived.api.wait_for(
        "/api/v1/namespaces/llm/pods",
        lambda seen: condition_is_true(seen["llm/another"], "Ready"),
        timeout=25,  # less than the 40 s of a node lease that the killed kwok held
        what="a new Pod to be Ready",
    )

    deploy_and_roll_a_disaggregated_set(revived.api)

    revived.stop()
    assert processes_of(folder) == []
    assert revived.status().state == "stopped"
    revived.stop(remove=True)
    assert not folder.exists()


def test_a_component_that_cannot_start_is_reported_by_name_and_nothing_is_left(tools: Tools, folder: Path) -> None:
    (folder / "etcd").mkdir(parents=True)
    (folder / "etcd" / "member").write_text("no folder")
    with pytest.raises(ComponentDiedError) as died:
        ControlPlane.start(load_inventory("small"), folder, tools=tools)
    assert died.value.component == "etcd"
    assert any("not a directory" in line for line in died.value.last_lines), died.value.last_lines
    assert processes_of(folder) == []


def test_a_port_that_is_taken_in_the_last_moment_is_exchanged_and_later_the_whole_inventory(
    tools: Tools, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = cast("int", somebody.getsockname()[1])
        asked: list[dict[str, int]] = []

        def choose(names: Iterable[str]) -> dict[str, int]:
            chosen = choose_ports(names)
            if not asked:
                chosen["kube-apiserver"] = taken
            asked.append(chosen)
            return chosen

        monkeypatch.setattr(control_plane, "choose_ports", choose)
        plane = ControlPlane.start(load_inventory("small"), folder, tools=tools)
        plane.check()
        assert len(asked) == 2
        assert plane.record.ports["kube-apiserver"] != taken

    ControlPlane.start(load_inventory("gpu"), folder, tools=tools)
    assert {node["metadata"]["name"] for node in plane.api.list("/api/v1/nodes")} == {f"gpu-{n}" for n in range(4)}
    classes = plane.api.list("/apis/resource.k8s.io/v1/deviceclasses", labelSelector=INVENTORY_LABEL)
    assert {each["metadata"]["name"] for each in classes} == {"gpu.nvidia.com", "dranet"}
    wait_until(
        lambda: (
            {each["spec"]["driver"] for each in plane.api.list("/apis/resource.k8s.io/v1/resourceslices")}
            == {"gpu.nvidia.com", "dra.net"}
        ),
        timeout=SECONDS,
        what="the slices of the nodes that left to go with them",
    )


STARTER = """
import sys
from pathlib import Path
from local.control_plane import ControlPlane
from local.crds import PROJECTS
from local.inventory import load_inventory
from local.toolchain import ensure
from local.tools import PROGRAMS
tools = ensure([*PROGRAMS, *PROJECTS])
ControlPlane.start(load_inventory("small"), Path(sys.argv[1]), tools=tools)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_start_that_is_interrupted_leaves_nothing(number: signal.Signals, folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as starter:
        wait_until(
            lambda: any("kube-apiserver" in line for line in processes_of(folder)),
            timeout=SECONDS,
            what="the API server to be started",
        )
        starter.send_signal(number)
        assert starter.wait(SECONDS) != 0
    wait_until(lambda: not processes_of(folder), timeout=SECONDS, what="every process to end")


def test_a_component_that_dies_while_the_plane_is_prepared_is_named_and_nothing_is_left(
    tools: Tools, tmp_path: Path
) -> None:
    folder = tmp_path / "plane"

    def kill_the_api_server(said: str) -> None:
        if said.startswith("preparing inventory"):
            [server] = [each for each in see_processes(folder).components if each.name == "kube-apiserver"]
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)

    with pytest.raises(ComponentDiedError) as died:
        ControlPlane.start(load_inventory("small"), folder, tools=tools, progress=kill_the_api_server)
    assert died.value.component == "kube-apiserver"
    assert not see_processes(folder).alive
