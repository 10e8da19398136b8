"""What each stack file asks for, as manifests that a reviewer reads: a change of the program shows what it changes.

Each document is one registration of the whole program, run as the engine runs it, on a cluster that holds nothing yet:
first under `pulumi` its identity and the options that decide what happens to it at a change, then the object.
"""

from __future__ import annotations

import io
import json
import signal
from typing import TYPE_CHECKING, Any

import pulumi
import pytest
import yaml

from cli.stackfile import read_stack_file
from stack.drain import LEAVE
from stack.facts import NOTHING_AROUND, TrialFacts
from tests.builders import EMPTY_CLUSTER, ROOT, STACK_FILES
from tests.components.programs import main_program
from tests.components.recorder import keep_pulumi_to_itself, type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from stack.facts import ClusterFacts, Surroundings
    from tests.components.recorder import Recorded, Recorder, Stage

HERE = ROOT / "tests" / "golden"
SHOWN = (
    "Pulumi.dev",
    "Pulumi.prod",
    "aggregated",
    "autoscaling",
    "gpt-oss-120b-dra",
    "managed-claim-template",
    "monitoring-prometheus-operator",
    "node-placement",
    "npu-device-plugin",
    "tracing",
    "without-pool",
)
"""Stack files that together show every kind of object and every topology; the API server sees all of them in e2e."""
RECORDED = [path for path in STACK_FILES if path.stem in SHOWN]
SAME_EVERYWHERE = ("provider", "parent")
"""Options that contracts show to be the same for all, or to follow from the kind; a reader would only skip them."""
ONE_LINE = 160
"""Characters of a collection that is written on one line."""


@pytest.fixture(scope="module")
def stage() -> Generator[Stage]:
    with keep_pulumi_to_itself() as stage:
        yield stage


@pytest.fixture
def run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Generator[Any]:
    """Run the program with a stack file."""
    before = signal.getsignal(signal.SIGINT)

    def pass_by(_waits: object, _name: str) -> None:
        """There is no cluster to wait for."""

    def read_facts(_context: str, **_which: str) -> ClusterFacts:
        return EMPTY_CLUSTER

    def try_workloads(_context: str, _workloads: object, *, owner: object, others: object) -> TrialFacts:
        assert others
        assert owner is None, "there is no anchor yet"
        return TrialFacts()

    def read_surroundings(_context: str, _wanted: object, _near: object) -> Surroundings:
        return NOTHING_AROUND

    def run(path: Path) -> Recorder:
        blocks, context = read_stack_file(path.read_text(encoding="utf-8"))
        given = {f"serving-stack:{k}": v if isinstance(v, str) else json.dumps(v) for k, v in blocks.items()}
        given["kubernetes:context"] = context or ""
        monkeypatch.setenv("PULUMI_CONFIG", json.dumps(given))
        monkeypatch.delenv("PULUMI_CONFIG_SECRET_KEYS", raising=False)
        pulumi.runtime.set_all_config(given, [])
        monkeypatch.setattr("cluster.facts.read_facts", read_facts)
        monkeypatch.setattr("cluster.trial.try_workloads", try_workloads)
        monkeypatch.setattr("cluster.surroundings.read_surroundings", read_surroundings)
        monkeypatch.setattr("cluster.wait.Waits.until_rolled_out", pass_by)
        monkeypatch.setattr("pulumi.log.warn", list[str]().append)
        monkeypatch.setattr("pulumi.log.info", list[str]().append)
        return stage(main_program)

    yield run
    pulumi.runtime.set_all_config({}, [])
    signal.signal(signal.SIGINT, before)


def golden_of(path: Path) -> Path:
    return HERE / path.name.removeprefix("Pulumi.")


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_what_a_stack_file_asks_for(path: Path, run: Any, agree: Callable[[Path, str], None]) -> None:
    agree(golden_of(path), render(run(path), path))


def test_no_golden_file_is_left_from_a_stack_file_that_is_gone(is_rewriting: bool) -> None:
    known = {golden_of(path) for path in RECORDED}
    assert len(known) == len(SHOWN), "each is there, and no two share a golden file"
    left = set(HERE.glob("*.yaml")) - known
    if is_rewriting:
        for path in left:
            path.unlink()
        return
    assert left == set()


# --- how it is written ------------------------------------------------------------------------------------------------


def render(seen: Recorder, path: Path) -> str:
    """Provider, objects sorted by kind and name, outputs; one document each."""
    shown = [r for r in seen.resources if r.is_object or type_of(r.urn).startswith("pulumi:providers:")]
    documents = [document(r) for r in sorted(shown, key=lambda r: (r.is_object, r.kind, r.name))]
    # The applied configuration says again what the stack file and the defaults say.
    documents.append({"outputs": {k: v for k, v in seen.exports.items() if k != "config"}})
    head = f"# Recorded from {path.relative_to(ROOT)} by `make golden`. Read the diff, do not edit.\n"
    return head + "".join(f"---\n{dump(each)}" for each in documents)


def document(recorded: Recorded) -> dict[str, Any]:
    """One registration: what the engine is told, then the object in the order in which one reads it."""
    options = {key: value for key, value in recorded.options.items() if key not in SAME_EVERYWHERE}
    if recorded.inputs.get("kind") == "Secret":
        options |= {"masked": True}
    inputs = masked(recorded.inputs) if recorded.inputs.get("kind") == "Secret" else recorded.inputs
    first = {key: inputs[key] for key in ("apiVersion", "kind", "metadata") if key in inputs}
    rest = {key: inputs[key] for key in sorted(inputs) if key not in first}
    return {"pulumi": {"name": recorded.name} | options, **first, **rest}


def masked(inputs: dict[str, Any]) -> dict[str, Any]:
    """A Secret without its content."""
    return {
        key: dict.fromkeys(value, "[secret]") if key in ("data", "stringData") else value
        for key, value in inputs.items()
    }


class Dumper(yaml.SafeDumper):
    """Long texts as blocks, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # nothing is one
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT002
        super().increase_indent(flow, False)  # pyright: ignore[reportUnknownMemberType]  # untyped


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)  # pyright: ignore[reportUnknownMemberType]


Dumper.add_representer(str, _text)


def inner_nodes(node: yaml.Node) -> Iterator[yaml.Node]:
    """All nodes below one."""
    match node:
        case yaml.MappingNode():
            children = [each for pair in node.value for each in pair]
        case yaml.SequenceNode():
            children = node.value
        case _:
            children = []
    for child in children:
        yield child
        yield from inner_nodes(child)


def length_of(node: yaml.Node) -> int:
    """About how long a node is on one line; far too long for a text of several lines."""
    scalars = [each for each in (node, *inner_nodes(node)) if isinstance(each, yaml.ScalarNode)]
    if any("\n" in each.value for each in scalars):
        return 10 * ONE_LINE
    return sum(len(each.value) + 2 for each in scalars)


def write_short_ones_inline(node: yaml.Node, *, depth: int = 0) -> None:
    """Collections that fit on a line, from the outside in; the document and its parts keep a line a key."""
    is_short = depth > 1 and length_of(node) <= ONE_LINE
    if isinstance(node, yaml.CollectionNode):
        node.flow_style = is_short
    children: list[yaml.Node] = node.value if isinstance(node, yaml.SequenceNode) else []
    if isinstance(node, yaml.MappingNode):
        children = [value for _, value in node.value]
    for child in children:
        if is_short:
            for each in (child, *inner_nodes(child)):
                if isinstance(each, yaml.CollectionNode):
                    each.flow_style = True
        else:
            write_short_ones_inline(child, depth=depth + 1)


def dump(value: dict[str, Any]) -> str:
    """YAML with inner keys sorted and the outer order kept."""
    dumper: Any = Dumper(io.StringIO(), sort_keys=False)
    node = dumper.represent_data(
        {key: inner if key == "pulumi" else inner_sorted(inner) for key, inner in value.items()}
    )
    write_short_ones_inline(node)
    untyped: Any = yaml
    return untyped.serialize(node, Dumper=Dumper, allow_unicode=True, width=10_000)


def inner_sorted(value: Any) -> Any:
    match value:
        case str() if value == LEAVE:
            return "[stack/hooks/leave.py]"
        case dict():
            return {key: inner_sorted(value[key]) for key in sorted(value)}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case list():
            return [inner_sorted(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def test_a_secret_is_written_without_its_content() -> None:
    assert masked({"kind": "Secret", "data": {"token": "aGk="}, "type": "Opaque"}) == {
        "kind": "Secret",
        "data": {"token": "[secret]"},
        "type": "Opaque",
    }
