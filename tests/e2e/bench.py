"""One project against one plane: writes its stack file, runs the real engine, and looks at the cluster."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pulumi import automation as auto

from cli.agreement import compare
from cli.engine import HALVES, UNCHANGED
from local.api import ApiError, Object
from local.engine import engine_environment
from local.waiting import wait_until
from stack.report import REPORT_FILE, EngineStep, Report, from_text
from tests.builders import ROOT, merged, plan_file
from tests.e2e.processes import end_processes_under

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.control_plane import ControlPlane
    from local.toolchain import Toolbox
    from stack.planned import StackPlan

PROGRAM = ("__main__.py", "stack", "cluster", "components")
PROVIDER = "4.25.0"
STACK = "test"
REPORT = "report.json"
MODEL_STORE = "model-store"
SECRETS = ("llm-d-hf-token", "registry-login", "registry-pull")
"""What examples and defaults refer to; in this cluster nobody looks inside."""
CLEAR_SECONDS = 120
LONGEST_SECONDS = 480
"""More than any operation of the engine takes here, and less than a test may: what hangs is told with its reason."""
LAST_EVENTS = 30
NOWHERE = "https://127.0.0.1:1"
"""Address of an API server that is not to be reached."""
ENTRIES = [{"role": role, "node": node} for node in ("npu-0", "npu-1") for role in ("prefill", "decode")]
PLACED: dict[str, Any] = {"replicas": {"prefill": 0, "decode": 0}, "nodePlacement": ENTRIES}
"""Block `modelserver` with one Pod of each role on each node of inventory `small`."""
THRIFT = {
    # An operation lasts seconds: collecting garbage costs more of them than the memory is worth.
    "GOGC": "off",
    "GOMEMLIMIT": "2GiB",
}
"""What spares a run of the engine CPU time; see also `thrift_in`. None of it changes what the engine does."""


class EngineError(auto.CommandError):
    """The engine failed; the text is everything that it printed. Whoever awaits the Automation API's error gets it."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a preview says of one resource.

    Attributes:
        op: `create`, `update`, `replace`, `delete`, `import`.
        what: `Kind/name`, the name being that in the cluster where it has one.
        keys: property paths that differ.
    """

    op: str
    what: str
    keys: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What a preview says.

    Attributes:
        steps: everything that would not stay the same, components too.
        objects: the same without components and provider: operation -> `Kind/name` of Kubernetes objects; in names
            `*` stands for a hash of content and `ns` for the bench's namespace.
        counts: number of steps by operation as the engine counts; empty when nothing would change.
        said: what the program and the engine logged, line by line.
        report: what the program says the change does; None if it ended before.
    """

    steps: tuple[Step, ...]
    objects: dict[str, set[str]]
    counts: dict[str, int]
    said: str
    report: Report | None = None

    def keys(self, what: str) -> frozenset[str]:
        """Property paths that differ in an object, `Kind/name`."""
        [keys] = [step.keys for step in self.steps if step.what == what]
        return keys


@dataclass(frozen=True, kw_only=True)
class Pods:
    """UIDs of the living Pods of a stack by part: `prefill`, `decode`, `aggregated`, `epp`."""

    by_part: dict[str, frozenset[str]]

    def __getitem__(self, part: str) -> frozenset[str]:
        return self.by_part.get(part, frozenset())

    @property
    def counts(self) -> dict[str, int]:
        """Number of Pods by part."""
        return {part: len(uids) for part, uids in self.by_part.items()}

    def new_since(self, before: Pods) -> set[str]:
        """Parts in which every Pod is another one.

        Raises:
            AssertionError: some Pods of a part are new, and some are not.
        """
        found: set[str] = set()
        for part in self.by_part.keys() & before.by_part.keys():
            if self[part].isdisjoint(before[part]):
                found.add(part)
            elif self[part] != before[part]:
                raise AssertionError(f"only some Pods of {part} are new")
        return found


@dataclass
class Bench:
    """A project folder, a namespace, and the stack in it."""

    plane: ControlPlane
    folder: Path
    namespace: str
    environment: dict[str, str]
    engine: Path
    blocks: dict[str, Any] = field(default_factory=dict[str, Any])
    began: float = 0
    """When the last `up` began, in seconds of `time.time`."""
    _stack: auto.Stack | None = None

    @classmethod
    def make(
        cls, toolbox: Toolbox, plane: ControlPlane, folder: Path, *, virtualenv: str, thrift: Path | None = None
    ) -> Bench:
        """A project that runs this checkout's program: links to it beside a stack file of its own.

        Args:
            toolbox: ensured tools.
            plane: a running plane that this run started.
            folder: where the project is made.
            virtualenv: virtual environment with the program's packages.
            thrift: what `thrift_in` made for all benches of a run, if it did.
        """
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
        environment |= {**THRIFT, REPORT_FILE: str(folder / REPORT)}
        if thrift is not None:
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            environment |= {"PYTHONPYCACHEPREFIX": str(thrift / "bytecode"), "PYTHONPATH": str(thrift / "packages")}
        namespace = f"t-{secrets.token_hex(4)}"
        bench = cls(
            plane=plane, folder=folder, namespace=namespace, environment=environment, engine=toolbox.path("pulumi")
        )
        plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for secret in SECRETS:
            plane.api.create(
                {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": namespace}}
            )
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

    def write_over(self, **blocks: Any) -> None:
        """Write blocks over the stack file that are the bench's own otherwise: `release`, `namespace`, `cluster`."""
        content = yaml.safe_load(self.stack_file.read_text())
        content["config"] = merged(content["config"], {f"serving-stack:{key}": value for key, value in blocks.items()})
        self.stack_file.write_text(yaml.safe_dump(content, sort_keys=False))

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
        """The stack for the Automation API, which costs a second or more for each thing asked."""
        if self._stack is None:
            self._stack = auto.create_or_select_stack(
                STACK, work_dir=str(self.folder), opts=auto.LocalWorkspaceOptions(env_vars=self.environment)
            )
        return self._stack

    @cached_property
    def _is_made(self) -> bool:
        """Makes the stack when it is first asked for."""
        self._run([str(self.engine), "stack", "select", "--create", STACK, "--non-interactive"])
        return True

    def command(self, *arguments: str) -> list[str]:
        """A `pulumi` command line about the stack, to be run in `folder` with `environment`."""
        assert self._is_made
        return [str(self.engine), *arguments, "--stack", STACK, "--non-interactive", "--color", "never"]

    def run(self, *arguments: str) -> str:
        """Any `pulumi` command about the stack; what that printed."""
        return self._run(self.command(*arguments))

    def lines(self, *arguments: str) -> Iterator[str]:
        """What a `pulumi` command about the stack prints, as it prints it.

        Raises:
            EngineError: it failed in the end.
        """
        with subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as engine:
            said: list[str] = []
            for line in engine.stdout or ():
                said.append(line)
                yield line
        if engine.returncode:
            raise EngineError(auto.CommandResult("".join(said), "", engine.returncode))

    def up(self) -> str:
        """Bring the stack up; what that printed.

        Raises:
            EngineError: it failed.
        """
        self._report.unlink(missing_ok=True)
        self.began = time.time()
        return self._run(self.command("up", "--yes", "--skip-preview"))

    def report(self) -> Report | None:
        """What the program said of the change in the last `up` or preview; None if it ended before."""
        return from_text(self._report.read_bytes()) if self._report.exists() else None

    @property
    def looked(self) -> float:
        """When the last `up` or preview had looked at the cluster, for then it wrote its report; as `began`.

        Raises:
            OSError: it ended before.
        """
        return self._report.stat().st_mtime

    @property
    def _report(self) -> Path:
        return self.folder / REPORT

    def destroy(self) -> str:
        """Destroy the stack; what that printed."""
        return self._run(self.command("destroy", "--yes", "--skip-preview"))

    def refuse(self) -> str:
        """Run `up`, which must fail; what it printed."""
        try:
            self.up()
        except EngineError as error:
            return str(error)
        raise AssertionError("up went through")

    def refuse_preview(self) -> str:
        """Run a preview, which must fail; what it printed."""
        try:
            self.preview()
        except EngineError as error:
            return str(error)
        raise AssertionError("the preview went through")

    def preview(self) -> dict[str, int]:
        """Operations of a preview by kind, `same` left out: empty when nothing would change."""
        return self.foresee().counts

    def foresee(self) -> Preview:
        """What a preview says, step by step.

        Raises:
            EngineError: it failed; the text is what the program and the engine logged.
        """
        self._report.unlink(missing_ok=True)
        done = self._call(self.command("preview", "--json", "--show-replacement-steps"), errors=subprocess.PIPE)
        if done.returncode:
            said = _diagnostics(json.loads(done.stdout)) if done.stdout else ""
            raise EngineError(auto.CommandResult(said, done.stderr, done.returncode))
        return agreed(replace(read_preview(done.stdout, self.namespace), report=self.report()))

    def kubeconfig_to_nowhere(self, folder: Path) -> str:
        """A kubeconfig like the bench's own, with an API server that is not to be reached."""
        content = yaml.safe_load(self.plane.kubeconfig.read_text())
        for cluster in content["clusters"]:
            cluster["cluster"]["server"] = NOWHERE
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(content))
        return str(path)

    def export_state(self) -> dict[str, Any]:
        """The state as the engine keeps it."""
        return json.loads(self.run("stack", "export"))

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs."""
        return json.loads(self._run(self.command("stack", "output", "--json")))

    def _run(self, command: list[str]) -> str:
        """Run a command that must succeed; what it printed."""
        done = self._call(command)
        if done.returncode:
            raise EngineError(auto.CommandResult(done.stdout, "", done.returncode))
        return done.stdout

    def _call(self, command: list[str], *, errors: int = subprocess.STDOUT) -> subprocess.CompletedProcess[str]:
        """Run a command to its end.

        Raises:
            AssertionError: it does not end, with what it said and how things are in the cluster.
        """
        try:
            return subprocess.run(
                command,
                cwd=self.folder,
                env=self.environment,
                check=False,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                timeout=LONGEST_SECONDS,
            )
        except subprocess.TimeoutExpired as expired:
            plight = self._plight()
            end_processes_under(self.folder)
            said = (expired.output or b"").decode(errors="replace")
            raise AssertionError(f"{command[1]} does not end. It said:\n{said}\nIn the cluster:\n{plight}") from None

    def _plight(self) -> str:
        """How workloads and Pods are, for whoever has to find out why they are not as awaited."""
        about: list[str] = []
        for collection in ("v1/configmaps", "apps/v1/deployments", "apps/v1/replicasets", "v1/pods"):
            for item in self.list(collection):
                meta: dict[str, Any] = item["metadata"]
                told = {key: meta[key] for key in ("uid", "deletionTimestamp", "finalizers") if key in meta}
                owners = [owner["uid"] for owner in meta.get("ownerReferences", ())]
                status = json.dumps(item.get("status"))
                about.append(f"{collection} {meta['name']} {told} owned by {owners}: {status}")
        about += (f"event {event['regarding'].get('name')}: {event.get('note')}" for event in self._last_events())
        return "\n".join(about)

    def _last_events(self) -> list[Object]:
        events = self.plane.api.list(self.path("events.k8s.io/v1/events"))
        return sorted(events, key=lambda event: event["metadata"]["creationTimestamp"])[-LAST_EVENTS:]

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
        return sorted(self.plane.api.list(self.path(collection), **query), key=lambda item: item["metadata"]["name"])

    def path(self, collection: str) -> str:
        """Where a collection of the namespace lies on the server."""
        root = "/api" if collection.startswith("v1/") else "/apis"
        version, _, plural = collection.rpartition("/")
        return f"{root}/{version}/namespaces/{self.namespace}/{plural}"

    def pods(self, selector: str = "llm-d.ai/role") -> list[Object]:
        """Role Pods."""
        return self.list("v1/pods", labelSelector=selector)

    def parts(self) -> Pods:
        """Every Pod of the stack that is not on its way out, by part."""
        found: dict[str, set[str]] = {}
        for pod in self.pods("app.kubernetes.io/instance=rel"):
            if "deletionTimestamp" not in pod["metadata"]:
                part = pod["metadata"]["labels"]["app.kubernetes.io/component"]
                found.setdefault(part, set()).add(pod["metadata"]["uid"])
        return Pods(by_part={part: frozenset(uids) for part, uids in found.items()})

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
        """Every claim and claim template that the stack file refers to, unless somebody made it or the stack does."""
        plan = self.plan
        made = {planned.name for planned in plan.objects()} | self.volume_claims().keys()
        made |= {template["metadata"]["name"] for template in self.list("resource.k8s.io/v1/resourceclaimtemplates")}
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


def agreed(preview: Preview) -> Preview:
    """A preview in which the engine says of each Deployment what the program says of its Pods."""
    if preview.report is not None and preview.report.impact is not None:
        steps = [
            EngineStep(operation=step.op, kind=kind, name=name, paths=tuple(sorted(step.keys)))
            for step in preview.steps
            for kind, _, name in [step.what.partition("/")]
        ]
        assert compare(preview.report.impact, steps) == ()
    return preview


def read_preview(printed: str, namespace: str) -> Preview:
    """What `pulumi preview --json --show-replacement-steps` printed."""
    digest: Object = json.loads(printed)
    given: list[Object] = [step for step in digest.get("steps") or () if step["op"] not in UNCHANGED]
    replaced = {step["urn"] for step in given if step["op"] == "replace"}
    steps: list[Step] = []
    objects: dict[str, set[str]] = {}
    for step in given:
        if step["op"] in HALVES and step["urn"] in replaced:
            continue
        op = "delete" if step["op"] == "delete-replaced" else step["op"]
        token, _, name = step["urn"].rpartition("::")
        of = token.rpartition("::")[2].rpartition("$")[2]
        state: Object = step.get("newState") or step.get("oldState") or {}
        name = state.get("inputs", {}).get("metadata", {}).get("name", name)
        what = f"{of.rpartition(':')[2]}/{name}"
        steps.append(Step(op=op, what=what, keys=frozenset(step.get("detailedDiff") or ())))
        if of.startswith("kubernetes:"):
            # Names of cluster-wide objects hold the namespace.
            objects.setdefault(op, set()).add(without_hash(what).replace(namespace, "ns"))
    counts = {op: count for op, count in digest["changeSummary"].items() if op != "same"}
    return Preview(steps=tuple(steps), objects=objects, counts=counts, said=_diagnostics(digest))


def _diagnostics(digest: Object) -> str:
    return "\n".join(entry["message"].rstrip() for entry in digest.get("diagnostics") or ())


def without_hash(what: str) -> str:
    """`Kind/name` with `*` for the eight hex digits that a name by content ends with."""
    return re.sub(r"-[0-9a-f]{8}$", "-*", what)


def thrift_in(folder: Path) -> Path:
    """Make what spares every start of the program CPU time: a tenth of a second here and there, hundreds of times.

    Bytecode is kept there, so that the program is compiled once a run whatever the environment says. And a `pip` that
    lists nothing: the language host asks it for all packages at each start, to see which plugins the SDKs bring.
    """
    pip = folder / "packages" / "pip"
    pip.mkdir(parents=True)
    (pip / "__init__.py").touch()
    (pip / "__main__.py").write_text('print("[]")\n')
    return folder


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
