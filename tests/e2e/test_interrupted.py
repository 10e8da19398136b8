"""The engine is killed in the middle of a change; `pulumi cancel` and `pulumi up` finish the change, or go back.

When it is killed is drawn by a seed, as a number of things that happened to Pods, so that no clock decides.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from local.waiting import wait_until
from stack.impact import Happening
from stack.report import Verdict
from tests.builders import ROOT, merged
from tests.e2e.bench import PLACED, EngineError, claim_state, is_ready
from tests.e2e.prediction import as_foreseen
from tests.e2e.processes import end_processes_under
from tests.e2e.test_impact_command import impact, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("interrupted")]

SLOW = {"annotations": {"local.serving-stack.dev/drain-delay": "2s", "local.serving-stack.dev/startup-delay": "1s"}}
BASE: dict[str, Any] = {
    "replicas": {"prefill": 2, "decode": 2},
    "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
    "podOverrides": {"prefill": SLOW, "decode": SLOW},
}
NARROWER = {
    "requests": [
        {"name": "npu", "deviceClassName": "npu.rebellions.ai", "selectors": ["device.driver == 'npu.rebellions.ai'"]},
        {"name": "nic", "deviceClassName": "dranet"},
    ]
}
CHANGES: dict[str, tuple[dict[str, Any], int]] = {
    "mode switch": ({"modelserver": PLACED}, 40),
    "rolling update": ({"modelserver": {"image": {"tag": "next"}}}, 40),
    "claim template": ({"devices": {"claimTemplate": NARROWER}}, 40),
    "role removal": ({"modelserver": {"replicas": {"prefill": 0, "decode": 4}}}, 14),
    "destroy": ({}, 8),
}
"""The change, and how many things happen to Pods in it, about."""
ANNOUNCED = (
    "an earlier change is still under way",
    "is not there any more: somebody deleted it. Run `pulumi up` again",
    "while this update began. Run `pulumi up` again",
)
"""What asks for one more update: what was begun goes on, or ended between the engine's look at the cluster and ours."""
SAME_DEPLOYMENTS = ("rolling update", "claim template")
"""Changes in which no Deployment goes, so that what becomes of their Pods can be followed through a kill."""
LONGEST = 120
LEFT = "left"
ANOTHER_MODEL: dict[str, Any] = {"guards": {"names": "warn"}, "modelserver": {"model": "Qwen/Qwen3-1.7B"}}
"""Replaces all Deployments under their names. The guard would refuse it for a Pod that nobody of the stack made."""
QUICK = {
    "mode switch": (1, "previous"),
    "rolling update": (2, "new"),
    "claim template": (3, "previous"),
    "role removal": (4, "new"),
    "destroy": (5, "previous"),
}
"""Seed and way on of the one kill a kind that is always tried; the others are for a soak."""
WAYS = ("new", "previous")
"""On: with the configuration of the change, which for a destroy means to destroy again, or with the one before."""
FIRST_OF_SOAK, SOAK = 100, 20


def kill_in(bench: Bench, *command: str, after: int) -> bool:
    """Run the engine and kill it after so many things happened to Pods; whether it had not ended before."""
    pods = f"/api/v1/namespaces/{bench.namespace}/pods"
    log = (bench.folder / "killed.log").open("w")
    engine = subprocess.Popen(
        bench.command(*command, "--yes", "--skip-preview"),
        cwd=bench.folder,
        env=bench.environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    there = {pod["metadata"]["uid"] for pod in bench.list("v1/pods")}
    left = after
    for what, pod in bench.plane.api.watch(pods, timeout=LONGEST):
        if engine.poll() is not None:
            break
        if what != "ADDED" or pod["metadata"]["uid"] not in there:
            left -= 1
        if left <= 0:
            break
    kill_between_writes(bench, engine)
    log.close()
    return engine.wait() == -signal.SIGKILL


def kill_between_writes(bench: Bench, engine: subprocess.Popen[Any]) -> None:
    """Kill the engine at a moment at which its state can be read.

    It writes the file of its state anew in place. A kill in the middle of that leaves half of one, which is not what is
    tried here: no program can do anything about it, and the file beside it (`.bak`) has the state before.
    """

    def is_stopped_between_writes() -> bool:
        engine.send_signal(signal.SIGSTOP)
        if engine.poll() is not None or has_whole_state(bench):
            return True
        engine.send_signal(signal.SIGCONT)
        return False

    wait_until(is_stopped_between_writes, timeout=LONGEST, what="the engine to have written its state")
    engine.send_signal(signal.SIGKILL)


def has_whole_state(bench: Bench) -> bool:
    """Whether every file of the engine's state can be read to its end."""
    for path in (bench.folder / "state").glob(".pulumi/stacks/**/*.json"):
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            return False
    return True


def bring_up(bench: Bench) -> None:
    """`pulumi up`, once more if it says so."""
    try:
        bench.up()
    except EngineError as error:
        is_announced = any(words in str(error) for words in ANNOUNCED)
        assert is_announced, f"an update that does not go through says why and what to do: {error}"  # noqa: PT017
        bench.up()


def holders(bench: Bench) -> Counter[tuple[str, str, str]]:
    """How many claims were given each device."""
    given: Counter[tuple[str, str, str]] = Counter()
    for claim in bench.resource_claims():
        for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", []):
            given[result["driver"], result["pool"], result["device"]] += 1
    return given


def is_as_planned(bench: Bench) -> None:
    planned = {w.object.name: w.replicas for w in bench.plan.modelserver.workloads}
    live = {
        d["metadata"]["name"]: d["spec"]["replicas"]
        for d in bench.list("apps/v1/deployments", labelSelector="llm-d.ai/role")
    }
    assert live == planned, "none is left over, none is missing"
    pods = bench.pods()
    assert len(pods) == sum(planned.values())
    assert all(is_ready(pod) for pod in pods)
    assert {claim_state(claim) for claim in bench.resource_claims()} == {"allocated,reserved"}
    assert max(holders(bench).values()) == 1, "no two Pods hold one device"
    assert bench.preview() == {}


BEFORE: dict[str, Any] = {}
"""The configuration that every change begins with."""


@pytest.fixture(scope="module")
def live(module_bench_of: Callable[[str], Bench]) -> Bench:
    """A stack that lives through all interruptions."""
    bench = module_bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(modelserver=BASE)
    BEFORE.update(bench.blocks)
    bench.up()
    return bench


def begin(bench: Bench) -> None:
    """Bring the stack to where every change begins, whatever the test before left."""
    if bench.blocks != BEFORE or bench.preview():
        bench.write(**BEFORE)
        bring_up(bench)
        is_as_planned(bench)


CASES = [
    *(pytest.param(kind, *QUICK[kind], id=f"{kind}, {QUICK[kind][1]} configuration") for kind in CHANGES),
    *(
        pytest.param(kind, seed, way, id=f"{kind}, {way} configuration, seed {seed}", marks=pytest.mark.soak)
        for seed in range(FIRST_OF_SOAK, FIRST_OF_SOAK + SOAK)
        for kind in CHANGES
        for way in WAYS
    ),
]


@pytest.mark.parametrize(("kind", "seed", "way"), CASES)
def test_a_killed_update_is_finished_or_taken_back(live: Bench, kind: str, seed: int, way: str) -> None:
    bench = live
    begin(bench)
    claims = bench.volume_uids()
    change, things = CHANGES[kind]
    after = Random(f"{kind}-{seed}-{way}").randint(1, things)  # noqa: S311  # it guards nothing

    bench.write(**merged(BEFORE, change))
    was_killed = kill_in(bench, "destroy" if kind == "destroy" else "up", after=after)
    assert was_killed or seed >= FIRST_OF_SOAK, "else nothing was interrupted"
    bench.run("cancel", "--yes")
    end_processes_under(bench.folder)
    if (kind, way) == ("destroy", "new"):
        bench.destroy()
        assert bench.objects() == {f"PersistentVolumeClaim/{name}" for name in claims}
        assert bench.pods() == []
        bench.up()
    else:
        if way == "previous":
            bench.write(**BEFORE)
        if kind in SAME_DEPLOYMENTS:
            with as_foreseen(bench, is_moving=True):
                bring_up(bench)
        else:
            bring_up(bench)
    is_as_planned(bench)
    assert bench.volume_uids() == claims, "the volumes are those from before"


def add_a_pod_of_another_topology(bench: Bench) -> str:
    """A Pod that a change of the topology waits for when all others have left; its path."""
    labels = {
        "app.kubernetes.io/instance": "rel",
        "app.kubernetes.io/component": "prefill",
        "serving-stack.dev/topology": "another",
    }
    meta = {"name": LEFT, "namespace": bench.namespace, "labels": labels}
    spec = {"containers": [{"name": "c", "image": "c"}]}
    bench.plane.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    return f"{bench.path('v1/pods')}/{LEFT}"


def kill_when(bench: Bench, words: str) -> None:
    """Run `up` and kill it when it says this."""
    with subprocess.Popen(
        bench.command("up", "--yes", "--skip-preview"),
        cwd=bench.folder,
        env=bench.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as engine:
        said: list[str] = []
        for line in engine.stdout or ():
            said.append(line)
            if words in line:
                kill_between_writes(bench, engine)
                end_processes_under(bench.folder)
    assert engine.returncode == -signal.SIGKILL, "".join(said)


def test_what_is_left_of_a_replacement_is_told_as_what_is_made(live: Bench) -> None:
    """Killed between the halves: the engine still speaks of replacing what is not there any more."""
    bench = live
    begin(bench)
    left = add_a_pod_of_another_topology(bench)
    bench.change(**ANOTHER_MODEL)
    changed = bench.blocks
    kill_when(bench, f"waiting for devices: {LEFT} of the earlier topology still there")
    bench.plane.api.delete(left)
    wait_until(lambda: bench.plane.api.find(left) is None, timeout=LONGEST, what="the Pod to go")
    bench.run("cancel", "--yes")
    resources = bench.export_state()["deployment"]["resources"]
    pending = {each["inputs"]["metadata"]["name"] for each in resources if each.get("pendingReplacement")}
    assert pending >= {"rel-prefill", "rel-decode"}
    assert bench.pods() == []

    for blocks in (BEFORE, changed):
        bench.write(**blocks)
        done = impact(bench, "--format", "json")
        report = read(done)
        assert (report.verdict, done.returncode) == (Verdict.NOTHING_RESTARTS, 0), done.stdout + done.stderr
        assert report.impact is not None
        assert {part.part: (part.happens, part.new) for part in report.impact.parts} == {
            "prefill": (Happening.CREATED, 2),
            "decode": (Happening.CREATED, 2),
            "epp": (Happening.STAYS, 0),
        }
        assert report.engine is not None
        assert report.engine.differences == ()
        steps = {(step.operation, step.name) for step in report.engine.steps if step.kind == "Deployment"}
        assert steps == {("create", "rel-prefill"), ("create", "rel-decode")}
    with as_foreseen(bench):
        bench.up()
    is_as_planned(bench)
