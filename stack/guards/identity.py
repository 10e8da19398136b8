"""Names that somebody else has taken, and Pods of somebody else that would be taken for the stack's.

The engine takes over whatever has a fixed name of the stack, so that an emptied state finds its objects again; without
this guard it would do so with a stranger's. The labels tell whose an object is. A Pod is the stack's by the name of the
ReplicaSet that made it, which holds also while that ReplicaSet is gone already and its Pods follow.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stack import labels, names
from stack.guards import references
from stack.guards.finding import GuardFinding, refusal
from stack.guards.wanted import fixed_names
from stack.rollout import words
from stack.rollout.pods import TEMPLATE_HASH, is_leaving
from stack.router import pool_selector
from stack.scalars import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stack.config.root import StackConfig
    from stack.facts import Object, Reference, Surroundings
    from stack.planned import StackPlan


def guard_names(config: StackConfig, plan: StackPlan, surroundings: Surroundings) -> Iterator[GuardFinding]:
    """Objects first, then Pods."""
    for reference in fixed_names(plan):
        found = surroundings.objects.get(reference)
        if found is not None and not has_labels(found, plan.release):
            yield _taken(reference, found, plan.release)
    yield from _strangers(config, plan, surroundings)


def has_labels(meta: Object, release: str) -> bool:
    """Whether an object has the labels by which this release knows its own."""
    live: Mapping[str, str] = meta.get("labels") or {}
    return labels.common_labels(release).items() <= live.items()


def _taken(reference: Reference, meta: Object, release: str) -> GuardFinding:
    live: Mapping[str, str] = meta.get("labels") or {}
    wanted = labels.common_labels(release)
    of = [f"{label}={live[label]}" for label in wanted if label in live and live[label] != wanted[label]]
    has = f"it has {', '.join(of)}" if of else "it has none of another owner either"
    group, _, _ = reference.api_version.rpartition("/")
    kind = f"{reference.kind.lower()}.{group}" if "." in group else reference.kind.lower()
    kubectl = f"kubectl -n {reference.namespace}" if reference.namespace is not None else "kubectl"
    where = f"{reference.namespace}/{reference.name}" if reference.namespace is not None else reference.name
    label = " ".join(f"{key}={value}" for key, value in wanted.items())
    first = (
        "It belongs to a Helm release: uninstall that first. "
        if live.get(labels.MANAGED_BY) == "Helm"
        else f"Look at it: `{kubectl} get {kind} {reference.name} -o yaml`. "
    )
    return refusal(
        "names",
        f"{reference.kind} {reference.name}",
        where,
        f"an object of this name exists without the labels of release {release} ({has}), and the update would take it "
        "over",
        fix=f"{first}If nobody needs it, delete it; if it is to become the stack's, "
        f"`{kubectl} label {kind} {reference.name} --overwrite {label}`. Otherwise choose another release or namespace",
    )


# --- Pods -------------------------------------------------------------------------------------------------------------


def maker_of(pod: Object, release: str) -> str | None:
    """Name of the stack's Deployment that a Pod is of; None for a stranger's.

    Args:
        pod: a live Pod of the stack's namespace.
        release: of the stack.
    """
    meta = pod["metadata"]
    live: Object = meta.get("labels") or {}
    template: str | None = live.get(TEMPLATE_HASH)
    for owner in meta.get("ownerReferences") or ():
        made: str = owner["name"]
        if owner.get("controller") and owner["kind"] == "ReplicaSet" and template and made.endswith(f"-{template}"):
            name = made.removesuffix(f"-{template}")
            return name if _is_ours(name, release) else None
    return None


def _is_ours(name: str, release: str) -> bool:
    """Whether the stack gives a Deployment such a name, in whatever mode."""
    if name == names.epp(release):
        return True
    workloads = "|".join(re.escape(names.workload(release, role)) for role in ROLES)
    return re.fullmatch(rf"({workloads})(-[0-9]+)?", name) is not None


def _strangers(config: StackConfig, plan: StackPlan, surroundings: Surroundings) -> Iterator[GuardFinding]:
    selectors: dict[str, Mapping[str, str]] = {"the pool": pool_selector(config)}
    for name, (_, manifest) in references.deployments(plan).items():
        selectors[f"Deployment {name}"] = manifest["spec"]["selector"]["matchLabels"]
    selectors |= {
        f"Service {planned.name}": planned.manifest["spec"]["selector"]
        for planned in plan.router
        if planned.kind == "Service"
    }
    found: dict[str, list[str]] = {}
    for pod in surroundings.release_pods or ():
        meta = pod["metadata"]
        if is_leaving(pod) or maker_of(pod, plan.release) is not None:
            continue
        live = meta["labels"].items()
        matching = [who for who, selector in selectors.items() if selector.items() <= live]
        if matching:
            found.setdefault(" and ".join(matching), []).append(meta["name"])
    for who, pods in found.items():
        label = f"{labels.INSTANCE}={plan.release}"
        yield refusal(
            "names",
            f"Pod {words.join(sorted(pods))}",
            label,
            f"not made by this stack, but {who} would select {'it' if len(pods) == 1 else 'them'}, and send requests "
            "there or count it among its own",
            fix=f"Take the label away from whatever makes {'it' if len(pods) == 1 else 'them'}, for a Pod made by hand "
            f"`kubectl -n {plan.namespace} label pod {min(pods)} {labels.INSTANCE}-`; or choose another release",
        )
