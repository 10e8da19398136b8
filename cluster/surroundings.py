"""Reads what is around a stack, in one pass, to judge a plan before anything is touched. Changes nothing.

What is read was decided before (`stack.guards.wanted`). What may not or can't be read becomes *unknown* with its
reason; it is never taken for *none there*. Of a Secret nothing but its being there is asked, and of every other object
that is only looked up by name nothing but its metadata.

The questions do not depend on one another but for a few, so several are asked at a time: most of the time goes into
waiting for an API server that may be far away.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cluster.connect import NOT_FOUND, Cluster, ClusterError
from stack import labels
from stack.facts import Surroundings
from stack.guards.serial import named_templates

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from cluster.connect import Object
    from stack.facts import Reference, Wanted

T = TypeVar("T")
DRA = "/apis/resource.k8s.io/v1"
NOT_OVER = "status.phase!=Succeeded,status.phase!=Failed"
AT_A_TIME = 4
MOST_NAMED = 3
"""So many names stand in one reason; of more, only their number."""


def read_surroundings(context: str, wanted: Wanted) -> Surroundings:
    """What is around the stack, through one kubeconfig context; asks for nothing that is not wanted."""
    try:
        cluster = Cluster(context)
    except ClusterError as error:
        return Surroundings(unknown=(str(error),))
    with cluster, ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="surroundings") as pool:
        return _read(_Questions(cluster, pool), wanted)


class _Questions:
    """Asks several things at a time, and keeps why something was not answered, in the order of the answers taken."""

    def __init__(self, cluster: Cluster, pool: ThreadPoolExecutor) -> None:
        self.cluster = cluster
        self._pool = pool
        self._unreachable: str | None = None
        self._refused: dict[str, list[str]] = {}

    def ask(self, what: str, read: Callable[[], T]) -> Callable[[], Sequence[T]]:
        """Begin to ask. The answer comes in a list, so that *none there* differs from an empty one: *not answered*."""
        asked = self._pool.submit(self._try, read)

        def answer() -> Sequence[T]:
            found = asked.result()
            if not isinstance(found, ClusterError):
                return found
            # A server that has no such collection has nothing in it either; that this is missed is told elsewhere.
            if found.status is not None and found.status != NOT_FOUND:
                self._refused.setdefault(str(found), []).append(what)
            return ()

        return answer

    def _try(self, read: Callable[[], T]) -> Sequence[T] | ClusterError:
        if self._unreachable is not None:  # the next question would only wait again
            return ()
        try:
            return [read()]
        except ClusterError as error:
            if error.status is None:
                self._unreachable = str(error)
            return error

    def list(self, what: str, path: str, **query: str) -> Callable[[], Sequence[list[Object]]]:
        """Begin to ask for a collection."""
        return self.ask(what, partial(self.cluster.list, path, **query))

    def template(self, namespace: str, name: str) -> Callable[[], Sequence[Object | None]]:
        """Begin to ask for a ResourceClaimTemplate."""
        path = f"{DRA}/namespaces/{namespace}/resourceclaimtemplates/{name}"
        return self.ask(f"ResourceClaimTemplate {namespace}/{name}", partial(self.cluster.find, path))

    @property
    def unknown(self) -> tuple[str, ...]:
        """What was not answered, by reason."""
        told = [f"{_join(what)}: {why}" for why, what in self._refused.items()]
        if self._unreachable is not None:
            told.append(f"cluster of context {self.cluster.context}: {self._unreachable}")
        return tuple(told)


def _join(what: Sequence[str]) -> str:
    """`Nodes, Pods, Secret a and 4 more`."""
    more = len(what) - MOST_NAMED
    return ", ".join(what) if more <= 1 else f"{', '.join(what[:MOST_NAMED])} and {more} more"


def _read(questions: _Questions, wanted: Wanted) -> Surroundings:
    cluster, namespace = questions.cluster, wanted.namespace

    def begin(*, if_wanted: bool, what: str, path: str, **query: str) -> Callable[[], list[Object] | None]:
        answer = questions.list(what, path, **query) if if_wanted else None
        return lambda: next(iter(answer()), None) if answer is not None else None

    # The large ones first.
    pods = begin(if_wanted=wanted.nodes, what="Pods of all namespaces", path="/api/v1/pods", fieldSelector=NOT_OVER)
    claims = begin(if_wanted=wanted.devices, what="ResourceClaims of all namespaces", path=f"{DRA}/resourceclaims")
    slices = begin(if_wanted=wanted.devices, what="ResourceSlices", path=f"{DRA}/resourceslices")
    nodes = begin(if_wanted=wanted.nodes, what="Nodes", path="/api/v1/nodes")
    deployments = begin(
        if_wanted=wanted.rivals,
        what="Deployments of all namespaces",
        path="/apis/apps/v1/deployments",
        labelSelector=labels.ROLE,
    )
    classes = begin(if_wanted=wanted.device_classes, what="DeviceClasses", path=f"{DRA}/deviceclasses")
    storage = begin(
        if_wanted=wanted.storage_classes, what="StorageClasses", path="/apis/storage.k8s.io/v1/storageclasses"
    )
    volumes = begin(
        if_wanted=wanted.volume_claims,
        what="PersistentVolumeClaims",
        path=f"/api/v1/namespaces/{namespace}/persistentvolumeclaims",
    )
    replica_sets = begin(
        if_wanted=wanted.replica_sets,
        what="ReplicaSets",
        path=f"/apis/apps/v1/namespaces/{namespace}/replicasets",
        labelSelector=f"{labels.INSTANCE}={wanted.release}",
    )
    version = questions.ask("server version", partial(cluster.get, "/version"))
    served = {each: questions.ask(f"API {each}", partial(cluster.find, _root(each))) for each in sorted(wanted.served)}
    templates = {name: questions.template(namespace, name) for name in sorted(wanted.claim_templates)}
    secrets = {
        name: questions.ask(
            f"Secret {name}", partial(cluster.find_metadata, f"/api/v1/namespaces/{namespace}/secrets/{name}")
        )
        for name in sorted(wanted.secrets)
    }
    objects = {
        reference: questions.ask(
            f"{reference.kind} {reference.name}", partial(cluster.find_metadata, path_of(reference))
        )
        for reference in sorted(wanted.objects, key=_place)
    }

    all_pods = pods()
    of_release = begin(
        if_wanted=wanted.release_pods and all_pods is None,
        what="Pods",
        path=f"/api/v1/namespaces/{namespace}/pods",
        labelSelector=f"{labels.INSTANCE}={wanted.release}",
        fieldSelector=NOT_OVER,
    )
    roles = deployments()
    own_roles = begin(
        if_wanted=wanted.replica_sets and roles is None,
        what="Deployments",
        path=f"/apis/apps/v1/namespaces/{namespace}/deployments",
        labelSelector=f"{labels.INSTANCE}={wanted.release},{labels.ROLE}",
    )
    kinds = {each: _kinds(found) for each, answer in served.items() for found in answer()}
    groups = _groups(questions, [each for each, found in kinds.items() if not found])
    elsewhere = {
        place: questions.template(*place)
        for place in sorted(named_templates(roles or (), namespace=namespace, release=wanted.release))
    }
    return Surroundings(
        nodes=nodes(),
        pods=all_pods,
        release_pods=of_release() if all_pods is None else [pod for pod in all_pods if _is_of_release(pod, wanted)],
        slices=slices(),
        device_classes=_by_name(classes()),
        resource_claims=claims(),
        claim_templates={name: found for name, answer in templates.items() for found in answer()},
        templates_elsewhere={place: found for place, answer in elsewhere.items() for found in answer()},
        storage_classes=_by_name(storage()),
        volume_claims=_by_name(volumes()),
        replica_sets=replica_sets(),
        deployments=own_roles() if roles is None else roles,
        secrets={name: found is not None for name, answer in secrets.items() for found in answer()},
        objects={reference: found for reference, answer in objects.items() for found in answer()},
        groups={group: found for group, answer in groups.items() for found in map(_versions, answer())},
        served=kinds,
        server_version=next((found["gitVersion"] for found in version()), None),
        unknown=questions.unknown,
        calls=cluster.calls,
        size=cluster.size,
    )


def _is_of_release(pod: Object, wanted: Wanted) -> bool:
    live: Object = pod["metadata"].get("labels") or {}
    return pod["metadata"]["namespace"] == wanted.namespace and live.get(labels.INSTANCE) == wanted.release


def _by_name(listed: Iterable[Object] | None) -> dict[str, Object] | None:
    return None if listed is None else {live["metadata"]["name"]: live for live in listed}


def _place(reference: Reference) -> tuple[str, str, str]:
    return reference.kind, reference.namespace or "", reference.name


# --- API versions -----------------------------------------------------------------------------------------------------


def _kinds(listed: Object | None) -> frozenset[str]:
    """Kinds of an API version; none of one that is not served."""
    resources: list[Object] = [] if listed is None else listed.get("resources") or []
    return frozenset(each["kind"] for each in resources if "/" not in each["name"])


def _groups(questions: _Questions, versions: Collection[str]) -> Mapping[str, Callable[[], Sequence[Object | None]]]:
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
    return f"{_root(reference.api_version)}{where}/{plural(reference.kind)}/{reference.name}"


def plural(kind: str) -> str:
    """Resource of a kind, by the rules of English, which hold for every kind that is planned or looked up here."""
    word = kind.lower()
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith("s") else f"{word}s"
