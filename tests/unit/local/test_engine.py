"""The environment of the engine: what it gets, and what of the caller's would lead it elsewhere."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from local.engine import engine_environment
from local.toolchain import Toolbox

NOTHING = MappingProxyType[str, Path]({})
TOOLBOX = Toolbox(
    bin_dir=Path("/tools"),
    versions=MappingProxyType[str, str]({}),
    _paths=NOTHING,
    _crd_dirs=NOTHING,
    _pulumi_home=Path("/pulumi-home"),
)


def environment(folder: Path, **environ: str) -> dict[str, str]:
    return engine_environment(
        TOOLBOX,
        kubeconfig=Path("/plane/kubeconfig"),
        backend=folder / "state",
        virtualenv=Path("/venv"),
        environ={"PATH": "/usr/bin", **environ},
    )


def test_the_programs_python_comes_first_then_the_tools(tmp_path: Path) -> None:
    assert environment(tmp_path)["PATH"] == "/venv/bin:/tools:/usr/bin"


def test_neither_another_cluster_nor_another_backend_of_the_caller_is_used(tmp_path: Path) -> None:
    made = environment(
        tmp_path,
        KUBECONFIG="/home/ada/.kube/config",
        PULUMI_BACKEND_URL="https://api.example.com",
        PULUMI_ACCESS_TOKEN="",
        PULUMI_STACK="prod",
        PYTHONPATH="/elsewhere",
    )
    assert made["KUBECONFIG"] == "/plane/kubeconfig"
    assert made["PULUMI_BACKEND_URL"] == f"file://{tmp_path}/state"
    assert made["PULUMI_HOME"] == "/pulumi-home"
    assert made.keys().isdisjoint({"PULUMI_ACCESS_TOKEN", "PULUMI_STACK", "PYTHONPATH"})


def test_the_engines_logs_do_not_pile_up(tmp_path: Path) -> None:
    """It looks at all of them at each start."""
    assert environment(tmp_path)["PULUMI_LOG_ROTATION_MAX_TOTAL_MB"] == "20"


@pytest.mark.parametrize(
    ("set_by_caller", "want"),
    [
        pytest.param({}, "127.0.0.1,localhost", id="nothing is set"),
        pytest.param({"NO_PROXY": "corp.example"}, "corp.example,127.0.0.1,localhost", id="upper case"),
        pytest.param({"no_proxy": "corp.example"}, "corp.example,127.0.0.1,localhost", id="lower case"),
    ],
)
def test_no_proxy_stands_between_the_program_and_the_plane(
    set_by_caller: dict[str, str], want: str, tmp_path: Path
) -> None:
    made = environment(tmp_path, HTTPS_PROXY="http://proxy.example:3128", **set_by_caller)
    assert (made["NO_PROXY"], made["no_proxy"]) == (want, want)
    assert made["HTTPS_PROXY"] == "http://proxy.example:3128", "the world outside is still reached through it"
