"""What the program learns from the engine's state, as the engine tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from components.state import read_state
from stack.facts import HeldTopology, StateFacts
from tests.components.programs import whole_stack
from tests.components.recorder import READ_STATE, Recorder, holding

if TYPE_CHECKING:
    from stack.planned import StackPlan
    from tests.components.recorder import Stage

NOTHING: dict[str, Any] = {}
EMPTY_STATE = StateFacts(topologies=())


def read(declare: Stage, recorder: Recorder) -> StateFacts:
    found: list[StateFacts] = []
    declare(lambda: found.append(read_state()), recorder=recorder)
    [facts] = found
    return facts


def installed(planned: StackPlan, *, identifier: str | None = "mine") -> Any:
    """A program that declares the whole stack in the cluster of this identifier."""

    def program() -> None:
        provider = k8s.Provider("cluster", context="test", cluster_identifier=identifier)
        whole_stack(planned, opts=pulumi.ResourceOptions(providers=[provider]))()

    return program


def config_map(name: str, *, instance: str | None = "rel", **more: Any) -> dict[str, Any]:
    labels = {} if instance is None else {"app.kubernetes.io/instance": instance}
    return {
        "type": "kubernetes:core/v1:ConfigMap",
        "outputs": {"metadata": {"name": name, "namespace": "ns", "labels": labels}, **more},
    }


def deployment(name: str, *, role: str | None = "decode", **more: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/instance": "rel"} | ({} if role is None else {"llm-d.ai/role": role})
    return {
        "type": "kubernetes:apps/v1:Deployment",
        "outputs": {"metadata": {"name": name, "namespace": "ns", "labels": labels}},
    } | more


ANCHOR = config_map("rel-topology", data={"key": "k1"})
HELD = HeldTopology(release="rel", namespace="ns", key="k1")


def test_the_state_of_this_very_stack_is_asked_for(declare: Stage) -> None:
    recorder = Recorder()
    read(declare, recorder)
    assert recorder.asked == [(READ_STATE, {"stackName": "organization/serving-stack/test"})]


def test_after_an_update_it_holds_the_topology_the_workloads_and_the_cluster(
    declare: Stage, planned: StackPlan
) -> None:
    state = declare(installed(planned)).state_after()
    key = planned.modelserver.topology.key
    assert read(declare, Recorder(state=state)) == StateFacts(
        topologies=(HeldTopology(release="rel", namespace="ns", key=key),),
        workloads=frozenset(workload.object.name for workload in planned.modelserver.workloads),
        strategies={
            workload.object.name: workload.object.manifest["spec"]["strategy"]
            for workload in planned.modelserver.workloads
        },
        cluster_identifier="mine",
    )


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_a_preview_learns_the_same(declare: Stage, preview: bool) -> None:
    found: list[StateFacts] = []
    declare(
        lambda: found.append(read_state()), preview=preview, recorder=Recorder(uid=None, state=holding({"a": ANCHOR}))
    )
    assert found == [StateFacts(topologies=(HELD,))]


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        pytest.param([], EMPTY_STATE, id="before the first update, and after a destroy"),
        pytest.param([ANCHOR], StateFacts(topologies=(HELD,)), id="an anchor"),
        pytest.param(
            [ANCHOR, config_map("other-topology", instance="other", data={"key": "k2"})],
            StateFacts(topologies=(HELD, HeldTopology(release="other", namespace="ns", key="k2"))),
            id="two anchors, while one release is replaced by another",
        ),
        pytest.param(
            [config_map("rel-topology")],
            StateFacts(topologies=(HeldTopology(release="rel", namespace="ns", key=""),)),
            id="an anchor that somebody emptied",
        ),
        pytest.param([config_map("rel-epp-12345678")], EMPTY_STATE, id="another ConfigMap of the release"),
        pytest.param([config_map("rel-topology", instance="other")], EMPTY_STATE, id="a ConfigMap of another release"),
        pytest.param([config_map("rel-topology", instance=None)], EMPTY_STATE, id="a ConfigMap without labels"),
        pytest.param([{**ANCHOR, "type": "kubernetes:core/v1:Secret"}], EMPTY_STATE, id="another kind of that name"),
        pytest.param([{**ANCHOR, "outputs": NOTHING}], EMPTY_STATE, id="an anchor that was being made"),
        pytest.param([{"type": "servingstack:index:ServingStack", "outputs": NOTHING}], EMPTY_STATE, id="a component"),
        pytest.param(
            [{"type": "pulumi:providers:kubernetes", "outputs": {"clusterIdentifier": "mine"}}],
            StateFacts(topologies=(), cluster_identifier="mine"),
            id="a provider",
        ),
        pytest.param(
            [{"type": "pulumi:providers:kubernetes", "outputs": {"context": "c"}}],
            EMPTY_STATE,
            id="a provider without identifier",
        ),
        pytest.param(
            [
                {"type": "pulumi:providers:kubernetes", "outputs": {"context": "c"}},
                {"type": "pulumi:providers:kubernetes", "outputs": {"clusterIdentifier": "mine"}},
            ],
            StateFacts(topologies=(), cluster_identifier="mine"),
            id="two providers, one with an identifier",
        ),
        pytest.param(
            [{"type": "pulumi:providers:aws", "outputs": {"clusterIdentifier": "theirs"}}],
            EMPTY_STATE,
            id="a provider of something else",
        ),
        pytest.param(
            [deployment("rel-decode"), deployment("rel-prefill", role="prefill")],
            StateFacts(topologies=(), workloads=frozenset({"rel-decode", "rel-prefill"})),
            id="two role workloads",
        ),
        pytest.param(
            [deployment("rel-decode"), deployment("rel-epp", role=None)],
            StateFacts(topologies=(), workloads=frozenset({"rel-decode"})),
            id="a role workload, and the endpoint picker, which is none",
        ),
        pytest.param(
            [deployment("rel-decode", type="kubernetes:core/v1:Service")], EMPTY_STATE, id="a Service with a role"
        ),
        pytest.param([deployment("rel-decode", outputs=NOTHING)], EMPTY_STATE, id="a workload that was being made"),
    ],
)
def test_what_is_read_of(declare: Stage, resources: list[dict[str, Any]], want: StateFacts) -> None:
    state = holding({f"urn:{index}": resource for index, resource in enumerate(resources)})
    found = read(declare, Recorder(state=state))
    assert found.topologies is not None
    assert set(found.topologies) == set(want.topologies or ())
    assert (found.workloads, found.cluster_identifier, found.unknown) == (
        want.workloads,
        want.cluster_identifier,
        None,
    )


@pytest.mark.parametrize(
    ("state", "want"),
    [
        pytest.param(None, "unknown function", id="it does not know the function"),
        pytest.param(NOTHING, "outputs", id="it answers nothing"),
        pytest.param({"name": "organization/serving-stack/test"}, "outputs", id="it answers without resources"),
        pytest.param({"outputs": {"urn:a": {"type": "kubernetes:core/v1:ConfigMap"}}}, "outputs", id="half a resource"),
    ],
)
def test_the_state_is_unknown_of_an_engine_that_does_not_tell_and_the_reason_is_known(
    declare: Stage, state: dict[str, Any] | None, want: str
) -> None:
    found = read(declare, Recorder(state=state))
    assert found.unknown is not None
    assert want in found.unknown
    assert found == StateFacts(unknown=found.unknown), "and nothing else"


@pytest.mark.parametrize(
    ("error", "want"),
    [
        pytest.param(ConnectionError("half an answer"), "ConnectionError: half an answer", id="with a word"),
        pytest.param(
            ConnectionError("half an\n  answer\n"), "ConnectionError: half an answer", id="with several lines"
        ),
        pytest.param(ConnectionError(), "ConnectionError", id="without a word"),
    ],
)
def test_the_state_is_unknown_when_the_engine_breaks_off(
    declare: Stage, monkeypatch: pytest.MonkeyPatch, error: Exception, want: str
) -> None:
    def break_off(*_: object) -> Any:
        raise error

    monkeypatch.setattr("pulumi.runtime.invoke", break_off)
    assert read(declare, Recorder()) == StateFacts(unknown=want)
