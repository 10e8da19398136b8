"""Quotas: what the namespace is allowed, against the Pods, claims and volumes that a change adds.

Neither a Deployment nor its dry run is refused for it: its Pods are, and the roll-out waits for them. A Pod that leaves
counts until it is gone, so Pods that come before others have left count beside them (Kubernetes documentation,
*Resource Quotas*; its quota evaluators of Pods and ResourceClaims, 1.36). What is refused could not come about in any
order; where it depends on what comes first, that is a warning.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack.guards import references
from stack.guards.finding import GuardFinding, refusal, warning
from stack.guards.identity import maker_of
from stack.guards.limit_ranges import complete, troubles_of_pod, troubles_of_volume
from stack.guards.volumes import changes_of_volumes
from stack.impact import Happening, Method
from stack.rollout import words
from stack.scalars import amount
from stack.spares.demand import MOST_DEVICES
from stack.spares.pods import REQUIRED, at, each, inside, matches_labels, pod_limits, pod_requests
from stack.storage import block_of
from stack.version import minor_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from stack.config.root import StackConfig
    from stack.facts import Object, Surroundings, TrialFacts
    from stack.guards.volumes import VolumeChange
    from stack.impact import Impact, PartImpact, WorkloadImpact
    from stack.planned import StackPlan

Charge = Counter[str]
"""What something counts for, by the names that quotas have for it; CPU in 1/1000 cores."""
HAS_TO_BE_SET = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
"""Where a quota counts these, Pods with a container that does not say them are refused."""
COMPUTE = ("cpu", "memory", "ephemeral-storage")
CLASS_DEVICES = ".deviceclass.resource.k8s.io/devices"
EXTENDED_BY_CLAIMS_SINCE = (1, 36)
"""Where claims count for the extended resource of their class as well (`DRAExtendedResource` on by default)."""
RDMA = "devices.rdma"
KEYS = {"routing-proxy": "routing.proxy.resources", "epp": "router.epp.resources", "rdma-discovery": RDMA}
"""Keys of the containers that have other resources than the model server; those of the check of NICs are fixed."""
NOT_THIS_CHANGES = frozenset({Happening.GOES_BACK, Happening.CONTINUES})
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
    if all(part.happens is not Happening.UNKNOWN for part in impact.parts):
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
        """The same with what LimitRanges fill in."""
        return complete(self.template(name), self.ranges)[0]

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
    found: Charge = Counter({"count/resourceclaims.resource.k8s.io": 1})
    for request in each(spec, "devices", "requests"):
        most: Counter[str] = Counter()
        for choice in (inside(request, "exactly"), *each(request, "firstAvailable")):
            if name := choice.get("deviceClassName"):
                is_exact = (choice.get("allocationMode") or "ExactCount") == "ExactCount"
                most[name] = max(most[name], choice.get("count") or 1 if is_exact else MOST_DEVICES)
        for name, count in most.items():
            found[f"{name}{CLASS_DEVICES}"] += count
            found[f"requests.deviceclass.resource.kubernetes.io/{name}"] += count
            if name in extended:
                found[f"requests.{extended[name]}"] += count
    return found


def charge_of_volume(change: VolumeChange) -> Charge:
    """What a claim counts for that is made, or the more that it counts for when it grows."""
    units = int(amount(change.size) - (0 if change.before is None else amount(change.before)))
    one = int(change.before is None)
    found: Charge = Counter(
        {"requests.storage": units, "persistentvolumeclaims": one, "count/persistentvolumeclaims": one}
    )
    if change.class_name:
        found[f"{change.class_name}.storageclass.storage.k8s.io/requests.storage"] = units
        found[f"{change.class_name}.storageclass.storage.k8s.io/persistentvolumeclaims"] = one
    return +found


def is_counted(quota: Object, pod: Object) -> bool:
    """Whether a quota's scopes take in a Pod."""
    asked = [{"scopeName": scope, "operator": "Exists"} for scope in each(quota, "spec", "scopes")]
    asked += each(quota, "spec", "scopeSelector", "matchExpressions")
    return all(_is_in_scope(scope, pod) for scope in asked)


def _is_in_scope(scope: Object, pod: Object) -> bool:
    match scope["scopeName"]:
        case "Terminating" | "NotTerminating" as name:
            return (pod.get("activeDeadlineSeconds") is not None) == (name == "Terminating")
        case "BestEffort" | "NotBestEffort" as name:
            containers = [*each(pod, "initContainers"), *each(pod, "containers")]
            says = (
                any(resource in COMPUTE[:2] for resource in inside(container, "resources", kind))
                for container in containers
                for kind in ("requests", "limits")
            )
            return (not any(says)) == (name == "BestEffort")
        case "PriorityClass" as name:
            priority = pod.get("priorityClassName")
            expression: Object = {"key": name, "operator": scope["operator"], "values": scope.get("values") or []}
            return matches_labels({"matchExpressions": [expression]}, {name: priority} if priority else {})
        case "CrossNamespacePodAffinity":
            return _looks_elsewhere(pod)
        case _:
            return False


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
        counted: all its Pods now, those that leave included.
        before, after: those that stay until they are exchanged, and those when the change is through.
        alone: the most that has to be there at one time for it to get on at all.
        most: the most that is asked for at one time.
    """

    name: str
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
        self.has_scopes = bool(each(quota, "spec", "scopes") or inside(quota, "spec", "scopeSelector"))

    def findings(self) -> Iterator[GuardFinding]:
        """What is not said, then what is too much."""
        counted = [
            (part, workload)
            for part in self.impact.parts
            for workload in part.workloads
            if workload.name in references.deployments(self.namespace.plan)
            and is_counted(self.quota, self.namespace.pod(workload.name))
        ]
        yield from self._unsaid([workload.name for _, workload in counted])
        yield from self._too_many([(part, self._load(part, workload)) for part, workload in counted])
        if not self.has_scopes:
            yield from self._volumes()

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
        for (key, why), workloads in found.items():
            yield refusal(
                "quota",
                key,
                "",
                f"{why}, which ResourceQuota {self.name} counts, so no Pod would be created",
                fix=f"{_set(key, 'or have a LimitRange fill it in')}; {self.namespace.way_out}",
                workloads=workloads,
                idle="warn",
            )

    # -- Pods -----------------------------------------------------------------------------------------------------

    def _load(self, part: PartImpact, workload: WorkloadImpact) -> _Load:
        live = list(self._pods_of(workload.name))
        new = self._charge(self.namespace.pod(workload.name))
        staying = [self._charge(pod["spec"]) for pod in live if "deletionTimestamp" not in pod["metadata"]]
        before, after = _sum(staying), _times(new, workload.after)
        old = staying[0] if staying else Counter[str]()
        if workload.method is Method.ROLLING and workload.new and workload.leaving and not part.max_unavailable:
            # The first new Pod comes beside the old ones, as far as they are wanted; the last old one leaves after all.
            alone = (_times(old, min(len(staying), workload.after)) + new) | (after + old)
        else:
            alone = after
        most = (before + _times(new, workload.extra_pods)) | after if workload.method is Method.ROLLING else after
        counted = _sum(self._charge(pod["spec"]) for pod in live)
        return _Load(workload.name, counted, before, after, alone, most)

    def _charge(self, pod: Object) -> Charge:
        found = charge_of_pod(pod)
        if not self.has_scopes:
            for spec in self._claims_of(pod):
                found += charge_of_claim(spec, self._extended)
        return Counter({resource: count for resource, count in found.items() if resource in self.hard})

    def _claims_of(self, pod: Object) -> Iterator[Object]:
        plan, around = self.namespace.plan, self.namespace.surroundings
        templates = {**around.claim_templates, **{planned.name: planned.manifest for planned in plan.claims}}
        for claim in each(pod, "resourceClaims"):
            template = templates.get(claim.get("resourceClaimTemplateName") or "")
            if template is not None:
                yield template["spec"]["spec"]

    @property
    def _extended(self) -> Mapping[str, str]:
        around = self.namespace.surroundings
        if minor_version(around.server_version) < EXTENDED_BY_CLAIMS_SINCE:
            return {}
        classes = around.device_classes or {}
        return {
            name: resource for name, found in classes.items() if (resource := at(found, "spec", "extendedResourceName"))
        }

    def _pods_of(self, name: str) -> Iterator[Object]:
        """Pods of a Deployment, those that leave included."""
        plan = self.namespace.plan
        for pod in self.namespace.surroundings.release_pods or ():
            if maker_of(pod, plan.release) == name and is_counted(self.quota, pod["spec"]):
                yield pod

    def _too_many(self, loads: Sequence[tuple[PartImpact, _Load]]) -> Iterator[GuardFinding]:
        others = _less(self.used, _sum(load.counted for _, load in loads) + self._on_their_way())
        names = [load.name for _, load in loads]
        if final := self._beyond(others + _sum(load.after for _, load in loads)):
            yield self._refuse(final, "when this change is through", names, is_surge=False)
            return
        for part, load in loads:
            rest = _sum(other.before & other.after for _, other in loads if other is not load)
            if stuck := self._beyond(others + rest + load.alone):
                when = f"while {part.part} is exchanged, with a new Pod beside the old ones"
                yield self._refuse(stuck, when, [load.name], is_surge=True)
                return
        for resource, count in self._beyond(others + _sum(load.most for _, load in loads)).items():
            yield warning(
                "quota",
                "modelserver.strategy",
                "",
                f"ResourceQuota {self.name} allows {_say(resource, self.hard[resource])} {resource}, and with all Pods "
                f"that come before others leave it would be {_say(resource, count)}, so some wait for others",
                fix=f"Exchange one role after the other; {self.namespace.way_out}",
                workloads=names,
                idle="omit",
            )

    def _on_their_way(self) -> Charge:
        """What Pods of the namespace count for that leave for good: those of Deployments that are planned no more."""
        planned, plan, around = (
            references.deployments(self.namespace.plan),
            self.namespace.plan,
            self.namespace.surroundings,
        )
        leaving = [
            pod
            for pod in around.pods or around.release_pods or ()
            if pod["metadata"]["namespace"] == plan.namespace
            and (maker := maker_of(pod, plan.release)) not in planned
            and ("deletionTimestamp" in pod["metadata"] or maker is not None)
        ]
        return _sum(self._charge(pod["spec"]) for pod in leaving if is_counted(self.quota, pod["spec"]))

    def _beyond(self, counted: Charge) -> dict[str, int]:
        """What is more than allowed, and more than there is now: what is too much already is not this change's."""
        return {
            resource: counted[resource]
            for resource, allowed in sorted(self.hard.items())
            if counted[resource] > max(allowed, self.used[resource])
        }

    def _refuse(self, beyond: Mapping[str, int], when: str, names: Sequence[str], *, is_surge: bool) -> GuardFinding:
        numbers = [
            f"{_say(resource, count)} {resource} ({_say(resource, self.hard[resource])} allowed)"
            for resource, count in beyond.items()
        ]
        is_router = all(references.deployments(self.namespace.plan)[name][0] == references.EPP for name in names)
        key, fix = "modelserver.replicas", "Run fewer Pods, or have the quota raised"
        if is_router:
            key, fix = "router.epp", "Have the quota raised"
        elif is_surge:
            key = "modelserver.strategy"
            first = (
                "Allow an outage by name (modelserver.strategy.allowOutage)"
                if self.namespace.config.modelserver.strategy.type == "auto"
                else f"Let an old Pod leave first (maxSurge 0, maxUnavailable 1{self._if_alone(names)})"
            )
            fix = f"{first}, or have the quota raised"
        say = warning if self._is_asked_before else refusal
        return say(
            "quota",
            key,
            "",
            f"{when} there would be {words.join(numbers)} in ResourceQuota {self.name}, and Pods beyond that are not "
            "created",
            fix=f"{fix}; {self.namespace.way_out}",
            workloads=names,
            idle="omit",
        )

    def _if_alone(self, names: Sequence[str]) -> str:
        planned = references.deployments(self.namespace.plan)
        is_alone = any(planned[name][1]["spec"]["replicas"] == 1 for name in names)
        return ", which stops a role with one Pod" if is_alone else ""

    @property
    def _is_asked_before(self) -> bool:
        """Whether all Pods that start are what an earlier change asked for, or take it back."""
        asking = [part for part in self.impact.parts if part.new]
        return bool(asking) and all(part.happens in NOT_THIS_CHANGES for part in asking)

    # -- volumes --------------------------------------------------------------------------------------------------

    def _volumes(self) -> Iterator[GuardFinding]:
        plan, around = self.namespace.plan, self.namespace.surroundings
        added = _sum(charge_of_volume(change) for change in changes_of_volumes(plan, around.volume_claims))
        counted = Counter({resource: count + self.used[resource] for resource, count in added.items() if count})
        for resource, count in self._beyond(counted).items():
            yield refusal(
                "quota",
                "storage",
                "",
                f"with the claims of this change there would be {_say(resource, count)} {resource} "
                f"({_say(resource, self.hard[resource])} allowed) in ResourceQuota {self.name}, and the API server "
                "would refuse one half-way through the update",
                fix=f"Ask for smaller volumes, or have the quota raised; {self.namespace.way_out}",
            )


def _says(container: Object, resource: str) -> bool:
    kind, _, name = resource.rpartition(".")
    return name in inside(container, "resources", kind or "requests")


def _read(quantities: Mapping[str, str]) -> Charge:
    return Counter({resource: int(amount(quantity) * _scale(resource)) for resource, quantity in quantities.items()})


def _scale(resource: str) -> int:
    return 1000 if resource in {"cpu", "requests.cpu", "limits.cpu"} else 1


def _sum(charges: Iterable[Charge]) -> Charge:
    return sum(charges, Counter[str]())


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
