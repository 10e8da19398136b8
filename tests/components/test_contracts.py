"""What holds for every component, found by walking the package: shape, name, place, how children are declared."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import tomllib
import typing
from typing import TYPE_CHECKING, Any

import pulumi
import pytest

import components
from tests.builders import ROOT, plan
from tests.components.programs import PLANS, whole_stack
from tests.components.recorder import name_of, type_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from stack.planned import StackPlan
    from tests.components.recorder import Recorded, Recorder, Stage

TYPE_TOKENS = {
    # Identities in every deployed state. A changed one makes new resources beside the old: never change an entry; a
    # moved or renamed class gets an alias and keeps its line.
    "DeviceClaims": "servingstack:devices:DeviceClaims",
    "EndpointPicker": "servingstack:router:EndpointPicker",
    "Gateway": "servingstack:gateway:Gateway",
    "ModelServers": "servingstack:serving:ModelServers",
    "Monitoring": "servingstack:monitoring:Monitoring",
    "RetainedVolumes": "servingstack:storage:RetainedVolumes",
    "RoleSeat": "servingstack:serving:RoleSeat",
    "ScalerSeat": "servingstack:serving:ScalerSeat",
    "Scaling": "servingstack:serving:Scaling",
    "ServingStack": "servingstack:index:ServingStack",
}
WITHOUT_A_CLASS = {"RoleSeat", "ScalerSeat"}
"""What stands for nothing in the cluster, and only gives the engine an order."""


def found_components() -> list[type[pulumi.ComponentResource]]:
    modules = [importlib.import_module(f"components.{m.name}") for m in pkgutil.iter_modules(components.__path__)]
    return [
        member
        for module in modules
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, pulumi.ComponentResource) and member.__module__ == module.__name__
    ]


def args_of(component: type[pulumi.ComponentResource]) -> type[Any]:
    module = importlib.import_module(component.__module__)
    return getattr(module, f"{component.__name__}Args")


@pytest.fixture(params=found_components(), ids=lambda component: component.__name__)
def component(request: pytest.FixtureRequest) -> type[pulumi.ComponentResource]:
    return request.param


def test_takes_a_name_args_and_options(component: type[pulumi.ComponentResource]) -> None:
    parameters = list(inspect.signature(component.__init__).parameters.values())[1:]
    assert [p.name for p in parameters] == ["name", "args", "opts"]
    assert [p.default for p in parameters] == [inspect.Parameter.empty, inspect.Parameter.empty, None]
    assert [p.annotation for p in parameters] == ["str", args_of(component).__name__, "pulumi.ResourceOptions | None"]


def test_args_are_a_frozen_keyword_only_dataclass(component: type[pulumi.ComponentResource]) -> None:
    args = args_of(component)
    assert args.__dataclass_params__.frozen
    assert dataclasses.fields(args), "a component is told something"
    assert all(field.kw_only for field in dataclasses.fields(args))


def test_args_say_what_they_are(component: type[pulumi.ComponentResource]) -> None:
    assert component.__doc__
    assert args_of(component).__doc__


def test_every_component_is_listed_with_its_type_token() -> None:
    assert {c.__name__ for c in found_components()} == set(TYPE_TOKENS) - WITHOUT_A_CLASS


def test_type_tokens_never_change(recording: Callable[[str, bool], Recorder]) -> None:
    seen = recording("the smallest", False)
    assert {r.kind: r.type for r in seen.components} == TYPE_TOKENS


def test_one_public_component_a_file() -> None:
    files = [c.__module__ for c in found_components()]
    assert sorted(set(files)) == sorted(files)


def test_the_linter_knows_every_component_that_must_stand_alone() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [listed] = [c["modules"] for c in contracts if c["type"] == "independence" and "components.gateway" in c["modules"]]
    assert set(listed) == {c.__module__ for c in found_components()} - {"components.serving_stack"}


def test_the_parent_of_every_child_is_its_component(seen: Recorder, planned: StackPlan) -> None:
    owners = {
        "DeviceClaims": planned.claims,
        "RetainedVolumes": tuple(volume.object for volume in planned.volumes),
        "EndpointPicker": planned.router,
        "Gateway": planned.gateway,
        "Monitoring": planned.monitoring,
        "ModelServers": (
            *planned.modelserver.objects,
            planned.modelserver.topology.anchor,
            *(workload.object for workload in planned.modelserver.workloads),
        ),
        "Scaling": tuple(scaler.object for scaler in planned.modelserver.scalers),
    }
    want = {(o.kind, o.name): f"{TYPE_TOKENS[owner]} rel" for owner, objects in owners.items() for o in objects}
    assert {where(r): r.options["parent"] for r in seen.objects} == want


def where(recorded: Recorded) -> tuple[str, str]:
    return recorded.kind, recorded.inputs["metadata"]["name"]


def test_parts_hang_below_the_root_and_the_root_below_the_stack(seen: Recorder) -> None:
    root = f"{TYPE_TOKENS['ServingStack']} rel"
    of_others = {
        "ServingStack": "pulumi:pulumi:Stack serving-stack-test",
        "RoleSeat": f"{TYPE_TOKENS['ModelServers']} rel",
        "ScalerSeat": f"{TYPE_TOKENS['ModelServers']} rel",
    }
    for recorded in seen.components:
        assert recorded.options["parent"] == of_others.get(recorded.kind, root)


def test_outputs_are_registered_on_every_path(seen: Recorder) -> None:
    registered = [(r.type, r.name) for r in seen.components]
    finished = [(type_of(urn), name_of(urn)) for urn in seen.finished]
    assert sorted(one for one in finished if one[0].startswith("servingstack:")) == sorted(registered)


def test_the_callers_options_stay_with_the_component(declare: Stage) -> None:
    given = pulumi.ResourceOptions(
        protect=False,
        aliases=[pulumi.Alias(name="before")],
        ignore_changes=["spec"],
        retain_on_delete=True,
        delete_before_replace=False,
        custom_timeouts=pulumi.CustomTimeouts(create="1s"),
    )
    planned = PLANS["everything made by the stack"]
    with_options, without = declare(whole_stack(planned, opts=given)), declare(whole_stack(planned))

    [root] = with_options.of("ServingStack")
    assert root.options["ignoreChanges"] == ["spec"]
    assert root.options["retainOnDelete"]
    below = [r for r in with_options.resources if r.kind != "ServingStack"]
    assert [(r.urn, r.options) for r in sorted(below, key=lambda r: r.urn)] == [
        (r.urn, r.options) for r in sorted(without.resources, key=lambda r: r.urn) if r.kind != "ServingStack"
    ]


def test_preview_registers_what_an_update_registers(
    situation: str, recording: Callable[[str, bool], Recorder], seen: Recorder
) -> None:
    preview = recording(situation, True)
    assert preview.names == seen.names
    assert {r.urn: r.options for r in preview.resources} == {r.urn: r.options for r in seen.resources}


def test_two_stacks_fit_into_one_program(declare: Stage) -> None:
    first, second = plan(release="one"), plan(release="two")

    def program() -> None:
        whole_stack(first)()
        whole_stack(second)()

    seen = declare(program)
    urns = [r.urn for r in seen.resources]
    assert len(set(urns)) == len(urns)
    assert len(seen.objects) == len(first.objects()) + len(second.objects())


def test_the_same_component_twice_has_two_identities(declare: Stage) -> None:
    """The volumes are the exception: their identity is the claim in the cluster, which exists once."""
    planned = dataclasses.replace(PLANS["everything made by the stack"], volumes=())

    def program() -> None:
        whole_stack(planned, name="one")()
        whole_stack(planned, name="two")()

    urns = [r.urn for r in declare(program).resources]
    assert len(set(urns)) == len(urns)


def test_logical_names_are_kebab_case_and_begin_with_their_component(seen: Recorder, planned: StackPlan) -> None:
    for recorded in seen.objects:
        assert recorded.name == recorded.name.lower()
        assert "_" not in recorded.name
        start = planned.namespace if recorded.kind == "PersistentVolumeClaim" else "rel"
        assert recorded.name.startswith(f"{start}-")


def test_hooks_have_permanent_names(seen: Recorder) -> None:
    """The engine keeps them in the state."""
    assert set(seen.callbacks) == {"rel-devices-free"}


def test_annotations_of_args_can_be_read(component: type[pulumi.ComponentResource]) -> None:
    """Plan types and plain values only: no Output travels where a plan value is meant, but a resource to come may."""
    args = args_of(component)
    module = importlib.import_module(component.__module__)
    for field in dataclasses.fields(args):
        assert "Input[" not in str(field.type).replace("Input[pulumi.Resource]", ""), field.name
    assert typing.get_type_hints(component.__init__, vars(module) | {args.__name__: args})
