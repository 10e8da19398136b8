"""Every shell script, the repository's own and those that Pods are given, is looked through by ShellCheck."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml

from tests.builders import plan

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SHELLS = {"sh": "dash", "bash": "bash"}  # what /bin/sh is in the images that the scripts run in, Debian's and Ubuntu's
PRIVILEGED = {"securityContext": {"privileged": True, "allowPrivilegeEscalation": True}}


def scripts_in(value: Any) -> Iterator[tuple[str, str]]:
    """Each `[sh, -c, script, ...]` in a manifest, as shell and script."""
    if isinstance(value, dict):
        value = list(cast("dict[str, Any]", value).values())
    if not isinstance(value, list):
        return
    parts = cast("list[Any]", value)
    if len(parts) > 2 and parts[1] == "-c" and (shell := SHELLS.get(Path(parts[0]).name)):
        yield shell, str(parts[2])
    for each in parts:
        yield from scripts_in(each)


def of_the_repository() -> dict[str, tuple[str, str]]:
    hooks = [path for path in ROOT.glob(".ci/*") if path.is_file()]
    return {str(path.relative_to(ROOT)): ("bash", path.read_text(encoding="utf-8")) for path in hooks}


def of_the_golden_files() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for path in sorted((ROOT / "tests" / "golden").glob("*.yaml")):
        for shell, script in scripts_in(list(yaml.safe_load_all(path.read_text(encoding="utf-8")))):
            if (shell, script) not in found.values():
                found[f"{path.stem}-{len(found)}"] = (shell, script)
    return found


def of_a_privileged_role() -> dict[str, tuple[str, str]]:
    whole = plan(modelserver={"podOverrides": {"prefill": PRIVILEGED}})
    scripts = scripts_in([each.manifest for each in whole.objects()])
    return {f"privileged-{number}": script for number, script in enumerate(dict.fromkeys(scripts))}


SCRIPTS = of_the_repository() | of_the_golden_files() | of_a_privileged_role()


def complaints(shell: str, script: str) -> str:
    beside = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which("shellcheck")
    if beside is None:
        pytest.skip("there is no shellcheck, neither in this environment nor on PATH; `make check` installs it")
    asked = [beside, "--norc", f"--shell={shell}", "--format=gcc", "-"]
    return subprocess.run(asked, input=script, capture_output=True, text=True, timeout=60, check=False).stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_has_nothing_to_say(name: str) -> None:
    assert complaints(*SCRIPTS[name]) == ""


def test_it_would_say_something() -> None:
    assert "SC2086" in complaints("dash", "where=$1\nrm -r $where\n")


def test_the_scripts_of_pods_are_among_those_looked_through() -> None:
    texts = [script for _, script in SCRIPTS.values()]
    assert any("RDMA_PORTS_NEEDED" in text for text in texts), "the check before the model server"
    assert any('exec vllm serve "$@"' in text for text in texts), "the command of a role that raises memlock"
    assert ".ci/run" in SCRIPTS
