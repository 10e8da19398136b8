"""Reads what is around a stack, to judge a plan before anything is touched. Changes nothing.

What is read was decided before (`stack.guards.wanted`), and what was read before planning (`cluster.facts`) is not read
again. What may not or can't be read becomes *unknown* with its reason; it is never taken for *none there*. Of a Secret
nothing but its being there is asked, and of every other object that is only looked up by name nothing but its metadata.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cluster.connect import ClusterError
from cluster.questions import questions_to
from stack import labels
from stack.facts import NOTHING_AROUND, Reference
from stack.guards.quota import counts_objects, is_for_priorities
from stack.guards.serial import named_templates

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from cluster.connect import Object
    from cluster.questions import Questions
    from stack.facts import Surroundings, Wanted

T = TypeVar("T")
K = TypeVar("K")
DRA = "/apis/resource.k8s.io/v1"
NOT_ASKED: Object = {}
NOT_OVER = "status.phase!=Succeeded,status.phase!=Failed"


def read_surroundings(context: str, wanted: Wanted, near: Surroundings = NOTHING_AROUND) -> Surroundings:
    """What is around the stack, through one kubeconfig context; asks for nothing that is not wanted.

    Args:
        context: kubeconfig context.
        wanted: what to read.
        near: what was read of the release before, which is taken over.
    """
    try:
        with questions_to(context) as questions:
            return _read(questions, wanted, near)
    except ClusterError as error:
        return replace(near, unknown=(str(error),))


def _read(questions: Questions, wanted: Wanted, near: Surroundings) -> Surroundings:
    cluster, namespace = questions.cluster, wanted.namespace
    core = f"/api/v1/namespaces/{namespace}"

    def begin(what: str, path: str, *, if_wanted: bool, **query: str) -> Callable[[], list[Object] | None]:
        return questions.list(what, path, query) if if_wanted else lambda: None

    # The large ones first.
    pods = begin("Pods of all namespaces", "/api/v1/pods", if_wanted=wanted.nodes, fieldSelector=NOT_OVER)
    claims = begin("ResourceClaims of all namespaces", f"{DRA}/resourceclaims", if_wanted=wanted.resource_claims)
    slices = begin("ResourceSlices", f"{DRA}/resourceslices", if_wanted=wanted.slices)
    nodes = begin("Nodes", "/api/v1/nodes", if_wanted=wanted.nodes)
    rivals = begin(
        "Deployments of all namespaces",
        "/apis/apps/v1/deployments",
        if_wanted=wanted.rivals,
        labelSelector=labels.ROLE,
    )
    classes = begin("DeviceClasses", f"{DRA}/deviceclasses", if_wanted=wanted.device_classes)
    storage = begin("StorageClasses", "/apis/storage.k8s.io/v1/storageclasses", if_wanted=wanted.storage_classes)
    quotas = begin("ResourceQuotas", f"{core}/resourcequotas", if_wanted=wanted.limits)
    limit_ranges = begin("LimitRanges", f"{core}/limitranges", if_wanted=wanted.limits)
    scalers = begin(
        "HorizontalPodAutoscalers",
        f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers",
        if_wanted=wanted.scalers,
    )
    version = questions.ask("server version", partial(cluster.get, "/version"))
    served = {each: questions.ask(f"API {each}", partial(cluster.find, _root(each))) for each in sorted(wanted.served)}
    templates = {name: _template(questions, namespace, name) for name in sorted(wanted.claim_templates)}
    volumes = {
        name: questions.ask(f"PersistentVolume {name}", partial(cluster.find, f"/api/v1/persistentvolumes/{name}"))
        for name in sorted(wanted.volumes)
    }
    secrets = {
        name: questions.ask(f"Secret {name}", partial(cluster.find_metadata, f"{core}/secrets/{name}"))
        for name in sorted(wanted.secrets)
    }
    objects = _metadata(questions, wanted.objects)

    listed, all_pods, all_quotas = rivals(), pods(), quotas()
    pods_there = begin(
        "Pods of the namespace", f"{core}/pods", if_wanted=wanted.limits and all_pods is None, fieldSelector=NOT_OVER
    )
    priorities = begin(
        "PriorityClasses",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        if_wanted=wanted.limits and any(map(is_for_priorities, all_quotas or ())),
    )
    kinds = {each: _kinds(found) for each, answer in served.items() for found in answer()}
    groups = _groups(questions, [each for each, found in kinds.items() if not found])
    elsewhere = {
        place: _template(questions, *place)
        for place in sorted(named_templates(listed or (), namespace=namespace, release=wanted.release))
    }
    all_nodes, all_slices, all_classes, there = nodes(), slices(), storage(), _found(objects)
    if not wanted.limits and any(there.get(reference, NOT_ASKED) is None for reference in wanted.made):
        all_quotas = questions.list("ResourceQuotas", f"{core}/resourcequotas")()
    counted = wanted.made - wanted.objects if any(map(counts_objects, all_quotas or ())) else frozenset[Reference]()
    made = _metadata(questions, counted)
    return replace(
        near,
        nodes=all_nodes,
        pods=all_pods,
        release_pods=_pods_of_release(near.release_pods, all_pods, wanted),
        slices=all_slices,
        device_classes=_by_name(classes()),
        resource_claims=claims(),
        claim_templates=_found(templates),
        templates_elsewhere=_found(elsewhere),
        storage_classes=_by_name(all_classes),
        volumes=_found(volumes),
        namespace_pods=pods_there(),
        quotas=all_quotas,
        limit_ranges=limit_ranges(),
        scalers=scalers(),
        priority_classes=_by_name(priorities()),
        deployments=_with_ours(near.deployments, listed, wanted),
        secrets={name: found is not None for name, found in _found(secrets).items()},
        objects={**there, **_found(made)},
        groups={group: _versions(found) for group, found in _found(groups).items()},
        served=kinds,
        server_version=next((found["gitVersion"] for found in version()), None),
        unknown=questions.unknown,
        calls=near.calls + cluster.calls,
        size=near.size + cluster.size,
    )


def _metadata(
    questions: Questions, references: Iterable[Reference]
) -> dict[Reference, Callable[[], Sequence[Object | None]]]:
    """Begin to ask for the metadata of objects."""
    return {
        reference: questions.ask(
            f"{reference.kind} {reference.name}", partial(questions.cluster.find_metadata, path_of(reference))
        )
        for reference in sorted(references, key=_place)
    }


def _template(questions: Questions, namespace: str, name: str) -> Callable[[], Sequence[Object | None]]:
    """Begin to ask for a ResourceClaimTemplate."""
    path = f"{DRA}/namespaces/{namespace}/resourceclaimtemplates/{name}"
    return questions.ask(f"ResourceClaimTemplate {namespace}/{name}", partial(questions.cluster.find, path))


def _found(asked: Mapping[K, Callable[[], Sequence[T]]]) -> dict[K, T]:
    """The answers there are."""
    return {key: found for key, answer in asked.items() for found in answer()}


def _pods_of_release(
    ours: Sequence[Object] | None, everybodys: Sequence[Object] | None, wanted: Wanted
) -> Sequence[Object] | None:
    """Those that were read before, or where these may not be listed by themselves, those among all."""
    if ours is not None or everybodys is None:
        return ours
    return [pod for pod in everybodys if _is_of_release(pod, wanted)]


def _with_ours(
    ours: Sequence[Object] | None, everybodys: Sequence[Object] | None, wanted: Wanted
) -> Sequence[Object] | None:
    """The release's as they were read before, which its ReplicaSets and Pods go with, and those of others."""
    if ours is None or everybodys is None:
        return ours if everybodys is None else everybodys
    return [*ours, *(live for live in everybodys if not _is_of_release(live, wanted))]


def _is_of_release(live: Object, wanted: Wanted) -> bool:
    meta = live["metadata"]
    found: Object = meta.get("labels") or {}
    return meta["namespace"] == wanted.namespace and found.get(labels.INSTANCE) == wanted.release


def _by_name(listed: Iterable[Object] | None) -> dict[str, Object] | None:
    return None if listed is None else {live["metadata"]["name"]: live for live in listed}


def _place(reference: Reference) -> tuple[str, str, str]:
    return reference.kind, reference.namespace or "", reference.name


# --- API versions -----------------------------------------------------------------------------------------------------


def _kinds(listed: Object | None) -> frozenset[str]:
    """Kinds of an API version; none of one that is not served."""
    resources: list[Object] = [] if listed is None else listed.get("resources") or []
    return frozenset(each["kind"] for each in resources if "/" not in each["name"])


def _groups(questions: Questions, versions: Collection[str]) -> Mapping[str, Callable[[], Sequence[Object | None]]]:
    """Begin to ask which versions there are of the groups of these."""
    groups = sorted({each.rpartition("/")[0] for each in versions})
    return {
        group: questions.ask(f"API group {group}", partial(questions.cluster.find, f"/apis/{group}"))
        for group in groups
    }


def _versions(group: Object | None) -> tuple[str, ...]:
    """Served versions of a group; none of one that is not there."""
    return () if group is None else tuple(each["version"] for each in group["versions"])


# --- paths ------------------------------------------------------------------------------------------------------------


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def path_of(reference: Reference) -> str:
    """Where one object lies on the API server."""
    where = f"/namespaces/{reference.namespace}" if reference.namespace is not None else ""
    return f"{_root(reference.api_version)}{where}/{reference.resource}/{reference.name}"
