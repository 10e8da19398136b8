"""The commands that look into a stack file without an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml
from typer.testing import CliRunner

from cli.main import app
from tests.builders import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

BAD = """\
config:
  kubernetes:context: c
  serving-stack:release: rel
  serving-stack:namespace: ns
  serving-stack:cluster: {identifier: c}
  serving-stack:storage: {model: {existingClaim: store}}
  serving-stack:modelserver: {replicas: {decod: 3}}
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_check_accepts_the_reference_and_tells_its_budget() -> None:
    result = run("check", str(ROOT / "Pulumi.prod.yaml"))
    assert result.exit_code == 0, result.output
    assert "prefill: 4 x 40 CPU, 460Gi" in result.output
    assert "epp: 1 x 4 CPU, 8Gi" in result.output


def test_check_names_the_misspelt_key_and_what_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.bad.yaml"
    file.write_text(BAD)
    result = run("check", str(file))
    assert result.exit_code == 1
    assert "modelserver.replicas.decod" in result.output
    assert "Did you mean decode?" in result.output
    assert "Traceback" not in result.output


def test_check_of_something_that_is_no_text_says_so(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.bad.yaml"
    file.write_bytes(b"\xff\xfe\x00config")
    result = run("check", str(file))
    assert result.exit_code == 1
    assert "UTF-8" in result.output


def test_render_prints_every_object_as_yaml() -> None:
    result = run("render", str(ROOT / "Pulumi.prod.yaml"))
    assert result.exit_code == 0, result.output
    kinds = [document["kind"] for document in yaml.safe_load_all(result.stdout)]
    assert kinds.count("Deployment") == 3, "prefill, decode and the EPP"
    assert {"InferencePool", "Gateway", "HTTPRoute", "PersistentVolumeClaim", "DestinationRule"} <= set(kinds)
