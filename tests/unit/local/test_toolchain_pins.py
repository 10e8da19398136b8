"""The pins are one story with the lock files beside them, and nothing in the folder says where modules come from."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version
from pydantic import ValidationError

from cli.dev import TOOLS
from local.toolchain.pins import HERE, MODULES, Tool, load_pins, read_pins

if TYPE_CHECKING:
    from pathlib import Path

PINS = load_pins()


def lines_of(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]


def required(module: str) -> dict[str, str]:
    text = (MODULES / module / "go.mod").read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"^require \((.*?)^\)", text, re.MULTILINE | re.DOTALL))
    singles = "\n".join(re.findall(r"^require ([^(\n]+)$", text, re.MULTILINE))
    return dict(re.findall(r"^\s*(\S+) (v\S+)", f"{blocks}\n{singles}", re.MULTILINE))


def replaced(module: str) -> dict[str, str]:
    text = (MODULES / module / "go.mod").read_text(encoding="utf-8")
    return {old: f"{new} {version}" for old, new, version in re.findall(r"(\S+) => (\S+) (v\S+)", text)}


@pytest.mark.parametrize("name", PINS.modules)
def test_a_wrapper_module_is_locked_to_the_pinned_version_of_its_origin(name: str) -> None:
    origin = PINS.modules[name].origin
    assert required(name)[origin.path] == origin.version
    assert any(line.startswith(f"{origin.path} {origin.version} h1:") for line in lines_of(MODULES / name / "go.sum"))


@pytest.mark.parametrize("name", PINS.modules)
def test_a_wrapper_module_is_locked_for_exactly_the_tools_built_from_it(name: str) -> None:
    text = (MODULES / name / "go.mod").read_text(encoding="utf-8")
    block = re.search(r"^tool \((.*?)^\)", text, re.MULTILINE | re.DOTALL)
    locked = set(block[1].split()) if block else set(re.findall(r"^tool (\S+)$", text, re.MULTILINE))
    assert locked == {tool.package for tool in PINS.tools.values() if tool.module == name and tool.package != "."}


@pytest.mark.parametrize("name", PINS.modules)
def test_a_wrapper_module_asks_for_no_newer_go_than_the_pins_say(name: str) -> None:
    [line] = [line for line in lines_of(MODULES / name / "go.mod") if line.startswith("go ")]
    assert Version(line.removeprefix("go ")) <= PINS.go.minimum


def test_the_pinned_go_is_no_newer_than_some_wrapper_module_needs() -> None:
    lines = [line for name in PINS.modules for line in lines_of(MODULES / name / "go.mod") if line.startswith("go ")]
    assert max(Version(line.removeprefix("go ")) for line in lines) == PINS.go.minimum


@pytest.mark.parametrize("name", PINS.modules)
def test_staging_folders_are_replaced_by_the_pinned_version_and_nothing_else_is(name: str) -> None:
    staging = PINS.modules[name].staging
    replacements = replaced(name)
    assert all(new == f"{old} {staging}" for old, new in replacements.items())
    assert bool(replacements) == (staging is not None)
    if staging is not None:
        assert Version(staging).release[1:] == Version(PINS.modules[name].origin.version).release[1:]


def test_every_module_folder_belongs_to_a_pin_and_holds_only_sources() -> None:
    assert {path.name for path in MODULES.iterdir()} == set(PINS.modules)
    kinds = {path.name for path in MODULES.glob("*/*")}
    assert kinds == {"go.mod", "go.sum", "main.go"}


@pytest.mark.parametrize("tool", [tool for tool in PINS.tools.values() if tool.embeds], ids=lambda tool: tool.name)
def test_files_for_the_compiler_come_from_the_very_module_that_is_compiled(tool: Tool) -> None:
    locked = lines_of(MODULES / tool.module / "go.sum")
    for file in tool.embeds:
        assert f"{file.origin.path} {file.origin.version} {file.origin.sum}" in locked


def test_the_script_beside_the_language_host_is_that_of_the_engines_own_sdk() -> None:
    [script] = PINS.tools["pulumi-language-python"].beside
    assert required("pulumi")[script.origin.path] == script.origin.version
    assert f"{script.origin.path} {script.origin.version} {script.origin.sum}" in lines_of(
        MODULES / "pulumi" / "go.sum"
    )


def test_the_crds_of_the_lws_manager_are_of_its_own_version() -> None:
    origin = PINS.crds["lws"].origin
    assert (origin.path, origin.version) == (PINS.modules["lws"].origin.path, PINS.modules["lws"].origin.version)
    assert f"{origin.path} {origin.version} {origin.sum}" in lines_of(MODULES / "lws" / "go.sum")


@pytest.mark.parametrize("name", [name for name, module in PINS.modules.items() if module.ldflags])
def test_versions_written_into_a_binary_are_its_own(name: str) -> None:
    tools = [tool for tool in PINS.tools.values() if tool.module == name]
    flags = " ".join(PINS.modules[name].ldflags)
    assert all(PINS.version_of(tool) in flags for tool in tools)


@pytest.mark.parametrize("tool", [tool for tool in PINS.tools.values() if tool.on_path], ids=lambda tool: tool.name)
def test_what_is_accepted_on_path_includes_what_would_be_built(tool: Tool) -> None:
    assert tool.on_path is not None
    assert tool.on_path.accept.contains(PINS.version_of(tool))


def test_what_only_tests_need_is_built_after_all_that_the_first_command_waits_for() -> None:
    order = list(PINS.tools)
    needed = [name for name in TOOLS if name in PINS.tools]
    assert "pulumi-resource-kubernetes" in needed
    assert {"llm-d-inference-sim", "promtool", "prometheus"} <= set(order[max(map(order.index, needed)) + 1 :])


def test_no_file_names_where_modules_are_served_from() -> None:
    for path in HERE.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            assert not re.search(r"https?://|\b(?:proxy|sum)\.go", path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(
            'module = "lws"', 'module = "lsw"', "there is no such module", id="a tool names an unknown module"
        ),
        pytest.param('comes_with = "pulumi"', 'comes_with = "polumi"', "there is no such tool", id="an unknown leader"),
        pytest.param("[crds.lws", "[crds.kwok", "ambiguous", id="a CRD module is named like a tool"),
        pytest.param("disk_mib", "disk_mb", "Extra inputs", id="a key is misspelt"),
        pytest.param('sum = "h1:', 'sum = "h2:', "h1:", id="a sum is of another kind"),
        pytest.param('tags = ["remove_all_sd"', 'tags = ["-race"', "match pattern", id="a flag stands for a build tag"),
    ],
)
def test_pins_that_make_no_sense_are_refused(tmp_path: Path, old: str, new: str, want: str) -> None:
    copy = tmp_path / "pins.toml"
    shutil.copy(HERE / "pins.toml", copy)
    text = copy.read_text(encoding="utf-8")
    assert old in text
    copy.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ValidationError, match=want):
        read_pins(copy)
