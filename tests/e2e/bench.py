"""One project against one plane: writes its stack file, runs the real engine, and looks at the cluster."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pulumi import automation as auto

from local.api import ApiError, Object
from local.engine import engine_environment
from local.waiting import wait_until
from tests.builders import ROOT, merged, plan_file

if TYPE_CHECKING:
    from local.control_plane import ControlPlane
    from local.toolchain import Toolbox
    from stack.planned import StackPlan

PROGRAM = ("__main__.py", "stack", "cluster", "components")
PROVIDER = "4.25.0"
STACK = "test"
MODEL_STORE = "model-store"
CLEAR_SECONDS = 120


@dataclass
class Bench:
    """A project folder, a namespace, and the stack in it."""

    plane: ControlPlane
    folder: Path
    namespace: str
    environment: dict[str, str]
    blocks: dict[str, Any] = field(default_factory=dict[str, Any])
    _stack: auto.Stack | None = None

    @classmethod
    def make(cls, toolbox: Toolbox, plane: ControlPlane, folder: Path, *, virtualenv: str) -> Bench:
        """A project that runs this checkout's program: links to it beside a stack file of its own."""
        served = yaml.safe_load(plane.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        if served != plane.server or plane.status().state != "running":
            raise AssertionError(f"{served} is not the plane this run started")
        folder.mkdir(parents=True)
        for name in PROGRAM:
            (folder / name).symlink_to(ROOT / name)
        (folder / "Pulumi.yaml").write_text((ROOT / "Pulumi.yaml").read_text())
        (folder / ".venv").symlink_to(virtualenv)
        environment = engine_environment(
            toolbox, kubeconfig=plane.kubeconfig, backend=folder / "state", virtualenv=Path(virtualenv)
        )
        namespace = f"t-{secrets.token_hex(4)}"
        bench = cls(plane=plane, folder=folder, namespace=namespace, environment=environment)
        plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        return bench

    # -- the stack file ---------------------------------------------------------------------------------------------

    def write(self, **blocks: Any) -> None:
        """Write the stack file: `release`, `namespace`, context and provider are the bench's, the blocks are given."""
        self.blocks = blocks
        ours = {
            "release": "rel",
            "namespace": self.namespace,
            "cluster": {"identifier": "test", "providerVersion": PROVIDER},
        }
        config = {f"serving-stack:{key}": value for key, value in merged(blocks, ours).items()}
        config["kubernetes:context"] = self.plane.context
        self.stack_file.write_text(yaml.safe_dump({"config": config, **self._salt()}, sort_keys=False))

    def write_file(self, path: Path) -> None:
        """Write the stack file from an example, with context, namespace and provider of the bench."""
        given = yaml.safe_load(path.read_text())["config"]
        self.write(**{key.partition(":")[2]: value for key, value in given.items() if key.startswith("serving-stack:")})

    def change(self, **blocks: Any) -> None:
        """Write the stack file again with blocks merged over it."""
        self.write(**merged(self.blocks, blocks))

    @property
    def stack_file(self) -> Path:
        return self.folder / f"Pulumi.{STACK}.yaml"

    def _salt(self) -> dict[str, str]:
        if not self.stack_file.exists():
            return {}
        known = yaml.safe_load(self.stack_file.read_text())
        return {key: value for key, value in known.items() if key == "encryptionsalt"}

    @property
    def plan(self) -> StackPlan:
        """The plan of the stack file, as for an empty cluster."""
        return plan_file(self.stack_file)

    # -- the engine -------------------------------------------------------------------------------------------------

    @property
    def stack(self) -> auto.Stack:
        if self._stack is None:
            self._stack = auto.create_or_select_stack(
                STACK, work_dir=str(self.folder), opts=auto.LocalWorkspaceOptions(env_vars=self.environment)
            )
        return self._stack

    def up(self) -> auto.UpResult:
        return self.stack.up(color="never", suppress_outputs=True)

    def preview(self) -> dict[str, int]:
        """Operations of a preview by kind, `same` left out: empty when nothing would change."""
        result = self.stack.preview(color="never")
        return {str(op): count for op, count in result.change_summary.items() if op != "same"}

    def destroy(self) -> None:
        self.stack.destroy(color="never", remove=False)

    def refuse(self) -> str:
        """Run `up`, which must fail; what it printed."""
        try:
            self.up()
        except auto.CommandError as error:
            return str(error)
        raise AssertionError("up went through")

    def clear(self) -> None:
        """Leave the plane to the next test: everything of this one lies in its namespace, the state in its folder."""
        self.plane.api.delete(f"/api/v1/namespaces/{self.namespace}")
        wait_until(
            lambda: not self.pods() and not self.resource_claims(),
            timeout=CLEAR_SECONDS,
            what=f"the Pods and claims of {self.namespace} to go",
        )

    # -- the cluster ------------------------------------------------------------------------------------------------

    def list(self, collection: str, **query: str) -> list[Object]:
        """Objects of the namespace, sorted by name: `v1/pods`, `apps/v1/deployments`."""
        root = "/api" if collection.startswith("v1/") else "/apis"
        version, _, plural = collection.rpartition("/")
        found = self.plane.api.list(f"{root}/{version}/namespaces/{self.namespace}/{plural}", **query)
        return sorted(found, key=lambda item: item["metadata"]["name"])

    def pods(self, selector: str = "llm-d.ai/role") -> list[Object]:
        """Role Pods."""
        return self.list("v1/pods", labelSelector=selector)

    def resource_claims(self) -> list[Object]:
        return self.list("resource.k8s.io/v1/resourceclaims")

    def volume_claims(self) -> dict[str, Object]:
        """PersistentVolumeClaims by name."""
        return {claim["metadata"]["name"]: claim for claim in self.list("v1/persistentvolumeclaims")}

    def volume_uids(self) -> dict[str, str]:
        """UIDs of the PersistentVolumeClaims by name."""
        return {name: claim["metadata"]["uid"] for name, claim in self.volume_claims().items()}

    def add_model_store(self, name: str = MODEL_STORE) -> None:
        """What an operator has: a claim with the weights in it."""
        self.plane.api.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {
                    "accessModes": ["ReadWriteMany"],
                    "storageClassName": "kwok-volume",
                    "resources": {"requests": {"storage": "500Gi"}},
                },
            }
        )

    def add_claim_template(self, name: str = "npu-rdma", *, npus: int = 4, nics: int = 2) -> None:
        """What an operator has: the reference claim template, NPUs and NICs of one NUMA node."""
        self.plane.api.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {
                    "spec": {
                        "devices": {
                            "requests": [
                                {"name": "npu", "exactly": {"deviceClassName": "npu.rebellions.ai", "count": npus}},
                                {"name": "nic", "exactly": {"deviceClassName": "dranet", "count": nics}},
                            ],
                            "constraints": [
                                {"requests": ["npu", "nic"], "matchAttribute": "resource.kubernetes.io/numaNode"}
                            ],
                        }
                    }
                },
            }
        )

    def add_what_an_operator_has(self) -> None:
        """Every claim and claim template that the stack file refers to and does not make itself."""
        plan = self.plan
        made = {planned.name for planned in plan.objects()}
        for workload in plan.modelserver.workloads:
            pod = workload.object.manifest["spec"]["template"]["spec"]
            for volume in pod["volumes"]:
                name = volume.get("persistentVolumeClaim", {}).get("claimName")
                if name is not None and name not in made:
                    self.add_model_store(name)
                    made.add(name)
            for claim in pod.get("resourceClaims", ()):
                if claim["resourceClaimTemplateName"] not in made:
                    self.add_claim_template(claim["resourceClaimTemplateName"])
                    made.add(claim["resourceClaimTemplateName"])

    def dry_run_strictly(self) -> dict[str, str]:
        """What the API server says against each planned object, unknown fields included; empty is good."""
        refused: dict[str, str] = {}
        api = self.plane.api
        for planned in self.plan.objects():
            manifest = planned.manifest
            path = api.path_of(manifest)
            try:
                api.request(
                    "PATCH",
                    path,
                    manifest,
                    content_type="application/apply-patch+yaml",
                    query={"fieldManager": "strict", "fieldValidation": "Strict", "dryRun": "All", "force": "true"},
                )
            except ApiError as error:
                refused[f"{planned.kind}/{planned.name}"] = str(error)
        return refused

    def numa_of_devices(self) -> dict[tuple[str, str, str], int]:
        """NUMA node of every published device, by driver, pool and device."""
        found: dict[tuple[str, str, str], int] = {}
        for piece in self.plane.api.list("/apis/resource.k8s.io/v1/resourceslices"):
            spec = piece["spec"]
            for device in spec["devices"]:
                numa = device["attributes"]["resource.kubernetes.io/numaNode"]["int"]
                found[spec["driver"], spec["pool"]["name"], device["name"]] = numa
        return found

    def objects(self) -> set[str]:
        """Every namespaced object with the release's label, as `Kind/name`; what controllers made is left out."""
        found: set[str] = set()
        for kind, collection in collections_in(self.plane, self.namespace):
            for item in self.plane.api.list(collection, labelSelector="app.kubernetes.io/instance=rel"):
                owners = item["metadata"].get("ownerReferences", [])
                if not any(owner.get("controller") for owner in owners):
                    found.add(f"{kind}/{item['metadata']['name']}")
        return found


def collections_in(plane: ControlPlane, namespace: str) -> list[tuple[str, str]]:
    """Kind and collection of everything that can live in a namespace."""
    api = plane.api
    groups = api.request("GET", "/apis")["groups"]
    roots = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
    return [
        (listed["kind"], f"{root}/namespaces/{namespace}/{listed['name']}")
        for root in roots
        for listed in api.request("GET", root)["resources"]
        if listed["namespaced"]
        and "/" not in listed["name"]
        and "list" in listed["verbs"]
        and listed["kind"] != "Event"
    ]


def is_ready(pod: Object) -> bool:
    """Whether the Pod is Ready and not on its way out."""
    conditions = pod["status"].get("conditions", [])
    return "deletionTimestamp" not in pod["metadata"] and any(
        c["type"] == "Ready" and c["status"] == "True" for c in conditions
    )


def claim_state(claim: Object) -> str:
    """As `kubectl get resourceclaims` prints it."""
    status = claim.get("status", {})
    if "allocation" not in status:
        return "pending"
    return "allocated,reserved" if status.get("reservedFor") else "allocated"


def without_traceback(text: str) -> bool:
    """Whether a printed failure is free of Python tracebacks."""
    return not re.search(r"Traceback \(most recent call last\)|^\s+File \".*\", line \d+", text, re.MULTILINE)
