"""`__main__.py` as the engine runs it: what it reads, what it hands on, and how it ends when something is wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pulumi
import pytest

from cluster.wait import WaitError, Waits
from stack.facts import (
    NOTHING_AROUND,
    NOTHING_READ,
    AnchorFacts,
    ClaimFacts,
    ClusterFacts,
    Surroundings,
    TrialFacts,
    WorkloadFacts,
)
from stack.report import REPORT_FILE, Verdict, from_text
from tests.builders import EMPTY_CLUSTER, SMALLEST, merged, plan
from tests.components.programs import main_program
from tests.components.recorder import UID, Recorder, holding

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from stack.facts import Wanted
    from stack.planned import ObjectPlan
    from stack.report import Report
    from tests.components.recorder import Stage

SDK_VERSION = version("pulumi-kubernetes")
TAKEN = TrialFacts()
AS_LIVE = holding({})
"""Stands for a state that knows the anchor that runs."""


def knowing(anchor: AnchorFacts | None, *workloads: str) -> dict[str, Any]:
    """What the engine answers of a state that holds this anchor, and these workloads."""
    labels = {"app.kubernetes.io/instance": "rel", "llm-d.ai/role": "decode"}
    held: dict[str, dict[str, Any]] = {
        f"urn:{name}": {
            "type": "kubernetes:apps/v1:Deployment",
            "outputs": {"metadata": {"name": name, "namespace": "ns", "labels": labels}},
        }
        for name in workloads
    }
    if anchor is not None:
        meta = {"name": "rel-topology", "namespace": "ns", "labels": {"app.kubernetes.io/instance": "rel"}}
        outputs = {"metadata": meta, "data": {"key": anchor.key}}
        held["urn:anchor"] = {"type": "kubernetes:core/v1:ConfigMap", "outputs": outputs}
    return holding(held)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tried:
    """What the API server was asked about: in which context, which workloads, and with which owner."""

    context: str
    workloads: list[str]
    owner: Any = None
    others: tuple[str, ...] = ("rel-epp",)


@pytest.fixture
def tried() -> list[Tried]:
    """Every dry run."""
    return []


@pytest.fixture
def looked() -> list[tuple[str, Wanted]]:
    """Every look at what is around the stack."""
    return []


@pytest.fixture
def ended() -> list[tuple[str, dict[str, Any]]]:
    """Context and the rest of every wait for the end of an earlier change."""
    return []


@pytest.fixture
def run(
    declare: Stage,
    monkeypatch: pytest.MonkeyPatch,
    tried: list[Tried],
    looked: list[tuple[str, Wanted]],
    ended: list[tuple[str, dict[str, Any]]],
) -> Generator[Callable[..., Recorder]]:
    """Run the program with blocks as the engine hands them over, against a cluster of which `facts` are known.

    `trial` is what the API server says to the workloads in a dry run; `around` what is around the stack; `state` what
    the engine says of its state.
    """
    before = signal.getsignal(signal.SIGINT)

    def pass_by(_waits: Waits, _name: str) -> None: ...

    def run(
        *,
        facts: ClusterFacts = EMPTY_CLUSTER,
        trial: TrialFacts = TAKEN,
        around: Surroundings = NOTHING_AROUND,
        preview: bool = False,
        context: str | None = "test",
        secret_keys: tuple[str, ...] = (),
        recorder: Recorder | None = None,
        state: dict[str, Any] | None = AS_LIVE,
        raw: Mapping[str, str] | None = None,
        **blocks: Any,
    ) -> Recorder:
        given = {
            f"serving-stack:{key}": value if isinstance(value, str) else json.dumps(value)
            for key, value in merged(SMALLEST, blocks).items()
        }
        given |= {} if context is None else {"kubernetes:context": context}
        given |= raw or {}
        monkeypatch.setenv("PULUMI_CONFIG", json.dumps(given))
        monkeypatch.setenv("PULUMI_CONFIG_SECRET_KEYS", json.dumps(secret_keys))
        pulumi.runtime.set_all_config(given, list(secret_keys))

        def read_facts(_context: str, **_which: str) -> ClusterFacts:
            return facts

        def try_workloads(
            context: str, workloads: Sequence[ObjectPlan], *, owner: object, others: Sequence[ObjectPlan]
        ) -> TrialFacts:
            tried.append(
                Tried(
                    context=context,
                    workloads=[workload.name for workload in workloads],
                    owner=owner,
                    others=tuple(other.name for other in others),
                )
            )
            return trial

        def read_surroundings(context: str, wanted: Wanted, _near: Surroundings) -> Surroundings:
            looked.append((context, wanted))
            return around

        def until_change_has_ended(context: str, **of_what: Any) -> None:
            ended.append((context, of_what))

        monkeypatch.setattr("cluster.facts.read_facts", read_facts)
        monkeypatch.setattr("cluster.trial.try_workloads", try_workloads)
        monkeypatch.setattr("cluster.surroundings.read_surroundings", read_surroundings)
        monkeypatch.setattr("cluster.wait.until_change_has_ended", until_change_has_ended)
        if recorder is None:  # there is no cluster to wait for
            monkeypatch.setattr(Waits, "until_rolled_out", pass_by)
            recorder = Recorder(uid=None if preview else UID)
        recorder.state = knowing(facts.anchor) if state is AS_LIVE else state
        return declare(main_program, preview=preview, recorder=recorder)

    yield run
    pulumi.runtime.set_all_config({}, [])
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What the program says to the operator, by level."""
    said: dict[str, list[str]] = {"warn": [], "info": [], "error": []}
    for level, lines in said.items():
        monkeypatch.setattr(f"pulumi.log.{level}", lines.append)
    return said


def provider_of(seen: Recorder) -> Any:
    [provider] = [r for r in seen.resources if r.type == "pulumi:providers:kubernetes"]
    return provider


# --- the provider -----------------------------------------------------------------------------------------------------


def test_the_provider_is_registered_before_anything_else(run: Callable[..., Recorder]) -> None:
    assert [r.type for r in run().resources][:2] == ["pulumi:pulumi:Stack", "pulumi:providers:kubernetes"]


def test_the_provider_gets_what_stays_and_nothing_that_rotates(
    run: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/home/me/.kube/config")
    inputs = provider_of(run(cluster={"identifier": "theirs"}, context="pinned")).inputs
    assert inputs == {"context": "pinned", "clusterIdentifier": "theirs", "upsertExistingObjects": "true"}
    assert os.environ["KUBECONFIG"] == "/home/me/.kube/config", "the program itself still finds the cluster"


def test_the_kubeconfig_comes_back_even_when_there_was_none(
    run: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert "kubeconfig" not in provider_of(run()).inputs
    assert "KUBECONFIG" not in os.environ


@pytest.mark.parametrize(
    ("wanted", "asked"), [(None, SDK_VERSION), ("4.25.0", "4.25.0")], ids=["the SDK's own", "a version of choice"]
)
def test_the_provider_plugin_is_the_sdks_unless_a_version_is_written(
    run: Callable[..., Recorder], wanted: str | None, asked: str
) -> None:
    cluster = {"identifier": "test"} | ({} if wanted is None else {"providerVersion": wanted})
    assert provider_of(run(cluster=cluster)).request.version == asked


def test_every_object_comes_from_it(run: Callable[..., Recorder]) -> None:
    seen = run()
    urn = provider_of(seen).urn
    assert {r.request.provider for r in seen.objects} == {f"{urn}::cluster-id"}


# --- what is declared and told ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_the_objects_are_those_of_the_plan(run: Callable[..., Recorder], preview: bool) -> None:
    seen = run(preview=preview)
    assert sorted((r.kind, r.inputs["metadata"]["name"]) for r in seen.objects) == sorted(
        (o.kind, o.name) for o in plan(EMPTY_CLUSTER).objects()
    )


def test_the_outputs_say_where_to_send_requests_and_what_was_applied(run: Callable[..., Recorder]) -> None:
    exports = run(modelserver={"replicas": {"prefill": 1}}).exports
    want = plan(EMPTY_CLUSTER, modelserver={"replicas": {"prefill": 1}})
    assert exports.keys() == {*want.outputs, "config"}
    assert exports["endpoint"] == "http://rel-istio.ns.svc.cluster.local:80/v1"
    assert exports["config"]["modelserver"]["replicas"]["prefill"] == 1
    assert exports["config"]["release"] == "rel"


def test_warnings_and_what_is_not_known_are_told_once(
    run: Callable[..., Recorder], logged: dict[str, list[str]]
) -> None:
    run(facts=ClusterFacts(unknown=("claims: 403 Forbidden",)), router={"epp": {"replicas": 2}})
    assert logged["warn"][:2] == [
        "not known: claims: 403 Forbidden",
        "not known: what this change does to running Pods, and what stands in its way: the cluster was not read",
    ]
    assert [line.split()[0] for line in logged["warn"][2:]] == ["router.epp.replicas", "storage:"]


def test_scalar_blocks_arrive_as_text(run: Callable[..., Recorder]) -> None:
    """The engine hands a number written at a config key over as text, and no JSON."""
    seen = run(raw={"serving-stack:namespace": "20260801"})
    assert seen.exports["config"]["namespace"] == "20260801"


def test_keys_of_others_are_not_read(run: Callable[..., Recorder]) -> None:
    assert run(raw={"aws:region": "{not json", "other:release": "x"}).objects


# --- how it ends ------------------------------------------------------------------------------------------------------


def test_every_problem_of_the_configuration_is_told_in_one_error(run: Callable[..., Recorder]) -> None:
    with pytest.raises(pulumi.RunError) as caught:
        run(modelserver={"replica": {"prefill": 1}}, gateway={"port": 0}, context=None)
    lines = str(caught.value).splitlines()
    assert lines[0] == "The stack file has 3 problems:"
    assert [line.strip().split()[0].rstrip(":") for line in lines[1:]] == [
        "gateway.port",
        "kubernetes:context",
        "modelserver.replica",
    ]


def test_nothing_is_registered_for_a_configuration_with_problems(run: Callable[..., Recorder]) -> None:
    recorder = Recorder()
    with pytest.raises(pulumi.RunError):
        run(gateway={"port": 0}, recorder=recorder)
    assert [r.type for r in recorder.resources] == ["pulumi:pulumi:Stack"]


def test_text_that_is_no_json_is_a_problem_of_its_block(run: Callable[..., Recorder]) -> None:
    with pytest.raises(pulumi.RunError, match="gateway"):
        run(raw={"serving-stack:gateway": "{half"})


def test_an_encrypted_block_is_refused_without_being_shown(run: Callable[..., Recorder]) -> None:
    with pytest.raises(pulumi.RunError) as caught:
        run(
            modelserver={"serveEnv": {"GREETING": "hush-hush"}},
            secret_keys=("serving-stack:modelserver", "aws:secretKey"),
        )
    message = str(caught.value)
    assert message.splitlines()[0] == "The stack file has a problem:"
    assert "modelserver = (not shown): is encrypted in the stack file" in message
    assert "name that Secret" in message
    assert "hush" not in message
    assert caught.value.__suppress_context__, "what it was made from is not printed either"


PLACED = {"nodePlacement": [{"role": "prefill", "node": "a"}, {"role": "decode", "node": "b"}]}
UNDER_WAY = dataclasses.replace(
    EMPTY_CLUSTER, anchor=AnchorFacts(key="k", generation=1, uid="1", is_terminating=True), workloads={}
)
UNDER_WAY_IS_SAID = (
    "topology unknown: an earlier change is still under way: ConfigMap rel-topology goes first, and an update waits "
    "for that, changes nothing and stops. Run `pulumi up` again after that. If a Pod stays because its node is gone, "
    "delete the Node, or the Pod with `kubectl -n ns delete pod <name> --force`."
)
ROUTER_LEAVES = dataclasses.replace(EMPTY_CLUSTER, router_leaves=True)
PODS_ARE_LEFT = dataclasses.replace(EMPTY_CLUSTER, live_topologies=frozenset({"abc"}))
"""Somebody deleted the anchor, and the workloads have gone with it."""
HARDLY_READ_IS_SAID = (
    "topology unknown: the generation of nodePlacement is kept in the cluster and could not be read, so it is "
    "not known whether this change reassigns nodes. Give access to the cluster and run `pulumi up` again."
)


@pytest.mark.parametrize(
    ("facts", "modelserver", "want"),
    [
        pytest.param(NOTHING_READ, PLACED, HARDLY_READ_IS_SAID, id="nothing could be read"),
        pytest.param(UNDER_WAY, {}, UNDER_WAY_IS_SAID, id="an earlier change is under way"),
    ],
)
def test_a_topology_that_is_not_known_stops_an_update_and_is_told_in_a_preview(
    run: Callable[..., Recorder],
    logged: dict[str, list[str]],
    facts: ClusterFacts,
    modelserver: dict[str, Any],
    want: str,
) -> None:
    assert run(preview=True, facts=facts, modelserver=modelserver).objects
    assert want in logged["warn"]
    recorder = Recorder()
    with pytest.raises(pulumi.RunError) as caught:
        run(facts=facts, modelserver=modelserver, recorder=recorder)
    assert str(caught.value) == want
    assert recorder.objects == []


@pytest.mark.parametrize(
    ("facts", "modelserver"),
    [
        pytest.param(UNDER_WAY, {}, id="the anchor goes"),
        pytest.param(ROUTER_LEAVES, {}, id="the endpoint picker goes"),
        pytest.param(PODS_ARE_LEFT, PLACED, id="Pods of entries are left without their anchor"),
    ],
)
def test_an_update_waits_for_the_end_of_an_earlier_change_before_it_stops(
    run: Callable[..., Recorder],
    ended: list[tuple[str, dict[str, Any]]],
    logged: dict[str, list[str]],
    facts: ClusterFacts,
    modelserver: dict[str, Any],
) -> None:
    recorder = Recorder()
    with pytest.raises(pulumi.RunError, match="still under way"):
        run(facts=facts, modelserver=modelserver, context="pinned", recorder=recorder)
    assert recorder.objects == []
    [(context, of_what)] = ended
    assert context == "pinned"
    assert {key: of_what[key] for key in ("release", "namespace")} == {"release": "rel", "namespace": "ns"}
    epp = plan().roll_outs["rel-epp"]
    assert of_what["seconds"] == max(plan().modelserver.topology.leave_seconds, epp.timeout_seconds)
    of_what["report"]("rel-prefill-x still leaves")
    assert "rel-prefill-x still leaves" in logged["info"], "its progress is told"


@pytest.mark.parametrize(
    ("preview", "facts", "modelserver"),
    [
        pytest.param(True, UNDER_WAY, {}, id="a preview, which changes nothing and shows it"),
        pytest.param(False, NOTHING_READ, PLACED, id="an update that is stopped for another reason"),
        pytest.param(False, EMPTY_CLUSTER, {}, id="an update that goes on"),
    ],
)
def test_nothing_is_waited_for_in(
    run: Callable[..., Recorder],
    ended: list[tuple[str, dict[str, Any]]],
    preview: bool,
    facts: ClusterFacts,
    modelserver: dict[str, Any],
) -> None:
    with contextlib.suppress(pulumi.RunError):
        run(facts=facts, preview=preview, modelserver=modelserver)
    assert ended == []


# --- the dry run ------------------------------------------------------------------------------------------------------

AGGREGATED = {"replicas": {"aggregated": 1}}
REFUSED = TrialFacts(refused={"rel-decode": 'Deployment.apps "rel-decode" is invalid: spec: Required value'})
UNTRIED = TrialFacts(unknown="503 Service Unavailable")
UNTRIED_IS_SAID = (
    "dry run: it is not known whether the API server would take the workloads: 503 Service Unavailable. "
    "See to it that Deployments may be patched there; a change of the topology is not made without knowing."
)


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_workloads_are_tried_with_the_anchor_that_lives_as_their_owner(
    run: Callable[..., Recorder], tried: list[Tried], preview: bool
) -> None:
    run(facts=running({}), preview=preview)
    run(facts=running(AGGREGATED), preview=preview)
    run(facts=EMPTY_CLUSTER, preview=preview)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "rel-topology", "uid": "1", "blockOwnerDeletion": True}
    assert [each.owner for each in tried] == [owner, owner, None]


def test_what_the_api_server_warns_of_is_told_once(run: Callable[..., Recorder], logged: dict[str, list[str]]) -> None:
    trial = TrialFacts(warned={"rel-prefill": ("it is old",), "rel-decode": ()})
    assert run(trial=trial).of("Deployment")
    [told] = logged["warn"]
    assert told.startswith("Deployment rel-prefill: the API server warns: it is old. ")


NO_CLASS = Surroundings(storage_classes={}, volume_claims={}, unknown=("Nodes: 403 Forbidden",))
"""A cluster without any StorageClass, in which the nodes may not be listed."""
IN_CLASS = {"compileCache": {"storageClass": "fast"}}


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_what_is_in_the_way_ends_a_run_before_anything_is_declared(
    run: Callable[..., Recorder], logged: dict[str, list[str]], preview: bool
) -> None:
    recorder = Recorder()
    with pytest.raises(pulumi.RunError) as caught:
        run(around=NO_CLASS, storage=IN_CLASS, preview=preview, recorder=recorder)
    assert str(caught.value).startswith(
        "Refused before anything was touched:\n  storage.compileCache.storageClass = fast:"
    )
    assert recorder.objects == []
    assert "not known: Nodes: 403 Forbidden" in logged["warn"]


def test_a_guard_that_only_warns_is_told_and_goes_on(
    run: Callable[..., Recorder], logged: dict[str, list[str]]
) -> None:
    assert run(around=NO_CLASS, storage=IN_CLASS, guards={"prerequisites": "warn", "volumes": "warn"}).of("Deployment")
    assert any(line.startswith("storage.compileCache.storageClass = fast: ") for line in logged["warn"])


def test_what_is_read_is_what_the_plan_needs(run: Callable[..., Recorder], looked: list[tuple[str, Wanted]]) -> None:
    run(context="pinned", guards={"serial": "off"})
    [(context, wanted)] = looked
    assert context == "pinned"
    assert (wanted.namespace, wanted.release) == ("ns", "rel")
    assert wanted.nodes
    assert not wanted.rivals


def test_nothing_is_asked_around_the_stack_where_nobody_answers_or_an_earlier_change_goes_on(
    run: Callable[..., Recorder], looked: list[tuple[str, Wanted]]
) -> None:
    run(facts=NOTHING_READ, preview=True)
    leaving = dataclasses.replace(running({}), anchor=AnchorFacts(key="k", generation=1, uid="1", is_terminating=True))
    run(facts=leaving, preview=True)
    assert looked == []


def test_what_the_change_does_is_told(run: Callable[..., Recorder], logged: dict[str, list[str]]) -> None:
    around = Surroundings(deployments=[], replica_sets=[], release_pods=[])
    run(around=around, trial=TrialFacts(live={"rel-epp": None}))
    told = "nothing of rel runs yet: Pods of 4 prefill, 4 decode and 1 epp start, for what 8 claims ask for"
    assert any(line.startswith(told) for line in logged["info"])


def running(modelserver: dict[str, Any]) -> ClusterFacts:
    """A cluster in which the anchor of this configuration is."""
    key = plan(modelserver=modelserver).modelserver.topology.key
    return dataclasses.replace(EMPTY_CLUSTER, anchor=AnchorFacts(key=key, generation=1, uid="1"))


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_every_planned_workload_is_tried_before_anything_is_declared(
    run: Callable[..., Recorder], tried: list[Tried], preview: bool
) -> None:
    recorder = Recorder()
    with pytest.raises(pulumi.RunError) as caught:
        run(trial=REFUSED, preview=preview, context="pinned", recorder=recorder)
    assert tried == [Tried(context="pinned", workloads=["rel-prefill", "rel-decode"])]
    assert str(caught.value) == (
        "What is live stands in the way:\n"
        "  Deployment rel-decode = ns/rel-decode: the API server would not take it: "
        'Deployment.apps "rel-decode" is invalid: spec: Required value. '
        "Nothing was changed. Mend what it names and run it again."
    )
    assert [r.type for r in recorder.resources] == ["pulumi:pulumi:Stack"]


def test_without_a_dry_run_no_topology_is_changed_and_a_preview_says_so(
    run: Callable[..., Recorder], logged: dict[str, list[str]], ended: list[tuple[str, dict[str, Any]]]
) -> None:
    facts = running(AGGREGATED)
    assert run(preview=True, facts=facts, trial=UNTRIED).objects
    assert UNTRIED_IS_SAID in logged["warn"]
    recorder = Recorder()
    with pytest.raises(pulumi.RunError) as caught:
        run(facts=facts, trial=UNTRIED, recorder=recorder)
    assert str(caught.value) == UNTRIED_IS_SAID
    assert recorder.objects == []
    assert ended == [], "nothing goes that could be waited for"


@pytest.mark.parametrize(
    "facts", [pytest.param(running({}), id="the topology stays"), pytest.param(EMPTY_CLUSTER, id="nothing runs yet")]
)
def test_without_a_dry_run_everything_else_is_changed_with_a_warning(
    run: Callable[..., Recorder], logged: dict[str, list[str]], facts: ClusterFacts
) -> None:
    assert run(facts=facts, trial=UNTRIED).of("Deployment")
    assert logged["warn"].count(UNTRIED_IS_SAID) == 1


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(NOTHING_READ, id="nothing could be read"),
        pytest.param(dataclasses.replace(EMPTY_CLUSTER, anchor_is_known=False), id="all but the anchor could be read"),
    ],
)
def test_nothing_is_tried_where_the_anchor_could_not_be_read(
    run: Callable[..., Recorder], tried: list[Tried], facts: ClusterFacts
) -> None:
    assert run(facts=facts, preview=True).objects
    assert tried == []


# --- what the state holds ---------------------------------------------------------------------------------------------

EMPTIED = holding({})


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
@pytest.mark.parametrize(
    ("blocks", "want"),
    [
        pytest.param({"release": "other"}, ["release = other: this stack is live with release rel"], id="the release"),
        pytest.param(
            {"namespace": "other"}, ["namespace = other: this stack is live with namespace ns"], id="the namespace"
        ),
        pytest.param(
            {"cluster": {"identifier": "other"}},
            ["cluster.identifier = other: this stack is live in cluster test"],
            id="the cluster",
        ),
        pytest.param(
            {"release": "other", "namespace": "elsewhere"},
            [
                "namespace = elsewhere: this stack is live with namespace ns",
                "release = other: this stack is live with release rel",
            ],
            id="two of them",
        ),
    ],
)
def test_a_live_stack_is_not_moved_by_a_change_of(
    run: Callable[..., Recorder],
    tried: list[Tried],
    preview: bool,
    blocks: dict[str, Any],
    want: list[str],
) -> None:
    state = run().state_after()
    tried.clear()
    recorder = Recorder()
    with pytest.raises(pulumi.RunError) as caught:
        run(preview=preview, recorder=recorder, state=state, **blocks)
    head, *lines = str(caught.value).splitlines()
    assert head == "What is live stands in the way:"
    assert [line.strip()[: len(start)] for line, start in zip(lines, want, strict=True)] == want
    assert all("`pulumi destroy`" in line and "`pulumi up`" in line for line in lines)
    assert recorder.objects == []
    assert tried == [], "there is nothing to be tried"


@pytest.mark.parametrize(
    "blocks",
    [{}, {"modelserver": AGGREGATED}, {"modelserver": {"image": {"tag": "9.9.9"}}}, {"eppServiceName": "picker"}],
    ids=str,
)
def test_every_other_change_of_a_live_stack_goes_on(run: Callable[..., Recorder], blocks: dict[str, Any]) -> None:
    state = run().state_after()
    assert run(facts=running({}), state=state, **blocks).objects


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_a_topology_is_not_changed_of_which_the_state_knows_nothing(
    run: Callable[..., Recorder], preview: bool
) -> None:
    """The engine would see nothing to replace, and new Pods would ask for the devices of the old."""
    recorder = Recorder()
    with pytest.raises(pulumi.RunError, match="put back the configuration that runs and run `pulumi up`"):
        run(facts=running({}), state=EMPTIED, modelserver=AGGREGATED, preview=preview, recorder=recorder)
    assert recorder.objects == []


def test_an_emptied_state_finds_what_runs_again(run: Callable[..., Recorder]) -> None:
    assert run(facts=running({}), state=EMPTIED).of("Deployment")


def test_an_engine_that_does_not_tell_its_state_is_told_of_and_refuses_no_more_than_a_change_of_the_topology(
    run: Callable[..., Recorder], logged: dict[str, list[str]]
) -> None:
    assert run(facts=running({}), state=None).of("Deployment")
    [told] = logged["warn"]
    assert told.startswith("not known: the engine's state: ")
    assert "unknown function" in told, "the engine's own reason"
    assert run(facts=running({}), state=None, modelserver={"replicas": {"decode": 0}}).of("Deployment")
    assert run(state=None, release="other", namespace="elsewhere").of("Deployment")


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_a_topology_is_not_changed_when_the_engine_does_not_tell_its_state(
    run: Callable[..., Recorder], logged: dict[str, list[str]], preview: bool
) -> None:
    recorder = Recorder()
    with pytest.raises(pulumi.RunError, match="the engine's state could not be read"):
        run(facts=running({}), state=None, modelserver=AGGREGATED, preview=preview, recorder=recorder)
    assert recorder.objects == []
    assert logged["warn"][0].startswith("not known: the engine's state: "), "the reason is told although it stops"


ANCHOR_NOT_READ = dataclasses.replace(EMPTY_CLUSTER, anchor_is_known=False, unknown=("topology anchor: 403 Forbidden",))
CHANGE_UNKNOWN_IS_SAID = (
    "topology unknown: this needs another topology than the last update made, and what runs in the cluster could not "
    "be read. Give access to the cluster and run `pulumi up` again."
)


@pytest.mark.parametrize(
    "facts", [NOTHING_READ, ANCHOR_NOT_READ], ids=["nothing is read", "all but the anchor is read"]
)
def test_a_topology_is_changed_only_in_a_preview_when_the_anchor_could_not_be_read(
    run: Callable[..., Recorder],
    logged: dict[str, list[str]],
    ended: list[tuple[str, dict[str, Any]]],
    facts: ClusterFacts,
) -> None:
    state = knowing(running({}).anchor)
    assert run(preview=True, facts=facts, state=state, modelserver=AGGREGATED).objects
    assert logged["warn"].count(CHANGE_UNKNOWN_IS_SAID) == 1
    recorder = Recorder()
    with pytest.raises(pulumi.RunError) as caught:
        run(facts=facts, state=state, modelserver=AGGREGATED, recorder=recorder)
    assert str(caught.value) == CHANGE_UNKNOWN_IS_SAID
    assert recorder.objects == []
    assert ended == [], "nothing goes that could be waited for"


@pytest.mark.parametrize(
    ("state", "modelserver"),
    [
        pytest.param(knowing(running({}).anchor), {}, id="the topology stays"),
        pytest.param(holding({}), AGGREGATED, id="the state has no anchor"),
        pytest.param(None, AGGREGATED, id="the state is not told either"),
    ],
)
def test_without_the_anchor_everything_else_is_changed(
    run: Callable[..., Recorder], state: dict[str, Any] | None, modelserver: dict[str, Any]
) -> None:
    assert run(facts=ANCHOR_NOT_READ, state=state, modelserver=modelserver).of("Deployment")


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_a_workload_of_which_the_state_knows_nothing_is_not_left_running(
    run: Callable[..., Recorder], tried: list[Tried], preview: bool
) -> None:
    workloads = {
        name: WorkloadFacts(name=name, role=name.removeprefix("rel-"), owner_uid="1")
        for name in ("rel-prefill", "rel-decode")
    }
    facts = dataclasses.replace(running({}), workloads=workloads)
    only_prefill: dict[str, Any] = {"replicas": {"decode": 0}}
    recorder = Recorder()
    with pytest.raises(pulumi.RunError, match="`kubectl -n ns delete deployment rel-decode`"):
        run(
            facts=facts,
            state=knowing(facts.anchor, "rel-prefill"),
            modelserver=only_prefill,
            preview=preview,
            recorder=recorder,
        )
    assert recorder.objects == []
    assert tried == []
    state = knowing(facts.anchor, "rel-prefill", "rel-decode")
    assert run(facts=facts, state=state, modelserver=only_prefill, preview=preview).objects, "this one is dropped"


# --- what the cluster holds, and waits --------------------------------------------------------------------------------


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_a_volume_that_cannot_be_taken_over_stops_even_a_preview(run: Callable[..., Recorder], preview: bool) -> None:
    claims = {
        name: ClaimFacts(name=name, is_terminating=True)
        for name in ("rel-compile-cache-prefill", "rel-compile-cache-decode")
    }
    recorder = Recorder()
    with pytest.raises(pulumi.RunError) as caught:
        run(facts=dataclasses.replace(EMPTY_CLUSTER, claims=claims), preview=preview, recorder=recorder)
    lines = str(caught.value).splitlines()
    assert lines[0] == "What is live stands in the way:"
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "storage.compileCache = rel-compile-cache-decode",
        "storage.compileCache = rel-compile-cache-prefill",
    ]
    assert recorder.objects == []


@pytest.mark.parametrize(
    ("name", "want_registered"),
    [("rel-epp", {"rel-epp"}), ("rel-prefill", {"rel-epp", "rel-prefill", "rel-decode"})],
)
def test_a_wait_that_fails_is_told_as_it_is(
    run: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch, name: str, want_registered: set[str]
) -> None:
    def fail(_: Waits, awaited: str) -> None:
        if awaited == name:
            raise WaitError(f"{name} did not roll out")

    monkeypatch.setattr(Waits, "until_rolled_out", fail)
    recorder = Recorder()
    with pytest.raises(pulumi.RunError) as caught:
        run(recorder=recorder)
    assert str(caught.value) == f"{name} did not roll out"
    assert caught.value.__suppress_context__, "what it was made from is not printed either"
    assert {r.name for r in recorder.of("Deployment")} == want_registered


def test_a_wait_for_devices_that_fails_reaches_the_engine_as_it_is(
    run: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise WaitError("rel-prefill-x of the earlier topology did not leave")

    def pass_by(_: Waits, name: str) -> None: ...

    monkeypatch.setattr(Waits, "until_may_be_made", fail)
    monkeypatch.setattr(Waits, "until_rolled_out", pass_by)
    recorder = Recorder(runs_hooks=True)
    with pytest.raises(pulumi.RunError):
        run(recorder=recorder)
    assert set(recorder.hook_errors) == {"rel-prefill-x of the earlier topology did not leave"}


def test_a_reassigned_node_raises_the_generation_the_cluster_knows(run: Callable[..., Recorder]) -> None:
    def placed(*nodes: str) -> dict[str, Any]:
        roles = ("prefill", "decode")
        return {"nodePlacement": [{"role": role, "node": node} for role, node in zip(roles, nodes, strict=True)]}

    first = plan(EMPTY_CLUSTER, modelserver=placed("a", "b"))
    facts = ClusterFacts(
        claims={},
        anchor_is_known=True,
        live_topologies=frozenset(),
        anchor=AnchorFacts(key=first.modelserver.topology.key, generation=1, uid="1"),
        workloads={
            "rel-prefill-0": WorkloadFacts(name="rel-prefill-0", role="prefill", entry=0, node="a", owner_uid="1"),
            "rel-decode-1": WorkloadFacts(name="rel-decode-1", role="decode", entry=1, node="b", owner_uid="1"),
        },
    )
    seen = run(facts=facts, modelserver=placed("a", "c"))
    assert seen.exports["topology"]["generation"] == 2
    assert seen.named("rel-topology").inputs["data"] != {"key": first.modelserver.topology.key}


# --- the report -------------------------------------------------------------------------------------------------------

NOTHING_RUNS = Surroundings(deployments=[], replica_sets=[], release_pods=[])


@pytest.fixture
def handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Report | None]:
    """What the program hands over to whoever asks for its report."""
    file = tmp_path / "report.json"
    monkeypatch.setenv(REPORT_FILE, str(file))
    return lambda: from_text(file.read_bytes()) if file.exists() else None


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_what_the_change_does_is_handed_over(
    run: Callable[..., Recorder], handed_over: Callable[[], Report | None], preview: bool
) -> None:
    around = dataclasses.replace(NOTHING_RUNS, unknown=("Nodes: 403 Forbidden",))
    run(around=around, trial=TrialFacts(live={"rel-epp": None}), router={"epp": {"replicas": 2}}, preview=preview)
    report = handed_over()
    assert report is not None
    assert (report.release, report.namespace, report.context) == ("rel", "ns", "test")
    assert report.verdict is Verdict.NOTHING_RESTARTS
    assert report.impact is not None
    assert [part.part for part in report.impact.parts] == ["prefill", "decode", "epp"]
    assert report.unknown == ("Nodes: 403 Forbidden",)
    assert ("router.epp.replicas", "2") in {(letter.key, letter.value) for letter in report.warnings}
    assert all(letter.why and letter.fix for letter in report.warnings)
    assert report.engine is None, "the program does not know what the engine makes of it"


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(
            {"around": NO_CLASS, "storage": IN_CLASS},
            ("storage.compileCache.storageClass", "prerequisites"),
            id="a guard",
        ),
        pytest.param({"trial": REFUSED}, ("Deployment rel-decode", None), id="the dry run"),
        pytest.param(
            {"facts": running({}), "state": EMPTIED, "modelserver": AGGREGATED}, ("rel-topology", None), id="the plan"
        ),
    ],
)
def test_a_refusal_is_handed_over_before_the_run_ends(
    run: Callable[..., Recorder],
    handed_over: Callable[[], Report | None],
    preview: bool,
    given: dict[str, Any],
    want: tuple[str, str | None],
) -> None:
    with pytest.raises(pulumi.RunError) as caught:
        run(preview=preview, **given)
    report = handed_over()
    assert report is not None
    assert report.verdict is Verdict.REFUSED
    assert want in [(letter.key, letter.guard) for letter in report.refusals]
    assert all(letter.text in str(caught.value) for letter in report.refusals)


def test_a_change_of_the_topology_that_cannot_be_tried_is_refused_for_whoever_asks_a_preview(
    run: Callable[..., Recorder], handed_over: Callable[[], Report | None]
) -> None:
    run(preview=True, facts=running(AGGREGATED), trial=UNTRIED, around=NOTHING_RUNS)
    report = handed_over()
    assert report is not None
    assert report.verdict is Verdict.REFUSED
    assert [letter.text for letter in report.refusals] == [UNTRIED_IS_SAID]
    assert UNTRIED_IS_SAID not in [letter.text for letter in report.warnings], "it is said once"


@pytest.mark.parametrize(
    ("facts", "modelserver", "want"),
    [
        pytest.param(
            NOTHING_READ,
            {},
            "what this change does to running Pods, and what stands in its way: the cluster was not read",
            id="nothing could be read",
        ),
        pytest.param(UNDER_WAY, {}, UNDER_WAY_IS_SAID, id="an earlier change is under way"),
        pytest.param(NOTHING_READ, PLACED, HARDLY_READ_IS_SAID, id="the topology is not known"),
    ],
)
def test_what_is_not_known_is_handed_over_and_taken_for_nothing_else(
    run: Callable[..., Recorder],
    handed_over: Callable[[], Report | None],
    facts: ClusterFacts,
    modelserver: dict[str, Any],
    want: str,
) -> None:
    run(preview=True, facts=facts, modelserver=modelserver)
    report = handed_over()
    assert report is not None
    assert report.verdict is Verdict.NOT_KNOWN
    assert want in report.unknown
    assert report.impact is None
    with contextlib.suppress(pulumi.RunError):
        run(facts=facts, modelserver=modelserver)
    assert handed_over() == report, "an update says the same"


def test_a_configuration_with_problems_has_no_report(
    run: Callable[..., Recorder], handed_over: Callable[[], Report | None]
) -> None:
    with pytest.raises(pulumi.RunError):
        run(gateway={"port": 0})
    assert handed_over() is None
