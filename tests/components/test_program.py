"""`__main__.py` as the engine runs it: what it reads, what it hands on, and how it ends when something is wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pulumi
import pytest

from cluster.wait import WaitError, Waits
from stack.facts import NOTHING_READ, AnchorFacts, ClaimFacts, ClusterFacts, WorkloadFacts
from tests.builders import EMPTY_CLUSTER, SMALLEST, merged, plan
from tests.components.programs import main_program
from tests.components.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from tests.components.recorder import Stage

SDK_VERSION = version("pulumi-kubernetes")


@pytest.fixture
def run(declare: Stage, monkeypatch: pytest.MonkeyPatch) -> Generator[Callable[..., Recorder]]:
    """Run the program with blocks as the engine hands them over, against a cluster of which `facts` are known."""
    before = signal.getsignal(signal.SIGINT)

    def pass_by(_waits: Waits, _name: str) -> None: ...

    def run(
        *,
        facts: ClusterFacts = EMPTY_CLUSTER,
        preview: bool = False,
        context: str | None = "test",
        secret_keys: tuple[str, ...] = (),
        recorder: Recorder | None = None,
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

        monkeypatch.setattr("cluster.facts.read_facts", read_facts)
        if recorder is None:  # there is no cluster to wait for
            monkeypatch.setattr(Waits, "until_rolled_out", pass_by)
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
    assert logged["warn"][0] == "not known: claims: 403 Forbidden"
    assert [line.split()[0] for line in logged["warn"][1:]] == ["router.epp.replicas", "storage:"]


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


@pytest.mark.parametrize(
    ("facts", "modelserver", "want"),
    [
        pytest.param(
            NOTHING_READ,
            PLACED,
            "topology unknown: the generation of nodePlacement is kept in the cluster and could not be read, so it is "
            "not known whether this change reassigns nodes. Give access to the cluster and run `pulumi up` again.",
            id="nothing could be read",
        ),
        pytest.param(
            UNDER_WAY,
            {},
            "topology unknown: an earlier change is still under way. Wait until ConfigMap rel-topology is gone, then "
            "run `pulumi up` again.",
            id="an earlier change is under way",
        ),
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
    assert lines[0] == "The cluster stands in the way:"
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "storage.compileCache = rel-compile-cache-decode",
        "storage.compileCache = rel-compile-cache-prefill",
    ]
    assert recorder.objects == []


def test_a_wait_that_fails_is_told_as_it_is(run: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Waits, name: str) -> None:
        raise WaitError(f"{name} did not roll out")

    def pass_by(_: Waits) -> None: ...

    monkeypatch.setattr(Waits, "until_devices_are_free", pass_by)
    monkeypatch.setattr(Waits, "until_rolled_out", fail)
    with pytest.raises(pulumi.RunError, match=r"^rel-(prefill|decode) did not roll out$"):
        run(recorder=Recorder(runs_hooks=True))


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
    assert seen.named("rel-topology").options["replacementTrigger"] != first.modelserver.topology.key
