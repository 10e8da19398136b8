"""Guards on a live stack: what stands in the way is told by a preview, all at once, and nothing in the cluster changes.

Each cell makes a change, and something around the stack where need be, and takes it back. Letters are told by their
keys; what they say is the business of the unit tests.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from local.api import ApiError
from local.crds import OWN, find_crds, install_crds
from local.tools import FolderTools
from local.waiting import wait_until
from stack.config.guards import GUARD_NAMES
from tests.builders import ROOT, merged
from tests.e2e.bench import collections_in, without_traceback

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from local.api import Object
    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]

VICTORIA = "vmpodscrapes.operator.victoriametrics.com"
OF_VICTORIA = (VICTORIA, "vmservicescrapes.operator.victoriametrics.com", "vmrules.operator.victoriametrics.com")
VICTORIAS = "/apis/operator.victoriametrics.com/v1beta1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NODES = "/api/v1/nodes"
LETTER = re.compile(r"^\s*(.*?): .*`guards\.(?!devices)\w+: warn` lets it pass", re.MULTILINE)
"""The key and value of a refusal; what is said of devices is shown elsewhere."""
OLD_CRDS = (
    ("httproutes.gateway.networking.k8s.io", "gateway.networking.k8s.io/bundle-version", "v1.1.0"),
    ("inferencepools.inference.networking.k8s.io", "inference.networking.k8s.io/bundle-version", "v1.3.0"),
)
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
HASTY = {"effect": "NoSchedule", "key": "maintenance"}
ATOM = "example.com/atom"
NO_TEMPLATE = {"claimTemplate": None, "claimTemplateName": "nowhere"}
MONITORED = {
    "enabled": True,
    "provider": "victoriametrics",
    "scraper": {"serviceAccount": {"name": "vmagent", "namespace": "monitoring"}},
}


@pytest.fixture(scope="module")
def live(module_bench_of: Callable[[str], Bench]) -> Bench:
    """Stack dev with one Pod of each role; its caches are of a class that does not grow."""
    bench = module_bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(
        modelserver={"replicas": {"prefill": 1, "decode": 1}},
        storage={"compileCache": {"storageClass": "kwok-volume-fixed"}},
    )
    bench.up()
    return bench


# --- what stands around the stack -------------------------------------------------------------------------------------


@contextmanager
def there(bench: Bench, *manifests: Object) -> Generator[None]:
    """Objects of somebody else, for a while."""
    for manifest in manifests:
        bench.plane.api.create(manifest)
    try:
        yield
    finally:
        for manifest in manifests:
            path = bench.plane.api.path_of(manifest)
            bench.plane.api.delete(path, grace_seconds=0)
            wait_until(partial(is_gone, bench, path), timeout=60, what=f"{path} to go")


@contextmanager
def untouched(bench: Bench) -> Generator[None]:
    """Nothing in the namespace is another afterwards."""
    before = versions(bench)
    yield
    assert versions(bench) == before, "nothing was touched"


def is_gone(bench: Bench, path: str) -> bool:
    return bench.plane.api.find(path) is None


@contextmanager
def patched(bench: Bench, path: str, change: Object, back: Object) -> Generator[None]:
    """Another state of an object of the cluster, for a while."""
    bench.plane.api.patch(path, change)
    try:
        yield
    finally:
        bench.plane.api.patch(path, back)


@contextmanager
def without_victoria(bench: Bench) -> Generator[None]:
    """The kind of VictoriaMetrics' Pod scrapes is not served, for a while."""
    bench.plane.api.delete(f"{CRDS}/{VICTORIA}")
    try:
        wait_until(lambda: "VMPodScrape" not in str(bench.plane.api.find(VICTORIAS)), timeout=60, what="the kind to go")
        yield
    finally:
        crds = [crd for crd in find_crds(FolderTools(programs=OWN), projects=()) if crd.name == VICTORIA]
        assert crds, f"in {OWN}"
        install_crds(bench.plane.api, crds)
        wait_until(partial(has_scrapes, bench), timeout=60, what="the kind to come back")


@contextmanager
def early_victoria(bench: Bench) -> Generator[None]:
    """VictoriaMetrics' kinds are served as v1alpha1 only, for a while."""
    api, before = bench.plane.api, dict[str, list[Any]]()
    try:
        for name in OF_VICTORIA:
            path = f"{CRDS}/{name}"
            [version] = before[path] = api.get(path)["spec"]["versions"]
            early = [version | {"served": False}, version | {"name": "v1alpha1", "storage": False}]
            api.patch(path, {"spec": {"versions": early}})
        wait_until(lambda: is_gone(bench, VICTORIAS), timeout=60, what="v1beta1 to go")
        wait_until(partial(has_scrapes, bench, "v1alpha1"), timeout=60, what="v1alpha1 to come")
        yield
    finally:
        for path, versions in before.items():
            api.patch(path, {"spec": {"versions": versions}})
        wait_until(partial(has_scrapes, bench), timeout=60, what="v1beta1 to come back")


def has_scrapes(bench: Bench, version: str = "v1beta1") -> bool:
    """For a moment after one came the API server asks for patience."""
    group, _, _ = VICTORIAS.rpartition("/")
    try:
        for kind in OF_VICTORIA:
            bench.plane.api.list(f"{group}/{version}/{kind.partition('.')[0]}")
    except ApiError:
        return False
    return True


def volume_claim(bench: Bench, name: str, mode: str, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": bench.namespace},
        "spec": {
            "accessModes": [mode],
            "storageClassName": "kwok-volume",
            "resources": {"requests": {"storage": "1Gi"}},
            **spec,
        },
    }


def stores(bench: Bench) -> AbstractContextManager[None]:
    modes = {"of-one-node": "ReadWriteOnce", "of-one-pod": "ReadWriteOncePod"}
    return there(bench, *(volume_claim(bench, name, mode) for name, mode in modes.items()))


@contextmanager
def leaving_and_raw(bench: Bench) -> Generator[None]:
    """A claim that goes and can't be gone yet, one that is no folder, and one that can only be read."""
    leaving, kept = volume_claim(bench, "leaving", "ReadWriteMany"), "example.com/kept"
    leaving["metadata"]["finalizers"] = [kept]
    path = bench.plane.api.path_of(leaving)
    others = (
        volume_claim(bench, "raw", "ReadWriteMany", volumeMode="Block"),
        volume_claim(bench, "read-only", "ReadOnlyMany"),
    )
    with there(bench, *others):
        bench.plane.api.create(leaving)
        bench.plane.api.delete(path)
        try:
            yield
        finally:
            bench.plane.api.patch(path, {"metadata": {"finalizers": None}})
            wait_until(partial(is_gone, bench, path), timeout=60, what=f"{path} to go")


@contextmanager
def lost_and_unbound(bench: Bench) -> Generator[None]:
    """A claim whose volume is gone, and one of a class that nobody serves."""
    lost = volume_claim(bench, "lost", "ReadWriteMany", volumeName=f"gone-{bench.namespace}")
    lost["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    with there(bench, lost, volume_claim(bench, "unbound", "ReadWriteMany", storageClassName="nobodys")):
        path = bench.plane.api.path_of(lost)
        wait_until(lambda: bench.plane.api.get(path)["status"]["phase"] == "Lost", timeout=60, what="the claim's loss")
        yield


@contextmanager
def old_crds(bench: Bench) -> Generator[None]:
    """CRDs that say that they are of releases in which a field was not there yet."""
    api = bench.plane.api
    before: dict[str, Any] = {}
    try:
        for name, label, version in OLD_CRDS:
            path = f"{CRDS}/{name}"
            before[path] = {label: api.get(path)["metadata"].get("annotations", {}).get(label)}
            api.patch(path, {"metadata": {"annotations": {label: version}}})
        yield
    finally:
        for path, annotations in before.items():
            api.patch(path, {"metadata": {"annotations": annotations}})


@contextmanager
def of_another_name_and_cordoned(bench: Bench) -> Generator[None]:
    """One node takes no new Pod; Pods that are pinned to the other would not get there."""
    hostname = "kubernetes.io/hostname"
    change, back = ({"metadata": {"labels": {hostname: each}}} for each in ("other", "npu-1"))
    with (
        patched(bench, f"{NODES}/npu-0", {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}}),
        patched(bench, f"{NODES}/npu-1", change, back),
    ):
        yield


@contextmanager
def allowed(bench: Bench, resource: str, number: int) -> Generator[None]:
    """So many of something, and no more."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "full", "namespace": bench.namespace},
        "spec": {"hard": {resource: str(number)}},
    }
    with there(bench, quota):
        path = bench.plane.api.path_of(quota)
        wait_until(lambda: resource in used_of(bench, path), timeout=60, what="the quota to be counted")
        yield


def full_quota(bench: Bench) -> AbstractContextManager[None]:
    """As many Pods as there are."""
    return allowed(bench, "pods", 3)


def no_more_config_maps(bench: Bench) -> AbstractContextManager[None]:
    """As many as there are, those of others included."""
    there_are = bench.plane.api.list(f"/api/v1/namespaces/{bench.namespace}/configmaps")
    return allowed(bench, "configmaps", len(there_are))


def no_scrapes_allowed(bench: Bench) -> AbstractContextManager[None]:
    return allowed(bench, f"count/{VICTORIA}", 0)


def used_of(bench: Bench, path: str) -> Object:
    return bench.plane.api.get(path).get("status", {}).get("used", {})


def small_limits(bench: Bench) -> AbstractContextManager[None]:
    limits = [{"type": "Container", "max": {"memory": "32Mi"}}]
    return there(
        bench,
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "small", "namespace": bench.namespace},
            "spec": {"limits": limits},
        },
    )


def strangers(bench: Bench) -> AbstractContextManager[None]:
    """A Gateway and a ClusterRole of somebody else under names of the stack, and a Pod with its labels."""
    gateway = {
        "gatewayClassName": "istio",
        "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
    }
    labels = {"app.kubernetes.io/instance": "rel", "app.kubernetes.io/component": "decode"}
    return there(
        bench,
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": {"name": "shared", "namespace": bench.namespace},
            "spec": gateway,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": f"rel-{bench.namespace}-epp", "labels": {"app.kubernetes.io/managed-by": "Helm"}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "canary", "namespace": bench.namespace, "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "example.com/canary:1"}]},
        },
    )


def maintenance(bench: Bench) -> AbstractContextManager[None]:
    return patched(bench, f"{NODES}/npu-1", {"spec": {"taints": [HASTY]}}, {"spec": {"taints": None}})


def no_default_class(bench: Bench) -> AbstractContextManager[None]:
    path = "/apis/storage.k8s.io/v1/storageclasses/kwok-volume"
    change, back = ({"metadata": {"annotations": {DEFAULT_CLASS: each}}} for each in ("false", "true"))
    return patched(bench, path, change, back)


def rival(bench: Bench, *, device_class: str = "npu.rebellions.ai") -> AbstractContextManager[None]:
    """Another release whose roll-out on devices of a class, by default the same, does not get on."""
    namespace = f"{bench.namespace}-other"
    labels = {"app.kubernetes.io/instance": "chat", "llm-d.ai/role": "decode"}
    claim = {"name": "devices", "resourceClaimTemplateName": "theirs"}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [
                {"name": "c", "image": "example.com/chat:1", "resources": {"claims": [{"name": "devices"}]}}
            ],
            "resourceClaims": [claim],
            "nodeSelector": {"pool": "none"},
        },
    }
    requests = [{"name": "npu", "exactly": {"deviceClassName": device_class, "count": 1}}]
    return there(
        bench,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "theirs", "namespace": namespace},
            "spec": {"spec": {"devices": {"requests": requests}}},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "chat-decode", "namespace": namespace, "labels": labels},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        },
    )


@contextmanager
def rival_by_plugin(bench: Bench) -> Generator[None]:
    """Another release that does not get on, on what a device plugin would give."""
    labels = {"app.kubernetes.io/instance": "chat", "llm-d.ai/role": "decode"}
    namespace, status = f"{bench.namespace}-other", f"{NODES}/npu-0/status"
    asked = {"name": "c", "image": "example.com/chat:1", "resources": {"limits": {ATOM: "1"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [asked], "nodeSelector": {"pool": "none"}}}
    rolling = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat-decode", "namespace": namespace, "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    given, taken = ({"status": {part: {ATOM: n} for part in ("capacity", "allocatable")}} for n in ("8", None))
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    with patched(bench, status, given, taken), there(bench, own, rolling):
        yield


def nothing(_: Bench) -> AbstractContextManager[None]:
    return nullcontext()


# --- cells ------------------------------------------------------------------------------------------------------------


def cell(
    name: str,
    change: dict[str, Any],
    refused: set[str],
    warned: set[str] | None = None,
    *,
    around: Callable[[Bench], AbstractContextManager[None]] = nothing,
) -> Any:
    """A change, what is around the stack, and the keys of what is refused and warned of; `ns` is the namespace."""
    return pytest.param(change, refused, warned or set[str](), around, id=name)


CELLS = [
    cell(
        "claims that are there and differ",
        {
            "storage": {
                "compileCache": {"storageClass": "kwok-volume", "accessModes": ["ReadWriteOnce"], "size": "5Gi"},
                "model": {"size": "10Gi"},
            }
        },
        {
            "storage.compileCache.storageClass = kwok-volume",
            "storage.compileCache.accessModes = ReadWriteOnce",
            "storage.compileCache.size = 5Gi",
            "storage.model.size = 10Gi",
        },
    ),
    cell(
        "a claim that cannot grow",
        {"storage": {"compileCache": {"size": "20Gi"}}},
        {"storage.compileCache.size = 20Gi"},
    ),
    cell(
        "claims from outside that are missing or for one Pod or node",
        {
            "storage": {
                "compileCache": {
                    "kind": "existingClaim",
                    "existingClaim": {"prefill": "of-one-node", "decode": "nowhere"},
                },
                "model": {"kind": "existingClaim", "existingClaim": "of-one-pod"},
            }
        },
        {
            "storage.compileCache.existingClaim.decode = nowhere",
            "storage.model.existingClaim = of-one-pod (ReadWriteOncePod)",
        },
        {"storage.compileCache.existingClaim.prefill = of-one-node (ReadWriteOnce)"},
        around=stores,
    ),
    cell(
        "claims from outside that go, are no folder, or can only be read",
        {
            "storage": {
                "compileCache": {"kind": "existingClaim", "existingClaim": {"prefill": "leaving", "decode": "raw"}},
                "model": {"kind": "existingClaim", "existingClaim": "read-only"},
            }
        },
        {"storage.compileCache.existingClaim.prefill = leaving", "storage.compileCache.existingClaim.decode = raw"},
        {"storage.model.existingClaim = read-only (ReadOnlyMany)"},
        around=leaving_and_raw,
    ),
    cell(
        "claims from outside that lost their volume, or never get one",
        {
            "storage": {
                "compileCache": {"kind": "existingClaim", "existingClaim": {"prefill": "lost", "decode": "unbound"}}
            }
        },
        {"storage.compileCache.existingClaim.prefill = lost"},
        {"storage.compileCache.existingClaim.decode = unbound"},
        around=lost_and_unbound,
    ),
    cell(
        "a claim from outside for one Pod, which a new one would come beside",
        {
            "storage": {
                "compileCache": {
                    "kind": "existingClaim",
                    "existingClaim": {"prefill": "of-one-pod", "decode": "of-one-node"},
                }
            }
        },
        {"storage.compileCache.existingClaim.prefill = of-one-pod (ReadWriteOncePod)"},
        around=stores,
    ),
    cell(
        "a claim from outside for one node, and Pods on two",
        {
            "modelserver": {
                "replicas": {"prefill": 0, "decode": 0},
                "nodePlacement": [{"role": "prefill", "node": "npu-0"}, {"role": "decode", "node": "npu-1"}],
            },
            "storage": {"model": {"kind": "existingClaim", "existingClaim": "of-one-node"}},
        },
        {"storage.model.existingClaim = of-one-node (ReadWriteOnce)"},
        around=stores,
    ),
    cell(
        "CRDs of too old a release",
        {},
        {"gateway.enabled = true", "router.inferencePool.create = true"},
        around=old_crds,
    ),
    cell(
        "what the stack refers to and is not there",
        {
            "imagePullSecrets": ["no-login"],
            "gateway": {"className": "nobodys"},
            "modelserver": {
                "serviceAccountName": "nobody",
                "serveEnv": {"KEY": {"secretKeyRef": {"name": "no-key", "key": "k"}}},
                "podOverrides": {
                    "decode": {"priorityClassName": "no-priority"},
                    "prefill": {"runtimeClassName": "no-runtime"},
                },
            },
            "devices": {
                "claimTemplate": {
                    "requests": [
                        {"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 1},
                        {"name": "nic", "deviceClassName": "no-class", "count": 1},
                    ]
                }
            },
            "storage": {"modelOffload": {"enabled": True, "storageClass": "no-storage"}},
        },
        {
            "imagePullSecrets[0] = no-login",
            "modelserver.serviceAccountName = nobody",
            "modelserver.serveEnv.KEY.secretKeyRef.name = no-key",
            "modelserver.podOverrides.decode.priorityClassName = no-priority",
            "modelserver.podOverrides.prefill.runtimeClassName = no-runtime",
            "devices.claimTemplate.requests[1].deviceClassName = no-class",
            "storage.modelOffload.storageClass = no-storage",
        },
        {"gateway.className = nobodys"},
    ),
    cell(
        "a claim template that is not there, and no class for a volume",
        {"devices": NO_TEMPLATE, "storage": {"modelOffload": {"enabled": True}}},
        {"devices.claimTemplateName = nowhere", "storage.modelOffload.storageClass"},
        around=no_default_class,
    ),
    cell(
        "an API that is not served",
        {"monitoring": MONITORED},
        {"monitoring.provider = victoriametrics"},
        around=without_victoria,
    ),
    cell(
        "an API of which there is another version only",
        {"monitoring": MONITORED},
        {"monitoring.provider = victoriametrics"},
        around=early_victoria,
    ),
    cell(
        "names that are taken, and a Pod that would be",
        {"gateway": {"name": "shared"}, "monitoring": MONITORED},
        {"Gateway shared = ns/shared", "ClusterRole rel-ns-epp = rel-ns-epp", "Pod canary"},
        around=strangers,
    ),
    cell(
        "nodes that are missing or take no Pod",
        {
            "modelserver": {
                "replicas": {"prefill": 0, "decode": 0},
                "nodePlacement": [{"role": "prefill", "node": "npu-9"}, {"role": "decode", "node": "npu-1"}],
            }
        },
        {"modelserver.nodePlacement[0].node = npu-9", "modelserver.nodePlacement[1].node = npu-1"},
        around=maintenance,
    ),
    cell(
        "a node that is cordoned, and one of another name",
        {
            "modelserver": {
                "replicas": {"prefill": 0, "decode": 0},
                "nodePlacement": [{"role": "prefill", "node": "npu-0"}, {"role": "decode", "node": "npu-1"}],
            }
        },
        {"modelserver.nodePlacement[0].node = npu-0", "modelserver.nodePlacement[1].node = npu-1"},
        around=of_another_name_and_cordoned,
    ),
    cell(
        "a node for one Pod, on which two are placed",
        {
            "modelserver": {
                "replicas": {"prefill": 0, "decode": 0},
                "nodePlacement": [{"role": "prefill", "node": "npu-0"}, {"role": "decode", "node": "npu-0"}],
                "resources": {"requests": {"cpu": "100", "memory": "1Gi"}},
            }
        },
        {"modelserver.nodePlacement[0].node = npu-0"},
    ),
    cell(
        "a quota that has no room for a Pod more",
        {"modelserver": {"image": {"tag": "next"}}},
        {"modelserver.strategy"},
        around=full_quota,
    ),
    cell(
        "a quota that has no room for a ConfigMap more, beside those that go last",
        {"modelserver": {"serveArgs": {"common": {"seed": 7}}}},
        {"ResourceQuota full"},
        around=no_more_config_maps,
    ),
    cell(
        "a quota that has no room for what is made without any Pod",
        {"monitoring": MONITORED},
        {"ResourceQuota full"},
        around=no_scrapes_allowed,
    ),
    cell(
        "limits that no Pod of the stack keeps to",
        {"modelserver": {"image": {"tag": "next"}}},
        {"modelserver.resources", "devices.rdma"},
        {"router.epp.resources"},
        around=small_limits,
    ),
    cell(
        "more than the nodes have, together",
        {"modelserver": {"replicas": {"prefill": 2}, "resources": {"requests": {"cpu": "100", "memory": "1Gi"}}}},
        {"modelserver.replicas"},
    ),
    cell(
        "more than any node has",
        {"router": {"epp": {"resources": {"requests": {"cpu": "200"}}}}},
        {"router.epp.replicas = 1"},
    ),
    cell(
        "another release that rolls out",
        {"modelserver": {"image": {"tag": "next"}}},
        {"devices = npu.rebellions.ai"},
        around=rival,
    ),
    cell(
        "another release that rolls out on what a device plugin gives",
        {
            "devices": {
                "npu": {"mode": "devicePlugin", "resourceName": ATOM, "count": 1},
                "rdma": {"enabled": False},
                "claimTemplate": None,
            }
        },
        {f"devices = {ATOM}"},
        around=rival_by_plugin,
    ),
]


@pytest.mark.parametrize(("change", "refused", "warned", "around"), CELLS)
def test_a_preview_refuses(
    live: Bench,
    change: dict[str, Any],
    refused: set[str],
    warned: set[str],
    around: Callable[[Bench], AbstractContextManager[None]],
) -> None:
    good = live.blocks
    with around(live):
        try:
            live.write(**merged(good, change))
            before = versions(live)
            said = live.refuse_preview().replace(live.namespace, "ns")
            assert without_traceback(said)
            told = {re.sub(r"^(Pod \S+) = .*", r"\1", key) for key in LETTER.findall(said)}
            assert told == refused, said
            for key in warned:
                assert re.search(rf"(^|\s){re.escape(key)}: ", said), said
            assert versions(live) == before, "nothing was touched"
        finally:
            live.write(**good)


def test_what_a_guard_lets_pass_is_said_and_an_update_is_refused_like_a_preview(live: Bench) -> None:
    good = live.blocks
    change: dict[str, Any] = {"storage": {"compileCache": {"storageClass": "kwok-volume"}}}
    try:
        live.write(**merged(good, change))
        before = versions(live)
        assert "Refused before anything was touched:" in live.refuse()
        assert versions(live) == before

        live.write(**merged(good, change | {"guards": {"volumes": "warn"}}))
        with untouched(live):
            passed = live.foresee()
        assert passed.counts == {}, "the class stays as it is"
        assert "storage.compileCache.storageClass = kwok-volume: claim rel-compile-cache-decode is there" in passed.said

        live.write(**merged(good, change | {"guards": {"volumes": "off"}}))
        assert "is there and has class" not in live.foresee().said
    finally:
        live.write(**good)


UNHEARD = 'device.attributes["npu.rebellions.ai"].productName == "unheard"'
EVERYTHING: dict[str, Any] = {
    "gateway": {"name": "shared"},
    "imagePullSecrets": ["no-login"],
    "modelserver": {
        "image": {"tag": "next"},
        "replicas": {"prefill": 2},
        "resources": {"requests": {"cpu": "100", "memory": "1Gi"}},
    },
    "devices": {
        "claimTemplate": {
            "requests": [
                {"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 1, "selectors": [UNHEARD]},
                {"name": "nic", "deviceClassName": "dranet", "count": 1},
            ]
        }
    },
    "storage": {"compileCache": {"storageClass": "kwok-volume"}},
}
"""What every guard has something against, with what stands around the stack."""
SAID = {
    "volumes": "storage.compileCache.storageClass = kwok-volume: claim rel-compile-cache-decode is there",
    "prerequisites": "imagePullSecrets[0] = no-login: ",
    "names": "Gateway shared = ns/shared: ",
    "nodes": "modelserver.replicas: all Pods of the stack",
    "quota": "ResourceQuota full",
    "serial": "release chat in namespace ns-other is rolling out Deployment chat-decode",
    "devices": "cannot fit",
}


def test_each_guard_may_warn_only_or_not_look_at_all(live: Bench) -> None:
    assert SAID.keys() == set(GUARD_NAMES)
    good = live.blocks
    with rival(live), strangers(live), full_quota(live):
        try:
            for force in ("enforce", "warn", "off"):
                live.write(**merged(good, EVERYTHING | {"guards": dict.fromkeys(GUARD_NAMES, force)}))
                with untouched(live):
                    said = live.refuse_preview() if force == "enforce" else live.foresee().said
                said = said.replace(live.namespace, "ns")
                told = {guard for guard, words in SAID.items() if words in said}
                assert told == (set[str]() if force == "off" else set(GUARD_NAMES)), said
        finally:
            live.write(**good)


def test_devices_that_depend_on_who_comes_first_are_warned_of(live: Bench) -> None:
    """As many as are wanted are free, but those for prefill, which wants a certain node, decode may take before."""
    good = live.blocks
    pinned = {"prefill": {"nodeSelector": {"kubernetes.io/hostname": "npu-0"}}}
    try:
        live.write(**merged(good, {"modelserver": {"replicas": {"decode": 6}, "podOverrides": pinned}}))
        with untouched(live):
            seen = live.foresee()
        why = "others can be so placed that the last Pod of prefill finds no place"
        assert re.search(rf"fits in some order\W+{why}", seen.said), seen.said
        assert "(free for some placements only)" in seen.said
        assert seen.objects["update"] == {"Deployment/rel-prefill", "Deployment/rel-decode"}, "it may be made"
    finally:
        live.write(**good)


def test_another_release_on_devices_of_another_kind_is_nobodys_concern(live: Bench) -> None:
    good = live.blocks
    other: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": f"other-{live.namespace}"},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example"'}}]},
    }
    with there(live, other), rival(live, device_class=other["metadata"]["name"]):
        try:
            live.write(**merged(good, {"modelserver": {"image": {"tag": "next"}}}))
            with untouched(live):
                assert "is rolling out" not in live.foresee().said
        finally:
            live.write(**good)


def test_who_starts_no_pod_does_not_wait_for_another_release(live: Bench) -> None:
    with rival(live), untouched(live):
        seen = live.foresee()
    assert seen.counts == {}
    assert "is rolling out" not in seen.said


def test_a_namespace_that_is_missing_is_refused(bench_of: Callable[[str], Bench]) -> None:
    bench = bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.write_over(namespace=f"{bench.namespace}-none")
    said = bench.refuse_preview()
    assert "there is no such namespace" in said
    assert said.count("lets it pass") == 1, "what is missing in it follows from that"


def test_a_namespace_that_goes_is_refused(bench_of: Callable[[str], Bench]) -> None:
    bench = bench_of("small")
    api, namespace = bench.plane.api, f"/api/v1/namespaces/{bench.namespace}"
    kept = {"name": "kept", "namespace": bench.namespace, "finalizers": ["example.com/kept"]}
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": kept})
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    try:
        api.delete(namespace)
        said = bench.refuse_preview()
        assert "because it is being terminated" in said, "the API server says it before any guard looks"
    finally:
        api.patch(f"{namespace}/configmaps/kept", {"metadata": {"finalizers": None}})


def test_who_sees_only_the_namespace_is_told_what_is_not_known(live: Bench, tmp_path: Path) -> None:
    api, account = live.plane.api, {"name": "narrow", "namespace": live.namespace}
    kind = "rbac.authorization.k8s.io/v1"
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    api.create(
        {
            "apiVersion": kind,
            "kind": "RoleBinding",
            "metadata": account,
            "roleRef": {"apiGroup": kind.partition("/")[0], "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", **account}],
        }
    )
    path = f"/api/v1/namespaces/{live.namespace}/serviceaccounts/narrow/token"
    request: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    content = yaml.safe_load(live.plane.kubeconfig.read_text())
    content["users"][0]["user"] = {"token": api.request("POST", path, request)["status"]["token"]}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    live.environment["KUBECONFIG"] = str(file)
    good = live.blocks
    try:
        with untouched(live):
            idle = live.foresee()
            live.write(**merged(good, {"modelserver": {"image": {"tag": "next"}}}))
            seen = live.foresee()
    finally:
        live.write(**good)
        live.environment["KUBECONFIG"] = str(live.plane.kubeconfig)
    assert idle.counts == {}
    assert "Pods of all namespaces" not in idle.said, "no Pod starts, so nobody asks for theirs"
    assert re.search(r"not known: .*Pods of all namespaces, .* and \d+ more: 403 Forbidden", seen.said), seen.said
    assert seen.counts == {"update": 2}, "what is not known is no reason to refuse"
    assert "not known: Nodes could not be read" in seen.said
    assert "(not known to be free)" in seen.said


def versions(bench: Bench) -> dict[str, str]:
    """Resource version of everything in the namespace."""
    found: dict[str, str] = {}
    for kind, collection in collections_in(bench.plane, bench.namespace):
        for item in bench.plane.api.list(collection):
            found[f"{kind}/{item['metadata']['name']}"] = item["metadata"]["resourceVersion"]
    return found
