"""Live objects as an API server shows them, as far as a roll-out looks at them."""

from __future__ import annotations

from typing import Any

from stack.planned import RollOutPlan
from tests.builders import merged

Object = dict[str, Any]
WHEN = "2026-01-01T00:00:00Z"
LEAVING: Object = {"metadata": {"deletionTimestamp": WHEN, "deletionGracePeriodSeconds": 900}}


def roll_out(**over: Any) -> RollOutPlan:
    """The plan of `deployment()`: two decode Pods, unless told otherwise."""
    planned: Object = {
        "name": "rel-decode",
        "part": "decode",
        "selector": {"app": "rel-decode"},
        "pods": 2,
        "ready": 2,
        "awaits_leave": True,
        "is_owned": True,
        "timeout_seconds": 1000,
        "patience_seconds": 300,
    }
    return RollOutPlan(**(planned | over))


def roll_out_of_epp(**over: Any) -> RollOutPlan:
    """The same of an endpoint picker: one Pod, and the old one may stay."""
    epp: Object = {"name": "rel-epp", "part": "epp", "selector": {"app": "rel-epp"}, "pods": 1, "ready": 1}
    return roll_out(**(epp | {"awaits_leave": False, "is_owned": False} | over))


def deployment(name: str = "rel-decode", *, generation: int = 1, replicas: int = 2, **over: Any) -> Object:
    """All Pods updated and available, made under anchor `u1`, unless told otherwise."""
    live: Object = {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "generation": generation,
            "ownerReferences": [{"kind": "ConfigMap", "uid": "u1"}],
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}},
        },
        "status": {
            "observedGeneration": generation,
            "updatedReplicas": replicas,
            "availableReplicas": replicas,
        },
    }
    return merged(live, over)


def replica_set(template: str, revision: int, *, owner: str = "uid-rel-decode") -> Object:
    return {
        "metadata": {
            "name": f"rel-decode-{template}",
            "labels": {"pod-template-hash": template},
            "annotations": {"deployment.kubernetes.io/revision": str(revision)},
            "ownerReferences": [{"kind": "Deployment", "uid": owner}],
        }
    }


def pod(name: str, template: str = "new", *, ready: bool = True, phase: str = "Running", **over: Any) -> Object:
    """A Pod that was made from a template, is Ready and stays, unless told otherwise."""
    live: Object = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "labels": {"app": "rel-decode", "pod-template-hash": template},
            "ownerReferences": [{"kind": "ReplicaSet", "uid": f"uid-{template}"}],
            "creationTimestamp": WHEN,
        },
        "spec": {"containers": [{"name": "modelserver"}]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }
    return merged(live, over)


def without_node(name: str, message: str = "cannot allocate all claims", template: str = "new", **over: Any) -> Object:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    status: Object = {"conditions": [condition]}
    return pod(name, template, phase="Pending", **merged({"status": status}, over))


def waiting(name: str, reason: str, message: str = "", template: str = "new", **container: Any) -> Object:
    """Its model server's container waits, for this reason."""
    state = {"waiting": {"reason": reason, "message": message}}
    statuses = [{"name": "modelserver", "state": state, **container}]
    return pod(name, template, ready=False, phase="Pending", status={"containerStatuses": statuses})


def running(name: str, template: str = "new", **container: Any) -> Object:
    """Its container runs and is not Ready."""
    statuses = [{"name": "modelserver", "state": {"running": {"startedAt": WHEN}}, **container}]
    return pod(name, template, ready=False, status={"containerStatuses": statuses})


def again(name: str, before: int | None = 20, *, number: int = 1, where: str = "containerStatuses") -> Object:
    """Its container runs after a crash; the run before lasted so many seconds, None if it could not be started."""
    began = "1970-01-01T00:00:00Z" if before is None else WHEN
    ended = f"2026-01-01T00:{(before or 0) // 60:02}:{(before or 0) % 60:02}Z"
    last = {"terminated": {"exitCode": 1, "startedAt": began, "finishedAt": ended}}
    status = {"state": {"running": {"startedAt": ended}}, "restartCount": number, "lastState": last}
    return pod(name, ready=False, status={where: [{"name": "modelserver", **status}]})


def failed(name: str, reason: str = "Evicted", template: str = "new") -> Object:
    return pod(name, template, ready=False, phase="Failed", status={"reason": reason, "message": "out of memory"})


def with_claim(live: Object, claim: str) -> Object:
    """The Pod with a claim that was made for it."""
    asked = {"spec": {"resourceClaims": [{"name": "devices", "resourceClaimTemplateName": "t"}]}}
    made = {"status": {"resourceClaimStatuses": [{"name": "devices", "resourceClaimName": claim}]}}
    return merged(merged(live, asked), made)


def resource_claim(name: str, device_class: str, *, holder: str | None = None, namespace: str = "ns") -> Object:
    """A claim; allocated to a Pod, if one is named."""
    request = {"name": "npu", "exactly": {"deviceClassName": device_class, "count": 4}}
    live: Object = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": [request]}},
        "status": {},
    }
    if holder is not None:
        live["status"] = {
            "allocation": {},
            "reservedFor": [{"resource": "pods", "name": holder, "uid": f"uid-{holder}"}],
        }
    return live
