"""Lines and letters about a roll-out, for the operator."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stack.rollout.pods import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stack.planned import RollOutPlan
    from stack.rollout.departures import Overstay
    from stack.rollout.ending import Ending
    from stack.rollout.patience import Case
    from stack.rollout.pods import PodState, Trouble
    from stack.rollout.progress import RollOut

SHOWN = 3
"""Names in one line; it stays readable."""
REMEDIES: Mapping[Kind, str] = {
    Kind.UNSCHEDULABLE: "Free what it asks for on a node that it may use, or mend its node selector, tolerations or "
    "devices, see `{kubectl} describe pod {pod}`; without spare devices a roll-out needs modelserver.strategy with "
    "maxSurge 0 and maxUnavailable 1.",
    Kind.IMAGE: "Mend modelserver.image (or routing.proxy.image), or imagePullSecrets, or make the registry reachable, "
    "see `{kubectl} describe pod {pod}`.",
    Kind.CONFIGURATION: "Make the Secret or ConfigMap that it misses, or mend what refers to it, see "
    "`{kubectl} describe pod {pod}`.",
    Kind.CRASHING: "Look at `{kubectl} logs {pod} -c {container} --previous`, and mend what it says.",
    Kind.ENDED: "Look at `{kubectl} describe pod {pod}` and at its node, and mend what they say.",
    Kind.TERMINATING: "{leave}",
    Kind.REFUSED: "Mend the quota or the policy that is named, see `{kubectl} describe deployment {pod}`.",
    Kind.UNSCALED: "Look at `{kubectl} describe {scaler}`, and whether what works on it runs.",
}
REMEDIES_OF_THE_EPP: Mapping[Kind, str] = {
    Kind.UNSCHEDULABLE: "Make room on a node that it may use (router.epp.resources, nodeSelector, tolerations, "
    "affinity), see `{kubectl} describe pod {pod}`.",
    Kind.IMAGE: "Mend router.epp.image, or imagePullSecrets, or make the registry reachable, see "
    "`{kubectl} describe pod {pod}`.",
}
THE_WAY_BACK = (
    "To go back, put the previous configuration back and run `pulumi up`: Pods that were never replaced are not "
    "restarted by that."
)


def join(names: Iterable[str]) -> str:
    """At most three names, and how many more there are."""
    listed = list(names)
    shown = ", ".join(listed[:SHOWN])
    return f"{shown} and {len(listed) - SHOWN} more" if len(listed) > SHOWN else shown


def progress(state: RollOut, cases: Sequence[Case]) -> str:
    """How far a roll-out is, in one line: what is updated, available, waiting, leaving, and what is stuck and why."""
    return _progress(state, cases, is_blurred=False)


def progress_to_compare(state: RollOut, cases: Sequence[Case]) -> str:
    """The same without the numbers in what Kubernetes says: a line is not worth printing again for a counter in it."""
    return _progress(state, cases, is_blurred=True)


def _progress(state: RollOut, cases: Sequence[Case], *, is_blurred: bool) -> str:
    parts = [
        _counted(f"{state.updated} of {state.wanted} Pods updated", state.new),
        _counted(f"{state.available} available", [pod for pod in (*state.new, *state.old) if pod.is_ready]),
    ]
    if state.wanted < state.floor:
        parts.append(f"its scaler has not asked for {state.floor} yet")
    if not state.is_observed:
        parts.append("Kubernetes has not looked at the change yet")
    for what, pods in (
        ("waiting", [pod for pod in state.new if not pod.is_ready]),
        ("to be replaced", state.old if state.is_observed else ()),
        ("leaving", state.leaving),
    ):
        if pods:
            parts.append(f"{what}: {join(pod.name for pod in pods)}")
    stuck: dict[str, list[str]] = {}
    told = [case for case in cases if case.trouble.kind is not Kind.UNSCALED]  # said above
    for case in sorted(told, key=lambda case: case.pod or ""):
        stuck.setdefault(_trouble(case, is_blurred=is_blurred), []).extend([case.pod] if case.pod else [])
    parts += [f"{join(pods)}: {why}" if pods else why for why, pods in stuck.items()]
    return f"{parts[0]}, {'; '.join(parts[1:])}"


def _counted(count: str, pods: Sequence[PodState]) -> str:
    return f"{count} ({join(pod.name for pod in pods)})" if pods else count


def _trouble(case: Case, *, is_blurred: bool) -> str:
    text = str(case.trouble)
    if is_blurred:
        text = re.sub(r"\d+", "#", text)
    if case.is_held:
        text = f"{text} (since then it has been running for longer than before)"
    return text if case.excuse is None else f"{text} (waits for devices of {case.excuse}, which is leaving)"


def out_of_patience(
    plan: RollOutPlan, state: RollOut, case: Case, *, namespace: str, others: Sequence[Case] = ()
) -> str:
    """The letter about a Pod that has been stuck for too long, with what else is stuck."""
    subject = f"Pod {case.pod} has" if case.pod is not None else "its Pods have"
    # Going back waits for a Pod that does not leave like going on does.
    way_back = "" if case.trouble.kind is Kind.TERMINATING else f" {THE_WAY_BACK}"
    return (
        f"{part(plan)}: Deployment {plan.name} did not roll out: {subject} been {case.trouble.kind.value} for "
        f"{case.seconds:.0f} s ({case.trouble}); {progress(state, others)}. "
        f"{_what_to_do(plan, case.trouble, case.pod or plan.name, namespace)} Then run `pulumi up` again; "
        f"rollout.patienceSeconds (now {plan.patience_seconds}) gives it longer.{way_back}"
    )


def halted(plan: RollOutPlan, state: RollOut, *, namespace: str) -> str:
    """The letter about a Deployment that somebody paused before all its Pods were new."""
    return (
        f"{part(plan)}: Deployment {plan.name} did not roll out: it is paused (`kubectl rollout pause`), and no update "
        f"ends that; {progress(state, ())}. Run `kubectl -n {namespace} rollout resume deployment/{plan.name}`, then "
        "`pulumi up` again."
    )


def leave(namespace: str, pod: str, node: str | None) -> str:
    """What to do about a Pod that does not leave."""
    by_force = f"`kubectl -n {namespace} delete pod {pod} --force --grace-period=0`"
    if node is None:
        return f"Look at `kubectl -n {namespace} describe pod {pod}`; if nothing of it is left, {by_force}."
    return (
        f"Look at its node (`kubectl describe node {node}`), and mend it; if that node is gone, delete the Node object "
        f"(`kubectl delete node {node}`), or {by_force}."
    )


def out_of_time(
    plan: RollOutPlan, state: RollOut, cases: Sequence[Case], *, gave_up: str | None, namespace: str
) -> str:
    """The letter about a roll-out that Kubernetes gave up, or that took longer than it may (`gave_up` is None)."""
    why = gave_up or f"it is not complete after {plan.timeout_seconds} s"
    selector = ",".join(f"{key}={value}" for key, value in plan.selector.items())
    return (
        f"{part(plan)}: Deployment {plan.name} did not roll out: {why}; {progress(state, cases)}. Mend what is named "
        f"(see `kubectl -n {namespace} get pods -l '{selector}'`), and run `pulumi up` again. {THE_WAY_BACK}"
    )


def part(plan: RollOutPlan) -> str:
    """Which part of the stack a Deployment is."""
    return "endpoint picker" if plan.part == "epp" else f"role {plan.part}"


def _what_to_do(plan: RollOutPlan, trouble: Trouble, pod: str, namespace: str) -> str:
    if "/" in pod:  # as Pods of other namespaces are told
        namespace, pod = pod.split("/")
    remedies = {**REMEDIES, **(REMEDIES_OF_THE_EPP if plan.part == "epp" else {})}
    return remedies[trouble.kind].format(
        kubectl=f"kubectl -n {namespace}",
        pod=pod,
        container=trouble.container,
        leave=leave(namespace, pod, trouble.node),
        scaler=plan.scaler,
    )


def ending(state: Ending) -> str:
    """What is waited for before a change can begin."""
    parts = [*state.objects]
    if state.pods:
        parts.append(f"{'Pod' if len(state.pods) == 1 else 'Pods'} {join(state.pods)}")
    overstays = "".join(f". {_overstay(overstay)}" for overstay in state.overstays[:SHOWN])
    return f"an earlier change is still under way: waiting for {', '.join(parts)} to go{overstays}"


def stuck(state: Ending) -> str:
    """The same when that is not worth waiting for any longer."""
    return f"{ending(state)} Then run `pulumi up` again."


def _overstay(overstay: Overstay) -> str:
    return (
        f"Pod {overstay.pod} stays terminating {overstay.where}, and had {overstay.grace} s to leave. "
        f"{leave(overstay.namespace, overstay.pod, overstay.node)}"
    )
