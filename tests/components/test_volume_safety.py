"""No sequence of changes to a stack file deletes or replaces a PersistentVolumeClaim.

The property. Take one stack (one release, one namespace, one cluster identifier: changing those is refused elsewhere)
and any sequence of configurations that the program accepts, with anything between two of them that an operator may do
or suffer: the facts about claims and topology unknown, true, or those of one step before; an update ended from outside
after any registration; `--refresh=false`; `pulumi destroy`; the engine's state emptied, or put back to that of an
earlier step. Then for every two that follow one another

1. no claim that is in the cluster is deleted, and none is replaced, retained or not: a claim that is retained and
   replaced stays, but the engine waits forever to make it anew;
2. no update is refused because of what it would do to a claim (protection, an ID that is still declared): only the API
   server refuses, what no claim allows, and that leaves the claims as they were;
3. in the end every claim ever made is there, the last configuration goes through once its facts are known and no size
   is below the live one, and a further update does nothing to claims.

What happens is told from what the whole program registers, with all its options, by the rules in `engine_rules`. That
those rules are able to find harm is shown by taking away or adding one option at a time. What is not in the property:
the Provider itself (`test_program`: made from context and cluster identifier, so that it is never replaced), and an
operator who deletes claims or Namespace. The same on the real engine: `tests/e2e/test_volume_sequences.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pulumi
import pulumi_kubernetes as k8s
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack import labels
from stack.facts import AnchorFacts, ClaimFacts, ClusterFacts, FactsError, WorkloadFacts
from stack.scalars import amount
from tests.builders import merged, plan
from tests.changes import ACCESS_MODES, IN_EVERY_RUN, SEEDS, Situation, Volume, draw_sequence
from tests.components.engine_rules import DEFAULT_CLASS, Cluster, Engine, Held, bound, size_of
from tests.components.programs import whole_stack
from tests.components.recorder import UID, Recorded, keep_pulumi_to_itself

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stack.planned import StackPlan


Record = Callable[["StackPlan"], list[Recorded]]
ANCHOR = ("ConfigMap", "ns", "rel-topology")


# --- one stack, and what happens to it --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Event:
    """An update to a configuration, or something that happens between two.

    Attributes:
        what: `up`, `destroy`, or `state emptied` and `state of before`, for the engine's state.
        situation: the configuration.
        others: blocks of it that have nothing to do with volumes.
        claims, topology: what is known of either: `true`, `unknown`, or `of before`, one step ago.
        refreshes: whether the update refreshes the state first.
        ends_at: share of the registrations after which it is ended from outside; 1 for never.
    """

    what: str = "up"
    situation: Situation = field(default_factory=Situation)
    others: dict[str, Any] = field(default_factory=dict[str, Any])
    claims: str = "true"
    topology: str = "true"
    refreshes: bool = True
    ends_at: float = 1


@dataclass
class Life:
    """A stack from its installation on.

    Attributes:
        record: what the program registers of a plan.
        change: what is done to registrations before the engine gets them; nothing, except to show what that would do.
        known: the facts of this step and the one before.
        states: the engine's state after every step.
        ever_made: every claim that was in the cluster.
    """

    record: Record
    engine: Engine = field(default_factory=Engine)
    change: Callable[[list[Recorded]], list[Recorded]] = list
    known: list[ClusterFacts] = field(default_factory=list[ClusterFacts])
    states: list[dict[str, Held]] = field(default_factory=list[dict[str, Held]])
    ever_made: set[str] = field(default_factory=set[str])

    def meet(self, event: Event) -> str | None:
        """Let it happen; why it failed, None when it went through."""
        self.known = [*self.known[-1:], look_at(self.engine.cluster)]
        failure = self._meet(event)
        self.states.append(copy.deepcopy(self.engine.state))
        self.ever_made |= set(self.engine.cluster.claims())
        return failure

    def _meet(self, event: Event) -> str | None:
        match event.what:
            case "destroy":
                return self.engine.destroy()
            case "state emptied":
                self.engine.state = {}
                return None
            case "state of before":
                self.engine.state = copy.deepcopy(self.states[-2] if len(self.states) > 1 else {})
                return None
            case _:
                return self._up(event)

    def _up(self, event: Event) -> str | None:
        try:
            planned = plan(self._facts(event), **merged(event.situation.blocks(), event.others))
        except FactsError as refusal:
            return str(refusal)
        if planned.refusal is not None:
            return planned.refusal
        registered = self.change(self.record(planned))
        stops_after = None if event.ends_at == 1 else int(event.ends_at * len(registered))
        return self.engine.up(registered, refreshes=event.refreshes, stops_after=stops_after)

    def _facts(self, event: Event) -> ClusterFacts:
        def seen(what: str) -> ClusterFacts:
            match what:
                case "unknown":
                    return ClusterFacts()
                case "of before":
                    return self.known[0]
                case _:
                    return self.known[-1]

        return replace(seen(event.topology), claims=seen(event.claims).claims)

    def heal(self, event: Event) -> list[str]:
        """What is left to complain of after two updates with true facts, and sizes not smaller than the live ones."""
        sizes = [size_of(claim) for claim in self.engine.cluster.claims().values()]
        largest = max((int(amount(size) / 2**30) for size in sizes), default=1)
        grown = {
            name: replace(volume, gibibytes=max(volume.gibibytes, largest))
            for name, volume in (("cache", event.situation.cache), ("store", event.situation.store))
        }
        last = Event(situation=replace(event.situation, **grown), others=event.others)
        failures = [self.meet(last) for _ in range(2)]
        return [*filter(None, failures), *self.engine.steps]


def look_at(cluster: Cluster) -> ClusterFacts:
    """The facts about a cluster, all true."""
    objects = cluster.objects
    anchor = objects.get(ANCHOR)
    workloads = [
        live for (kind, _, _), live in objects.items() if kind == "Deployment" and labels.ROLE in labels_of(live)
    ]
    return ClusterFacts(
        claims={
            name: ClaimFacts(name=name, instance=labels_of(live).get(labels.INSTANCE))
            for name, live in cluster.claims().items()
        },
        anchor_is_known=True,
        anchor=None
        if anchor is None
        else AnchorFacts(
            key=anchor["data"]["key"], generation=int(anchor["metadata"]["annotations"][labels.GENERATION]), uid=UID
        ),
        workloads={live["metadata"]["name"]: workload_facts(live) for live in workloads},
        live_topologies=frozenset(labels_of(live["spec"]["template"])[labels.TOPOLOGY] for live in workloads),
    )


def labels_of(live: dict[str, Any]) -> dict[str, str]:
    return live["metadata"].get("labels", {})


def workload_facts(live: dict[str, Any]) -> WorkloadFacts:
    meta = live["metadata"]
    entry = meta["labels"].get(labels.ENTRY)
    return WorkloadFacts(
        name=meta["name"],
        role=meta["labels"].get(labels.COMPONENT, ""),
        entry=None if entry is None else int(entry),
        node=meta.get("annotations", {}).get(labels.NODE),
        replicas=live["spec"]["replicas"],
        owner_uid=UID,
    )


def under_its_provider(planned: StackPlan) -> Callable[[], None]:
    """The whole stack under a provider like that of the program."""

    def program() -> None:
        provider = k8s.Provider(
            "cluster", context=planned.provider.context, cluster_identifier=planned.provider.cluster_identifier
        )
        whole_stack(planned, opts=pulumi.ResourceOptions(providers=[provider]))()

    return program


@pytest.fixture(scope="module")
def record() -> Iterator[Record]:
    """What the whole stack of a plan registers; kept, since the same plans come again and again."""
    known: dict[str, list[Recorded]] = {}
    with keep_pulumi_to_itself() as stage:

        def record(planned: StackPlan) -> list[Recorded]:
            key = repr(planned)
            if key not in known:
                known[key] = stage(under_its_provider(planned)).resources
            return known[key]

        yield record


# --- the property -----------------------------------------------------------------------------------------------------

VOLUMES = st.builds(
    Volume,
    kind=st.sampled_from(["pvc", "pvc", "existingClaim", "emptyDir"]),
    gibibytes=st.sampled_from([10, 20, 30]),
    storage_class=st.sampled_from([None, "one", "two", DEFAULT_CLASS]),
    access_modes=st.sampled_from(ACCESS_MODES),
    names_ours=st.booleans(),
)
PODS = st.sampled_from([0, 1, 2])
ENTRIES = st.lists(
    st.tuples(st.sampled_from(["prefill", "decode"]), st.sampled_from(["n1", "n2"])), min_size=1, max_size=4
).map(tuple)
OURS = frozenset(f"rel-{part}" for part in ("compile-cache-prefill", "compile-cache-decode", "model-cache"))
SITUATIONS = st.builds(
    Situation,
    replicas=st.one_of(
        st.tuples(PODS, PODS).filter(any).map(lambda pods: (("prefill", pods[0]), ("decode", pods[1]))),
        st.just((("aggregated", 2),)),
    ),
    entries=st.one_of(st.just(()), ENTRIES, st.just((("aggregated", "n1"),))),
    model=st.sampled_from([None, "another/model"]),
    tag=st.sampled_from([None, "1.2.3"]),
    cache=VOLUMES,
    store=VOLUMES,
    made=st.sampled_from([frozenset[str](), OURS]),
)
OTHERS = st.sampled_from(
    [
        {},
        {"router": {"inferencePool": {"create": False}}},
        {"gateway": {"enabled": False}, "monitoring": {"enabled": True, "provider": "prometheus-operator"}},
        {"modelserver": {"serviceAccountName": "theirs"}},
    ]
)
KNOWN = st.sampled_from(["true"] * 5 + ["unknown", "of before"])
EVENTS = st.builds(
    Event,
    what=st.sampled_from(["up"] * 12 + ["destroy", "state emptied", "state of before"]),
    situation=SITUATIONS,
    others=OTHERS,
    claims=KNOWN,
    topology=KNOWN,
    refreshes=st.sampled_from([True, True, True, False]),
    ends_at=st.sampled_from([1.0] * 40 + [tenth / 10 for tenth in range(10)]),
)


def harms_of(events: Sequence[Event], last: Situation, record: Record) -> list[object]:
    """Everything that the property forbids; see the module."""
    life = Life(record=record)
    for event in events:
        life.meet(event)
    left = life.heal(Event(situation=last))
    lost = life.ever_made - set(life.engine.cluster.claims())
    return [*life.engine.harms, *left, *sorted(lost)]


SEQUENCES = st.lists(EVENTS, min_size=4, max_size=6)


@settings(max_examples=15)
@given(events=SEQUENCES, last=SITUATIONS)
def test_no_sequence_of_changes_harms_a_claim(record: Record, events: list[Event], last: Situation) -> None:
    assert harms_of(events, last, record) == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(max_examples=400)
@given(events=SEQUENCES, last=SITUATIONS)
def test_no_sequence_of_very_many_harms_a_claim(record: Record, events: list[Event], last: Situation) -> None:
    assert harms_of(events, last, record) == []


@pytest.mark.parametrize(
    "seed", [seed if seed in IN_EVERY_RUN else pytest.param(seed, marks=pytest.mark.soak) for seed in SEEDS]
)
def test_a_sequence_of_the_real_engine_goes_through_and_harms_no_claim(record: Record, seed: int) -> None:
    life = Life(record=record)
    steps = draw_sequence(seed)
    for step in steps:
        if step.after_destroy:
            assert life.meet(Event(what="destroy")) is None
        assert life.meet(Event(situation=step.situation)) is None
    assert life.meet(Event(situation=steps[-1].situation)) is None
    assert life.engine.steps == [], "the second time there is nothing to do"
    assert life.engine.harms == []
    assert set(life.engine.cluster.claims()) == life.ever_made


# --- what the rules find ----------------------------------------------------------------------------------------------
# Stories that harm nothing, and the one option whose lack, or presence, would make each a harm.

INSTALLED = Situation()
INSTALL = Event(situation=INSTALLED)
DESTROY = Event(what="destroy")
WITHOUT_DECODE = Event(situation=replace(INSTALLED, replicas=(("prefill", 2), ("decode", 0))))
ANOTHER_MODEL = Event(situation=replace(INSTALLED, model="another/model"))
"""Replaces the anchor, and leaves every claim wanted."""


def with_cache(**changes: Any) -> Event:
    """A change of the compile cache, at a time when the claims are not known, so that no import guards them."""
    return Event(situation=replace(INSTALLED, cache=replace(INSTALLED.cache, **changes)), claims="unknown")


Change = Callable[[list[Recorded]], list[Recorded]]


def edit(pick: Callable[[Recorded], bool], change: Callable[[Any, list[Recorded]], None]) -> Change:
    """Registrations with the requests of some of them changed; the change gets them all to look things up."""

    def edited(registered: list[Recorded]) -> list[Recorded]:
        return [_edited(each, registered) if pick(each) else each for each in registered]

    def _edited(recorded: Recorded, registered: list[Recorded]) -> Recorded:
        request = type(recorded.request)()
        request.CopyFrom(recorded.request)
        change(request, registered)
        return replace(recorded, request=request)

    return edited


def edit_inputs(pick: Callable[[Recorded], bool], change: Callable[[dict[str, Any]], None]) -> Change:
    """Registrations with the inputs of some of them changed."""

    def edited(registered: list[Recorded]) -> list[Recorded]:
        return [_edited(each) if pick(each) else each for each in registered]

    def _edited(recorded: Recorded) -> Recorded:
        inputs = copy.deepcopy(recorded.inputs)
        change(inputs)
        return replace(recorded, inputs=inputs)

    return edited


def is_claim(recorded: Recorded) -> bool:
    return recorded.kind == "PersistentVolumeClaim"


def is_volumes_component(recorded: Recorded) -> bool:
    return recorded.kind == "RetainedVolumes"


def anchor_in(registered: Iterable[Recorded]) -> Recorded:
    [anchor] = [each for each in registered if each.name == "rel-topology"]
    return anchor


def no_longer_ignoring(path: str) -> Change:
    return edit(is_claim, lambda request, _: request.ignoreChanges.remove(path))


def with_a_namespace(registered: list[Recorded]) -> list[Recorded]:
    """The program making the Namespace, which it never does."""
    anchor = anchor_in(registered)
    request = type(anchor.request)()
    request.provider = anchor.request.provider
    namespace = Recorded(
        type="kubernetes:core/v1:Namespace",
        name="namespace",
        urn="urn:pulumi:test::serving-stack::kubernetes:core/v1:Namespace::namespace",
        id="ns",
        inputs={"metadata": {"name": "ns"}},
        request=request,
    )
    return [*registered[:2], namespace, *registered[2:]]


def not_retained(request: Any, _: object) -> None:
    request.retainOnDelete = False


def with_trigger(request: Any, registered: list[Recorded]) -> None:
    request.replacement_trigger.string_value = anchor_in(registered).inputs["data"]["key"]


def needing_the_anchor(request: Any, registered: list[Recorded]) -> None:
    request.propertyDependencies["metadata"].urns.append(anchor_in(registered).urn)


def owned_by_the_anchor(inputs: dict[str, Any]) -> None:
    inputs["metadata"]["ownerReferences"] = [{"kind": "ConfigMap", "name": "rel-topology", "uid": UID}]


HARMFUL = [
    pytest.param(
        [INSTALL, with_cache(storage_class="one")],
        no_longer_ignoring("spec.storageClassName"),
        ("replaced", "spec.storageClassName changed"),
        id="a class is set, and the path is not ignored",
    ),
    pytest.param(
        [INSTALL, DESTROY, INSTALL],
        no_longer_ignoring("spec.storageClassName"),
        ("blocked", "spec.storageClassName changed"),
        id="a class that the API server chose is found again, and the path is not ignored",
    ),
    pytest.param(
        [INSTALL, with_cache(access_modes=ACCESS_MODES[1])],
        no_longer_ignoring("spec.accessModes"),
        ("replaced", "spec.accessModes.1 changed"),
        id="modes change, and the path is not ignored",
    ),
    pytest.param(
        [INSTALL, DESTROY, INSTALL],
        no_longer_ignoring("spec.volumeName"),
        ("blocked", "spec.volumeName changed"),
        id="a bound claim is found again, and the path is not ignored",
    ),
    pytest.param(
        [INSTALL, WITHOUT_DECODE],
        edit(is_claim, not_retained),
        ("deleted", "was dropped"),
        id="a role goes to 0, and its claim is not retained",
    ),
    pytest.param(
        [INSTALL, DESTROY],
        edit(is_claim, not_retained),
        ("deleted", "was dropped"),
        id="the stack is destroyed, and its claims are not retained",
    ),
    pytest.param(
        [INSTALL, ANOTHER_MODEL],
        edit(is_claim, lambda request, registered: request.replace_with.append(anchor_in(registered).urn)),
        ("replaced", "rel-topology is replaced"),
        id="the topology changes, and claims are replaced with the anchor",
    ),
    pytest.param(
        [INSTALL, ANOTHER_MODEL],
        edit(is_claim, lambda request, registered: setattr(request, "deletedWith", anchor_in(registered).urn)),
        ("replaced", "rel-topology is replaced"),
        id="the topology changes, and claims are deleted with the anchor",
    ),
    pytest.param(
        [INSTALL, ANOTHER_MODEL],
        edit(
            is_volumes_component,
            lambda request, registered: setattr(request, "deletedWith", anchor_in(registered).urn),
        ),
        ("replaced", "rel-topology is replaced"),
        id="the topology changes, and the claims' component is deleted with the anchor",
    ),
    pytest.param(
        [INSTALL, ANOTHER_MODEL],
        edit_inputs(is_claim, owned_by_the_anchor),
        ("deleted", "rel-topology went"),
        id="the topology changes, and the anchor owns the claims",
    ),
    pytest.param(
        [INSTALL, ANOTHER_MODEL],
        edit(is_claim, needing_the_anchor),
        ("replaced", "rel-topology is replaced"),
        id="the topology changes, and the claims are made from something of the anchor",
    ),
    pytest.param(
        [INSTALL, replace(ANOTHER_MODEL, claims="unknown")],
        edit(is_claim, with_trigger),
        ("replaced", "trigger"),
        id="the topology changes, and its key triggers the claims' replacement",
    ),
    pytest.param(
        [INSTALL, with_cache(gibibytes=20)],
        edit(is_claim, lambda request, _: request.replaceOnChanges.append("spec.resources")),
        ("replaced", "in replaceOnChanges"),
        id="a claim grows, and is replaced on changes of its size",
    ),
    pytest.param(
        [INSTALL, WITHOUT_DECODE],
        edit(is_claim, lambda request, _: setattr(request, "protect", True)),
        ("blocked", "protected"),
        id="a role goes to 0, and its claim is protected",
    ),
    pytest.param(
        [INSTALL, DESTROY], with_a_namespace, ("deleted", "namespace went"), id="the stack makes its namespace"
    ),
]
"""Story, what is done to every registration in it, and the harm to the claim that the rules must find."""


@pytest.mark.parametrize(("story", "change", "want"), HARMFUL)
def test_harm_is_found_when(record: Record, story: list[Event], change: Change, want: tuple[str, str]) -> None:
    assert told(story, record).harms == [], "the story by itself harms nothing"
    what, because = want
    found = told(story, record, change).harms
    assert found
    assert (found[0].what, because in found[0].because) == (what, True), found[0]


def told(story: Iterable[Event], record: Record, *changes: Change) -> Engine:
    """The engine after a story in which the registrations of each update are changed; the last change stays."""
    life = Life(record=record)
    left = list(changes)
    for event in story:
        if left and event.what == "up":
            life.change = left.pop(0)
        life.meet(event)
    return life.engine


def another_identifier(inputs: dict[str, Any]) -> None:
    inputs["clusterIdentifier"] = "another"


def another_name(inputs: dict[str, Any]) -> None:
    inputs["metadata"]["name"] += "-2"


HARMFUL_IN_THE_SECOND = [
    pytest.param(
        edit_inputs(lambda each: each.type == "pulumi:providers:kubernetes", another_identifier),
        "its provider is replaced",
        id="the provider leads to another cluster",
    ),
    pytest.param(edit_inputs(is_claim, another_name), "metadata.name changed", id="the same resource has another name"),
    pytest.param(
        edit(is_claim, lambda request, _: setattr(request, "importId", "ns/rel-compile-cache-prefill")),
        "another ID is imported",
        id="the same resource is another claim",
    ),
]


@pytest.mark.parametrize(("change", "because"), HARMFUL_IN_THE_SECOND)
def test_harm_is_found_when_from_one_update_to_the_next(record: Record, change: Change, because: str) -> None:
    unguarded = replace(INSTALL, claims="unknown")
    assert told([INSTALL, unguarded], record).harms == []
    found = told([INSTALL, unguarded], record, list, change).harms
    assert found
    assert because in found[0].because


def test_a_claim_with_a_selector_that_is_taken_over_would_be_replaced_if_that_were_not_ignored(record: Record) -> None:
    """The program never writes one, but whoever made the claim may have."""

    def with_such_a_claim(*changes: Change) -> Engine:
        life = Life(record=record, change=changes[0] if changes else list)
        claim = {
            "metadata": {"name": "rel-compile-cache-decode", "namespace": "ns", "labels": {labels.INSTANCE: "rel"}},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "selector": {"matchLabels": {"disk": "fast"}},
                "resources": {"requests": {"storage": "10Gi"}},
            },
        }
        life.engine.cluster.objects["PersistentVolumeClaim", "ns", "rel-compile-cache-decode"] = bound(claim)
        life.meet(INSTALL)
        return life.engine

    assert with_such_a_claim().harms == []
    [harm] = with_such_a_claim(no_longer_ignoring("spec.selector")).harms
    assert "spec.selector changed" in harm.because


def test_what_is_retained_is_told_from_the_last_registration_and_from_the_component(record: Record) -> None:
    unset = edit(is_claim, lambda request, _: request.ClearField("retainOnDelete"))
    on_the_component = edit(is_volumes_component, lambda request, _: setattr(request, "retainOnDelete", True))

    def inherited(registered: list[Recorded]) -> list[Recorded]:
        return on_the_component(unset(registered))

    def contradicted(registered: list[Recorded]) -> list[Recorded]:
        return on_the_component(edit(is_claim, not_retained)(registered))

    story = [INSTALL, INSTALL, WITHOUT_DECODE]
    assert told(story, record, unset, list).harms == [], "it came in time"
    assert told(story, record, inherited).harms == []
    assert {harm.what for harm in told(story, record, unset).harms} == {"deleted"}
    assert {harm.what for harm in told(story, record, contradicted).harms} == {"deleted"}, "the claim's own word counts"


def test_a_claim_that_was_retained_and_replaced_is_never_at_rest_again(record: Record) -> None:
    """Putting the configuration and the program back does not help."""
    changed = with_cache(access_modes=ACCESS_MODES[1])
    unignored = no_longer_ignoring("spec.accessModes")
    engine = told([INSTALL, changed, INSTALL, INSTALL], record, list, unignored, list)
    assert [harm.what for harm in engine.harms] == ["replaced", "blocked", "blocked"]
    assert "never made anew" in engine.harms[-1].because
