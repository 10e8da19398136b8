"""Quotas: what the namespace is allowed, against the Pods, claims, volumes and other objects that a change adds.

Neither a Deployment nor its dry run is refused for it: its Pods are, and the roll-out waits for them. A Pod that leaves
counts until it is gone, so Pods that come before others have left count beside them (Kubernetes documentation,
*Resource Quotas*; its quota evaluators of Pods and ResourceClaims, 1.36). What is refused could not come about in any
order; where it depends on what comes first, that is a warning. So it is where a scope may or may not take in a Pod;
and what can't be counted, since Pods or their claims are not known, is not judged at all, and that is said.

Of other objects those count that are made anew beside those that are there, since the engine deletes last what is not
planned any more; what goes first is known (`components.model_servers`). What others make for them, such as a gateway's
own Deployment and Service, is not counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from stack.guards import references
from stack.guards.finding import GuardFinding, refusal, warning
from stack.guards.identity import maker_of
from stack.guards.limit_ranges import complete, troubles_of_pod, troubles_of_volume
from stack.guards.taken_back import had_its_template, is_asked_before
from stack.guards.volumes import VolumeChange, changes_of_volumes, default_class
from stack.impact import Happening, Method
from stack.rollout import words
from stack.rollout.pods import is_leaving
from stack.scalars import amount
from stack.spares.demand import MOST_DEVICES
from stack.spares.fit import Outcome
from stack.spares.pods import REQUIRED, at, each, inside, matches_labels, pod_limits, pod_requests
from stack.storage import block_of
from stack.version import minor_version

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from stack.config.root import StackConfig
    from stack.facts import Object, Reference, Surroundings, TrialFacts
    from stack.impact import Impact, PartImpact, WorkloadImpact
    from stack.planned import Manifest, StackPlan

Charge = Counter[str]
"""What something counts for, by the names that quotas have for it; CPU in 1/1000 cores."""
HAS_TO_BE_SET = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
"""Where a quota counts these, Pods with a container that does not say them are refused."""
COMPUTE = ("cpu", "memory", "ephemeral-storage")
PRIORITY, BEST_EFFORT = "PriorityClass", frozenset({"BestEffort", "NotBestEffort"})
CLAIMS = "count/resourceclaims.resource.k8s.io"
CLASS_DEVICES = ".deviceclass.resource.k8s.io/devices"
IMPLICIT = "requests.deviceclass.resource.kubernetes.io/"
BY_SCHEDULER = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of claims that the scheduler makes for the extended resources of a Pod, which count by the Pod already."""
STORAGE, STORAGE_CLASS = "requests.storage", ".storageclass.storage.k8s.io/"
VOLUME_CLAIMS = frozenset({"persistentvolumeclaims", "count/persistentvolumeclaims"})
REPLICA_SETS = "count/replicasets.apps"
BY_THEIR_NAME = frozenset({"configmaps", "secrets", "services"})
"""Objects that quotas knew before `count/`, and that are counted in both ways."""
OTHERWISE = frozenset({"count/pods", CLAIMS, *VOLUME_CLAIMS})
"""Counted with what they ask for, and so not among other objects."""
EXTENDED_BY_CLAIMS_SINCE = (1, 36)
"""Where claims count for the extended resource of their class as well (`DRAExtendedResource` on by default)."""
RDMA = "devices.rdma"
KEYS = {"routing-proxy": "routing.proxy.resources", "epp": "router.epp.resources", "rdma-discovery": RDMA}
"""Keys of the containers that have other resources than the model server; those of the check of NICs are fixed."""
WAY_OUT = "see `kubectl -n {} describe resourcequota,limitrange`, or ask whoever set them"


def guard_quota(
    config: StackConfig, plan: StackPlan, impact: Impact, surroundings: Surroundings, trial: TrialFacts
) -> Iterator[GuardFinding]:
    """LimitRanges first, then quotas.

    Args:
        config: the configuration.
        plan: its plan.
        impact: what the change does to Pods.
        surroundings: what is around the stack.
        trial: the planned Deployments as they would be stored.
    """
    if config.guards.quota == "off":
        return
    namespace = _Namespace(config, plan, surroundings, trial)
    yield from namespace.limited()
    for quota in surroundings.quotas or ():
        yield from _Count(namespace, quota, impact).findings()


@dataclass(frozen=True)
class _Namespace:
    """What is planned, as it is created in the namespace."""

    config: StackConfig
    plan: StackPlan
    surroundings: Surroundings
    trial: TrialFacts

    @property
    def ranges(self) -> Sequence[Object]:
        return sorted(self.surroundings.limit_ranges or (), key=lambda found: found["metadata"]["name"])

    @property
    def way_out(self) -> str:
        return WAY_OUT.format(self.plan.namespace)

    def template(self, name: str) -> Object:
        """Spec of a Deployment's Pods."""
        _, manifest = references.deployments(self.plan)[name]
        return references.pod_spec(self.trial.results.get(name, manifest))

    def pod(self, name: str) -> Object:
        """The same with what LimitRanges fill in, and its PriorityClass."""
        pod = complete(self.template(name), self.ranges)[0]
        if not pod.get("priorityClassName") and self.default_priority and self.default_priority[0]:
            return pod | {"priorityClassName": self.default_priority[0]}
        return pod

    @cached_property
    def default_priority(self) -> tuple[str | None, ...]:
        """The PriorityClass of Pods whose template names none: one answer, which may be None; empty if not known.

        Of several with `globalDefault` the lowest counts (Kubernetes 1.36, admission plugin Priority). Where classes
        may not be read, live Pods tell what was filled in for them.
        """
        around = self.surroundings
        if around.priority_classes is not None:
            defaults = [found for found in around.priority_classes.values() if found.get("globalDefault")]
            lowest = min(defaults, key=lambda found: found["value"], default=None)
            return (None if lowest is None else lowest["metadata"]["name"],)
        unnamed = {
            found["metadata"]["name"]
            for found in around.replica_sets or ()
            if not inside(found, "spec", "template", "spec").get("priorityClassName")
        }
        given = {
            pod["spec"].get("priorityClassName") or None
            for pod in around.release_pods or ()
            if any(owner["name"] in unnamed for owner in each(pod, "metadata", "ownerReferences"))
        }
        return tuple(given) if len(given) == 1 else ()

    @cached_property
    def claims_by_pod(self) -> Mapping[str, Sequence[Object]]:
        """Live claims by the uid of the Pod that owns them, or that they are reserved for."""
        found: defaultdict[str, list[Object]] = defaultdict(list)
        for claim in self.surroundings.resource_claims or ():
            if claim["metadata"]["namespace"] == self.plan.namespace:
                owners = each(claim, "metadata", "ownerReferences")
                for uid in {user["uid"] for user in owners or each(claim, "status", "reservedFor")}:
                    found[uid].append(claim)
        return found

    @cached_property
    def pods(self) -> Sequence[Object] | None:
        """Live Pods of the namespace; None when they are not known."""
        if self.surroundings.pods is None:
            return self.surroundings.namespace_pods
        return [pod for pod in self.surroundings.pods if pod["metadata"]["namespace"] == self.plan.namespace]

    # -- LimitRanges ----------------------------------------------------------------------------------------------

    def limited(self) -> Iterator[GuardFinding]:
        """Pods and claims that LimitRanges refuse, and Pods that they change."""
        refused: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        changed: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for name, (part, _) in references.deployments(self.plan).items():
            pod = self.template(name)
            troubles = list(dict.fromkeys(troubles_of_pod(pod, self.ranges)))
            for trouble in troubles:
                who = "its Pod" if trouble.container is None else f"container {trouble.container}"
                why = f"{who} {trouble.why}, says LimitRange {trouble.limit_range}, so no Pod would be created"
                refused[_key_of(part, trouble.container), why].add(name)
            filled: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
            for default in complete(pod, self.ranges)[1] if not troubles else ():
                what = f"{default.kind}.{default.resource} {default.quantity}"
                filled[default.container, default.limit_range].append(what)
            for (container, limit_range), what in filled.items():
                why = f"container {container} gets {', '.join(what)} from LimitRange {limit_range}"
                changed[_key_of(part, container), why].add(name)
        for (key, why), workloads in refused.items():
            fix = f"{_set(key, 'so that it fits')}; {self.way_out}"
            yield refusal("quota", key, "", why, fix=fix, workloads=workloads, idle="warn")
        for (key, why), workloads in changed.items():
            fix = _set(key, "if that is not wanted")
            yield warning("quota", key, "", why, fix=fix, workloads=workloads, idle="omit")
        yield from self._limited_volumes()

    def _limited_volumes(self) -> Iterator[GuardFinding]:
        for change in changes_of_volumes(self.plan, self.surroundings.volume_claims):
            for trouble in troubles_of_volume(change.size, self.ranges) if change.before is None else ():
                key = f"{block_of(self.config, change.volume)}.size"
                why = f"claim {change.volume.object.name} {trouble.why}, says LimitRange {trouble.limit_range}"
                yield refusal("quota", key, change.size, why, fix=f"Set another size; {self.way_out}")


def _set(key: str, rest: str) -> str:
    return "What it asks for is fixed" if key == RDMA else f"Set {key} {rest}"


def _key_of(part: str, container: str | None) -> str:
    return KEYS.get(container or part, "modelserver.resources")


# --- what counts ------------------------------------------------------------------------------------------------------


def charge_of_pod(pod: Object) -> Charge:
    """What one Pod counts for.

    Args:
        pod: its spec, with what LimitRanges fill in.
    """
    found: Charge = Counter({"pods": 1, "count/pods": 1})
    for resource, units in pod_requests(pod).items():
        found[f"requests.{resource}"] = units
        if resource in COMPUTE or resource.startswith("hugepages-"):
            found[resource] = units
    for resource, units in pod_limits(pod).items():
        if resource in COMPUTE:
            found[f"limits.{resource}"] = units
    return found


def charge_of_claim(spec: Object, extended: Mapping[str, str]) -> Charge:
    """What one ResourceClaim counts for.

    Args:
        spec: of the claim.
        extended: DeviceClass to the extended resource that it provides, where claims count for those.
    """
    found: Charge = Counter({CLAIMS: 1})
    for request in each(spec, "devices", "requests"):
        most: Counter[str] = Counter()
        for choice in (inside(request, "exactly"), *each(request, "firstAvailable")):
            if name := choice.get("deviceClassName"):
                is_exact = (choice.get("allocationMode") or "ExactCount") == "ExactCount"
                most[name] = max(most[name], choice.get("count") or 1 if is_exact else MOST_DEVICES)
        for name, count in most.items():
            found[f"{name}{CLASS_DEVICES}"] += count
            found[f"{IMPLICIT}{name}"] += count
            if name in extended:
                found[f"requests.{extended[name]}"] += count
    return found


def charge_of_volume(change: VolumeChange) -> Charge:
    """What a claim counts for that is made, or the more that it counts for when it grows."""
    before = 0 if change.before is None else amount(change.before)
    return _charge_of_storage(int(amount(change.size) - before), int(change.before is None), change.class_name)


def charge_of_volume_claim(spec: Object, default: str | None) -> Charge:
    """What a PersistentVolumeClaim counts for.

    Args:
        spec: of the claim.
        default: class of one that names none; None if it gets none, or that is not known.
    """
    named = spec.get("storageClassName")
    size = int(amount(at(spec, "resources", "requests", "storage") or "0"))
    return _charge_of_storage(size, 1, default if named is None else named)


def _charge_of_storage(units: int, claims: int, class_name: str | None) -> Charge:
    found: Charge = Counter({STORAGE: units, **dict.fromkeys(VOLUME_CLAIMS, claims)})
    if class_name:
        found[f"{class_name}{STORAGE_CLASS}{STORAGE}"] = units
        found[f"{class_name}{STORAGE_CLASS}persistentvolumeclaims"] = claims
    return +found


def charge_of_object(reference: Reference, manifest: Manifest) -> Charge:
    """What an object counts for that is neither Pod nor claim."""
    group = f".{reference.group}" if reference.group else ""
    found: Charge = Counter({f"count/{reference.resource}{group}": 1})
    if not group and reference.resource in BY_THEIR_NAME:
        found[reference.resource] = 1
    if (reference.kind, group) == ("Service", ""):
        of_type = at(manifest, "spec", "type") or "ClusterIP"
        found["services.loadbalancers"] = int(of_type == "LoadBalancer")
        ports = each(manifest, "spec", "ports")
        takes_ports = at(manifest, "spec", "allocateLoadBalancerNodePorts") is not False
        if of_type == "NodePort" or (of_type == "LoadBalancer" and takes_ports):
            found["services.nodeports"] = len(ports)
    return +found


def counts_objects(quota: Object) -> bool:
    """Whether a quota counts objects that are neither Pods nor claims."""
    return any(
        (resource.startswith("count/") and resource not in OTHERWISE) or resource.partition(".")[0] in BY_THEIR_NAME
        for resource in inside(quota, "spec", "hard")
    )


def is_for_priorities(quota: Object) -> bool:
    """Whether it depends on their PriorityClass which Pods a quota counts."""
    return any(scope["scopeName"] == PRIORITY for scope in _scopes(quota))


def is_counted(quota: Object, pod: Object, *, taken_for_met: Collection[str] = ()) -> bool:
    """Whether a quota's scopes take in a Pod.

    Args:
        quota: the quota.
        pod: spec of the Pod, as it is created.
        taken_for_met: names of scopes that are not looked at.
    """
    return all(_is_in_scope(scope, pod) for scope in _scopes(quota) if scope["scopeName"] not in taken_for_met)


def _scopes(quota: Object) -> list[Object]:
    asked: list[Object] = [{"scopeName": scope, "operator": "Exists"} for scope in each(quota, "spec", "scopes")]
    return asked + each(quota, "spec", "scopeSelector", "matchExpressions")


def _is_in_scope(scope: Object, pod: Object) -> bool:
    match scope["scopeName"]:
        case "Terminating" | "NotTerminating" as name:
            return (pod.get("activeDeadlineSeconds") is not None) == (name == "Terminating")
        case "BestEffort" | "NotBestEffort" as name:
            return _is_best_effort(pod) == (name == "BestEffort")
        case "PriorityClass" as name:
            priority = pod.get("priorityClassName")
            expression: Object = {"key": name, "operator": scope["operator"], "values": scope.get("values") or []}
            return matches_labels({"matchExpressions": [expression]}, {name: priority} if priority else {})
        case "CrossNamespacePodAffinity":
            return _looks_elsewhere(pod)
        case _:
            return False


def _is_best_effort(pod: Object) -> bool:
    return not any(
        resource in COMPUTE[:2]
        for container in (*each(pod, "initContainers"), *each(pod, "containers"))
        for kind in ("requests", "limits")
        for resource in inside(container, "resources", kind)
    )


def _looks_elsewhere(pod: Object) -> bool:
    preferred = REQUIRED.replace("required", "preferred")
    terms = [
        term
        for kind in ("podAffinity", "podAntiAffinity")
        for term in (
            *each(pod, "affinity", kind, REQUIRED),
            *(inside(weighted, "podAffinityTerm") for weighted in each(pod, "affinity", kind, preferred)),
        )
    ]
    return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms)


# --- one quota --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Load:
    """A Deployment's Pods, as one quota counts them.

    Attributes:
        asked: what it makes new Pods for, with what one counts for; empty where it makes none.
        counted: all its Pods now, those that leave included.
        before, after: those that stay until they are exchanged, and those when the change is through.
        alone: the most that has to be there at one time for it to get on at all.
        most: the most that is asked for at one time.
    """

    name: str
    asked: Charge
    counted: Charge
    before: Charge
    after: Charge
    alone: Charge
    most: Charge


class _Count:
    """One quota against one change."""

    def __init__(self, namespace: _Namespace, quota: Object, impact: Impact) -> None:
        self.namespace = namespace
        self.name: str = quota["metadata"]["name"]
        self.quota = quota
        self.impact = impact
        self.hard = _read(inside(quota, "status", "hard"))
        self.used = _read(inside(quota, "status", "used"))
        self.has_scopes = bool(_scopes(quota))
        # What is not counted yet can't be judged: how much of it there is, nobody knows.
        self.judged = self.hard.keys() & self.used.keys()
        self.doubts: dict[str, None] = {}

    def findings(self) -> Iterator[GuardFinding]:
        """What is not said, then what is too much."""
        if self.impact.starting or not self.impact.is_known:
            names = [name for name in references.deployments(self.namespace.plan) if self._may_count(name)]
            yield from self._unsaid(names)
            if self.impact.is_known:
                yield from self._pods(names)
        if not self.has_scopes:
            yield from self._volumes()
            yield from self._objects()

    def _may_count(self, name: str) -> bool:
        """Whether it counts a Deployment's new Pods, or may: then it is noted why that is not known."""
        pod, around, scopes = self.namespace.pod(name), self.namespace.surroundings, _scopes(self.quota)
        open_scopes: dict[str, str] = {}
        if not self.namespace.default_priority and not pod.get("priorityClassName"):
            open_scopes[PRIORITY] = (
                "which PriorityClass is the default, and so whether it counts these Pods, is not known"
            )
        if around.limit_ranges is None and _is_best_effort(pod):
            why = "what LimitRanges fill in, and so whether it counts these Pods, is not known"
            open_scopes |= dict.fromkeys(BEST_EFFORT, why)
        if not is_counted(self.quota, pod, taken_for_met=open_scopes):
            return False
        self.doubts |= {open_scopes[scope["scopeName"]]: None for scope in scopes if scope["scopeName"] in open_scopes}
        return True

    def _but(self) -> str:
        """What makes a refusal a warning, at its end."""
        return "".join(f"; {doubt}" for doubt in self.doubts)

    # -- what every Pod has to say --------------------------------------------------------------------------------

    def _unsaid(self, names: Sequence[str]) -> Iterator[GuardFinding]:
        wanted = sorted(HAS_TO_BE_SET & self.hard.keys())
        found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for name in names:
            pod, part = self.namespace.pod(name), references.deployments(self.namespace.plan)[name][0]
            if inside(pod, "resources"):  # said for the Pod as a whole
                continue
            for container in (*each(pod, "initContainers"), *each(pod, "containers")):
                if missing := [resource for resource in wanted if not _says(container, resource)]:
                    key, what = _key_of(part, container["name"]), words.join(missing)
                    found[key, f"container {container['name']} does not set {what}"].add(name)
        is_filled_in = self.namespace.surroundings.limit_ranges is None
        unless = ", unless a LimitRange fills it in: those are not known" if is_filled_in else ""
        say = warning if self.doubts or is_filled_in else refusal
        for (key, why), workloads in found.items():
            yield say(
                "quota",
                key,
                "",
                f"{why}, which ResourceQuota {self.name} counts, so no Pod would be created{unless}{self._but()}",
                fix=f"{_set(key, 'or have a LimitRange fill it in')}; {self.namespace.way_out}",
                workloads=workloads,
                idle="warn",
            )

    # -- Pods -----------------------------------------------------------------------------------------------------

    def _pods(self, names: Sequence[str]) -> Iterator[GuardFinding]:
        """Too many of them, as far as it is known how many there are."""
        counted = _union(self._charge(self.namespace.pod(name), self._new_claims(name)) for name in names)
        if not counted:
            return
        live = self.namespace.pods
        if live is None:
            yield self._not_known(counted, "Pods of the namespace could not be read", names)
            return
        if uncounted := counted.keys() - self.used.keys():
            yield self._not_known(uncounted, "its status does not say how much is used", names)
        ours = [pod for pod in live if is_leaving(pod) or self._maker_of(pod) is not None]
        of_claims = {resource for resource in counted if self._is_of_claims(resource)} & self.judged
        if of_claims and any(self._live_claims(pod) is None for pod in ours if is_counted(self.quota, pod["spec"])):
            self.judged -= {resource for resource in self.hard if self._is_of_claims(resource)}
            yield self._not_known(of_claims, "claims of Pods that are there were not found", names)
        if of_volumes := {resource for resource in counted if _is_of_volumes(resource)} & self.judged:
            around = self.namespace.surroundings
            is_open = around.volume_claims is None
            if unknown := {name for name in of_volumes if is_open or (STORAGE_CLASS in name and self._is_class_open)}:
                self.judged -= unknown
                what = "claims of the namespace" if is_open else "StorageClasses, one of which is the default,"
                yield self._not_known(unknown, f"{what} could not be read", names)
        yield from self._too_many(
            [
                (part, self._load(part, workload))
                for part in self.impact.parts
                for workload in part.workloads
                if workload.name in names
            ]
        )

    def _not_known(self, resources: Iterable[str], why: str, names: Sequence[str]) -> GuardFinding:
        return warning(
            "quota",
            f"ResourceQuota {self.name}",
            "",
            f"not known whether there is room for {words.join(sorted(resources))}: {why}",
            fix=f"Look at what is left before you update: `kubectl -n {self.namespace.plan.namespace} describe "
            f"resourcequota {self.name}`",
            workloads=names,
            idle="omit",
            room=Outcome.UNKNOWN,
        )

    def _load(self, part: PartImpact, workload: WorkloadImpact) -> _Load:
        live = list(self._pods_of(workload.name))
        new = self._charge(self.namespace.pod(workload.name), self._new_claims(workload.name))
        staying = [self._charge_of_live(pod) for pod in live if not is_leaving(pod)]
        before, after = _sum(staying), _times(new, workload.after)
        old = staying[0] if staying else Counter[str]()
        if workload.method is Method.ROLLING and workload.new and workload.leaving and not part.max_unavailable:
            # The first new Pod comes beside the old ones, as far as they are wanted; the last old one leaves after all.
            alone = (_times(old, min(len(staying), workload.after)) + new) | (after + old)
        else:
            alone = after
        most = (before + _times(new, workload.extra_pods)) | after if workload.method is Method.ROLLING else after
        counted = _sum(map(self._charge_of_live, live))
        asked = new if workload.new or workload.extra_pods else Counter[str]()
        return _Load(workload.name, asked, counted, before, after, alone, most)

    def _charge(self, pod: Object, claims: Iterable[Charge]) -> Charge:
        """What a Pod counts for in this quota.

        Args:
            pod: its spec.
            claims: what the claims count for that are made for it.
        """
        found = charge_of_pod(pod)
        if not self.has_scopes:
            found += _sum(claims)
        return Counter({resource: count for resource, count in found.items() if resource in self.hard})

    def _charge_of_live(self, pod: Object) -> Charge:
        return self._charge(pod["spec"], (*(self._live_claims(pod) or ()), *self._live_volumes(pod)))

    @cached_property
    def _is_class_open(self) -> bool:
        """Whether a volume that comes and goes with its Pod is of the default class, and that is not known."""
        plan = self.namespace.plan
        named = [
            claim["spec"].get("storageClassName")
            for name in references.deployments(plan)
            for _, claim in _own_volumes(self.namespace.pod(name))
        ]
        return None in named and self.namespace.surroundings.storage_classes is None

    def _live_volumes(self, pod: Object) -> Iterator[Charge]:
        """What the volumes count for that come and go with a Pod, as far as they were made."""
        live = self.namespace.surroundings.volume_claims or {}
        for volume, _ in _own_volumes(pod["spec"]):
            claim = live.get(f"{pod['metadata']['name']}-{volume}")
            if claim is not None:
                yield charge_of_volume_claim(claim["spec"], None)

    def _new_claims(self, name: str) -> Iterator[Charge]:
        plan, around = self.namespace.plan, self.namespace.surroundings
        default = default_class(around.storage_classes or {})
        for _, volume in _own_volumes(self.namespace.pod(name)):
            yield charge_of_volume_claim(volume["spec"], default)
        templates = {**around.claim_templates, **{planned.name: planned.manifest for planned in plan.claims}}
        for claim in each(self.namespace.pod(name), "resourceClaims"):
            template = templates.get(claim.get("resourceClaimTemplateName") or "")
            if template is not None:
                yield charge_of_claim(template["spec"]["spec"], self._extended)

    def _live_claims(self, pod: Object) -> list[Charge] | None:
        """What the claims count for that were made for a Pod that is there; None when not all of them are known.

        Its template may be another now, or gone: what it has tells what counts for it.
        """
        entries = each(pod, "spec", "resourceClaims")
        named = {entry.get("resourceClaimName") for entry in entries}
        made = sum(bool(entry.get("resourceClaimTemplateName")) for entry in entries)
        found = [
            claim
            for claim in self.namespace.claims_by_pod.get(pod["metadata"]["uid"], ())
            if claim["metadata"]["name"] not in named
        ]
        is_by_scheduler = [BY_SCHEDULER in inside(claim, "metadata", "annotations") for claim in found]
        if len(found) - sum(is_by_scheduler) < made:
            return None
        return [
            charge_of_claim(claim["spec"], {} if is_counted_by_pod else self._extended)
            for claim, is_counted_by_pod in zip(found, is_by_scheduler, strict=True)
        ]

    def _is_of_claims(self, resource: str) -> bool:
        """Whether claims count for it."""
        extended = {f"requests.{name}" for name in self._extended.values()}
        return resource == CLAIMS or CLASS_DEVICES in resource or resource.startswith(IMPLICIT) or resource in extended

    @property
    def _extended(self) -> Mapping[str, str]:
        around = self.namespace.surroundings
        if minor_version(around.server_version) < EXTENDED_BY_CLAIMS_SINCE:
            return {}
        classes = around.device_classes or {}
        return {
            name: resource for name, found in classes.items() if (resource := at(found, "spec", "extendedResourceName"))
        }

    def _maker_of(self, pod: Object) -> str | None:
        return maker_of(pod, self.namespace.plan.release)

    def _pods_of(self, name: str) -> Iterator[Object]:
        """Pods of a Deployment, those that leave included."""
        for pod in self.namespace.pods or ():
            if self._maker_of(pod) == name and is_counted(self.quota, pod["spec"]):
                yield pod

    def _too_many(self, loads: Sequence[tuple[PartImpact, _Load]]) -> Iterator[GuardFinding]:
        asked = _union(load.asked for _, load in loads)
        volumes = Counter({resource: units for resource, units in self._added_volumes.items() if resource in asked})
        others = _less(self.used, _sum(load.counted for _, load in loads) + self._on_their_way()) + volumes
        names = [load.name for _, load in loads]
        if final := self._beyond(others + _sum(load.after for _, load in loads), asked):
            yield self._refuse(final, "when this change is through", names)
            return
        for part, load in loads:
            rest = _sum(other.before & other.after for _, other in loads if other is not load)
            if stuck := self._beyond(others + rest + load.alone, load.asked):
                when = f"while {part.part} is exchanged, with a new Pod beside the old ones"
                yield self._refuse(stuck, when, [load.name], part)
                return
        for resource, count in self._beyond(others + _sum(load.most for _, load in loads), asked).items():
            yield warning(
                "quota",
                "modelserver.strategy",
                "",
                f"ResourceQuota {self.name} allows {_say(resource, self.hard[resource])} {resource}, and with all Pods "
                f"that come before others leave it would be {_say(resource, count)}, so some wait for others"
                f"{self._but()}",
                fix=f"Exchange one role after the other; {self.namespace.way_out}",
                workloads=names,
                idle="omit",
                room=Outcome.UNKNOWN if self.doubts else Outcome.SOME_ORDER,
            )

    def _on_their_way(self) -> Charge:
        """What Pods of the namespace count for that leave for good: those of Deployments that are planned no more."""
        planned = references.deployments(self.namespace.plan)
        return _sum(
            self._charge_of_live(pod)
            for pod in self.namespace.pods or ()
            if (maker := self._maker_of(pod)) not in planned
            and (is_leaving(pod) or maker is not None)
            and is_counted(self.quota, pod["spec"])
        )

    def _beyond(self, counted: Charge, asked: Charge) -> dict[str, int]:
        """What is more than allowed of what something new is asked for: of the rest there may be too much already."""
        return {
            resource: counted[resource]
            for resource, allowed in sorted(self.hard.items())
            if resource in self.judged and asked[resource] and counted[resource] > allowed
        }

    def _refuse(
        self, beyond: Mapping[str, int], when: str, names: Sequence[str], surging: PartImpact | None = None
    ) -> GuardFinding:
        numbers = [
            f"{_say(resource, count)} {resource} ({_say(resource, self.hard[resource])} allowed)"
            for resource, count in beyond.items()
        ]
        is_router = all(references.deployments(self.namespace.plan)[name][0] == references.EPP for name in names)
        key = references.key_of_counts(self.namespace.plan, names)
        fix = "Run fewer Pods, or have the quota raised"
        if is_router:
            key, fix = "router.epp", "Have the quota raised"
        elif surging is not None:
            key, fix = "modelserver.strategy", f"{self._first(names, surging)}, or have the quota raised"
        around, trial = self.namespace.surroundings, self.namespace.trial
        say = warning if self.doubts or is_asked_before(self.impact.parts, around, trial) else refusal
        return say(
            "quota",
            key,
            "",
            f"{when} there would be {words.join(numbers)} in ResourceQuota {self.name}, and Pods beyond that are not "
            f"created{self._but()}",
            fix=f"{fix}; {self.namespace.way_out}",
            workloads=names,
            idle="omit",
            room=None if surging is None else Outcome.UNKNOWN if self.doubts else Outcome.CANNOT,
        )

    def _first(self, names: Sequence[str], surging: PartImpact) -> str:
        """How an old Pod leaves before the new one comes. What a role may do is asked only when it restarts."""
        is_auto = self.namespace.config.modelserver.strategy.type == "auto"
        if is_auto and surging.happens is Happening.RESTARTS:
            return "Allow an outage by name (modelserver.strategy.allowOutage)"
        until = "type: RollingUpdate, " if is_auto else ""
        until_it_is = ", until it is through" if is_auto else ""
        return f"Let an old Pod leave first ({until}maxSurge 0, maxUnavailable 1{until_it_is}{self._if_alone(names)})"

    def _if_alone(self, names: Sequence[str]) -> str:
        planned = references.deployments(self.namespace.plan)
        is_alone = any(planned[name][1]["spec"].get("replicas") == 1 for name in names)
        return ", which stops a role with one Pod" if is_alone else ""

    # -- volumes --------------------------------------------------------------------------------------------------

    def _volumes(self) -> Iterator[GuardFinding]:
        plan, added, changes = self.namespace.plan, self._added_volumes, self._changes_of_volumes
        for resource, count in self._beyond(self.used + added, added).items():
            yield refusal(
                "quota",
                "storage",
                "",
                f"with the claims of this change there would be {_say(resource, count)} {resource} "
                f"({_say(resource, self.hard[resource])} allowed) in ResourceQuota {self.name}, and the API server "
                "would refuse one half-way through the update",
                fix=f"Ask for smaller volumes, or have the quota raised; {self.namespace.way_out}",
            )
        of_classes = [resource for resource in self.hard if STORAGE_CLASS in resource]
        unnamed = [change.volume.object.name for change in changes if not change.is_class_known]
        if of_classes and unnamed:
            yield warning(
                "quota",
                f"ResourceQuota {self.name}",
                "",
                f"not known whether there is room for {words.join(sorted(of_classes))}: {words.join(sorted(unnamed))} "
                "would get the default StorageClass, and which that is could not be read",
                fix="Name the class, or look at what is left before you update: "
                f"`kubectl -n {plan.namespace} describe resourcequota {self.name}`",
            )

    @cached_property
    def _changes_of_volumes(self) -> Sequence[VolumeChange]:
        around = self.namespace.surroundings
        return tuple(changes_of_volumes(self.namespace.plan, around.volume_claims, around.storage_classes))

    @cached_property
    def _added_volumes(self) -> Charge:
        return _sum(map(charge_of_volume, self._changes_of_volumes))

    # -- other objects --------------------------------------------------------------------------------------------

    def _objects(self) -> Iterator[GuardFinding]:
        """Those that are made anew beside those that are there."""
        made: Charge = Counter()
        perhaps: Charge = Counter()
        objects = self.namespace.surroundings.objects
        for reference, planned in references.made(self.namespace.plan).items():
            if reference.namespace == self.namespace.plan.namespace:
                charge = charge_of_object(reference, planned.manifest)
                if reference not in objects:
                    perhaps += charge
                elif objects[reference] is None:
                    made += charge
        new_sets = sum(
            not had_its_template(workload.name, self.namespace.surroundings, self.namespace.trial)
            for workload in self._workloads()
            if workload.new and (workload.happens is Happening.CREATED or workload.is_template_changed)
        )
        made += Counter({REPLICA_SETS: new_sets})
        staying = _less(self.used, self._gone_before())
        beyond = self._beyond(staying + made, made)
        for resource, count in beyond.items():
            kind = "services" if resource.startswith("services.") else resource.removeprefix("count/")
            yield refusal(
                "quota",
                f"ResourceQuota {self.name}",
                "",
                f"with what this change makes there would be {count} {resource} ({self.hard[resource]} allowed) before "
                "anything that it drops is deleted, and the API server would refuse one half-way through the update",
                fix=f"Delete what nobody needs (`kubectl -n {self.namespace.plan.namespace} get {kind}`), or have the "
                f"quota raised; {self.namespace.way_out}",
            )
        if unknown := self._beyond(staying + made + perhaps, perhaps).keys() - beyond.keys():
            yield self._not_told(unknown, "which of these objects are there could not be read")
        if uncounted := made.keys() & self.hard.keys() - self.used.keys():
            yield self._not_told(uncounted, "its status does not say how much is used")

    def _not_told(self, resources: Iterable[str], why: str) -> GuardFinding:
        """As `_not_known`, of what has nothing to do with Pods."""
        return replace(self._not_known(resources, why, ()), idle="warn", room=None)

    def _workloads(self) -> Iterator[WorkloadImpact]:
        for part in self.impact.parts:
            yield from part.workloads

    def _gone_before(self) -> Charge:
        """Deployments that are gone before the first object of their kind is made, with their ReplicaSets.

        With another topology all of the model servers' are, else those of a role that loses all its Pods; an entry of
        nodePlacement that is dropped goes last.
        """
        topology, planned = self.namespace.plan.modelserver.topology, references.deployments(self.namespace.plan)
        gone = {
            workload.name
            for workload in self._workloads()
            if workload.part != references.EPP
            and (topology.changes or (workload.happens is Happening.DELETED and workload.entry is None))
        }
        sets = [
            found
            for found in self.namespace.surroundings.replica_sets or ()
            if any(owner["name"] in gone for owner in each(found, "metadata", "ownerReferences"))
        ]
        return Counter({"count/deployments.apps": len(gone - planned.keys()), REPLICA_SETS: len(sets)})


def _own_volumes(pod: Object) -> Iterator[tuple[str, Object]]:
    """Names of the volumes that come and go with a Pod, and what they are made from."""
    for volume in each(pod, "volumes"):
        if "ephemeral" in volume:
            yield volume["name"], volume["ephemeral"]["volumeClaimTemplate"]


def _is_of_volumes(resource: str) -> bool:
    return resource == STORAGE or resource in VOLUME_CLAIMS or STORAGE_CLASS in resource


def _says(container: Object, resource: str) -> bool:
    kind, _, name = resource.rpartition(".")
    return name in inside(container, "resources", kind or "requests")


def _read(quantities: Mapping[str, str]) -> Charge:
    return Counter({resource: int(amount(quantity) * _scale(resource)) for resource, quantity in quantities.items()})


def _scale(resource: str) -> int:
    return 1000 if resource in {"cpu", "requests.cpu", "limits.cpu"} else 1


def _sum(charges: Iterable[Charge]) -> Charge:
    return sum(charges, Counter[str]())


def _union(charges: Iterable[Charge]) -> Charge:
    """The most of each."""
    found: Charge = Counter()
    for charge in charges:
        found |= charge
    return found


def _times(charge: Charge, number: int) -> Charge:
    return Counter({resource: count * number for resource, count in charge.items()})


def _less(one: Charge, other: Charge) -> Charge:
    return Counter({resource: max(0, count - other[resource]) for resource, count in one.items()})


def _say(resource: str, units: int) -> str:
    if _scale(resource) != 1:
        return f"{units / 1000:g}"
    if any(word in resource for word in ("memory", "storage", "hugepages")) and "claims" not in resource:
        return f"{units / 2**30:.4g}Gi"
    return str(units)
