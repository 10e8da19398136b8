"""What PATH holds is judged by asking it; the binaries asked here are stand-ins that print what the real ones print."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from local.toolchain import onpath
from local.toolchain.onpath import Declined, Found, Look, look_on_path
from local.toolchain.pins import load_pins

PINS = load_pins()
NOWHERE = Path("/nowhere")


def stand_in(folder: Path, name: str, says: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\nprintf '%s\\n' {shlex.quote(says)}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def look(name: str, *folders: Path, skip: Path = NOWHERE) -> Look:
    return look_on_path(PINS.tools[name], PINS, {"PATH": ":".join(map(str, folders))}, skip=skip)


@pytest.mark.parametrize(
    ("name", "says", "want"),
    [
        pytest.param("etcd", "etcd Version: 3.7.1\nGit SHA: abc", "3.7.1", id="etcd of the same minor"),
        pytest.param("etcd", "etcd Version: 3.6.9", None, id="etcd a minor older"),
        pytest.param("kube-apiserver", "Kubernetes v1.36.0", "1.36.0", id="kube-apiserver of the same minor"),
        pytest.param("kube-apiserver", "Kubernetes v1.37.0", None, id="kube-apiserver a minor newer"),
        pytest.param("kube-apiserver", "Kubernetes v1.36.0-rc.1", None, id="kube-apiserver before its release"),
        pytest.param(
            "kubectl", "Client Version: v1.35.0\nKustomize Version: v5", "1.35.0", id="kubectl one minor older"
        ),
        pytest.param("kubectl", "Client Version: v1.37.9", "1.37.9", id="kubectl one minor newer"),
        pytest.param("kubectl", "Client Version: v1.36.2-gke.100", "1.36.2", id="kubectl with a vendor's suffix"),
        pytest.param("kubectl", "Client Version: v1.32.4-dispatcher", None, id="kubectl four minors older"),
        pytest.param("kubectl", "Client Version: v1.38.0", None, id="kubectl two minors newer"),
        pytest.param("kwok", "kwok version v0.8.1 go1.26.8 (linux/amd64)", "0.8.1", id="kwok of the same minor"),
        pytest.param("kwok", "kwok version v0.7.0 go1.25.0 (linux/amd64)", None, id="kwok a minor older"),
        pytest.param("kwok", "kwok version  go1.25.0 (linux/amd64)", None, id="kwok that knows no version"),
        pytest.param("kwok", "command not understood", None, id="something else called kwok"),
    ],
)
def test_a_binary_is_used_if_its_version_is_accepted(tmp_path: Path, name: str, says: str, want: str | None) -> None:
    path = stand_in(tmp_path, name, says)
    found = look(name, tmp_path).found
    assert found == (want and Found(path=path, version=want))


def test_a_declined_binary_is_named_with_the_reason(tmp_path: Path) -> None:
    path = stand_in(tmp_path, "kubectl", "Client Version: v1.32.4-dispatcher")
    [declined] = look("kubectl", tmp_path).declined
    assert declined == Declined(path=path, why="is 1.32.4, and <1.38,>=1.35 is wanted")


def test_a_good_binary_further_down_path_is_found_behind_a_bad_one(tmp_path: Path) -> None:
    bad = stand_in(tmp_path / "a", "kubectl", "Client Version: v1.30.0")
    good = stand_in(tmp_path / "b", "kubectl", "Client Version: v1.36.0")
    result = look("kubectl", tmp_path / "a", tmp_path / "b")
    assert result.found == Found(path=good, version="1.36.0")
    assert [declined.path for declined in result.declined] == [bad]


def test_a_binary_that_never_answers_is_declined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onpath, "ASK_SECONDS", 0.1)
    path = tmp_path / "etcd"
    path.write_text("#!/bin/sh\nwhile :; do :; done\n", encoding="utf-8")
    path.chmod(0o755)
    result = look("etcd", tmp_path)
    assert result.found is None
    assert result.declined[0] == Declined(path=path, why="does not answer `etcd --version`")


def test_the_cache_is_never_taken_for_path(tmp_path: Path) -> None:
    stand_in(tmp_path / "cache/bin/1", "etcd", "etcd Version: 3.7.3")
    assert look("etcd", tmp_path / "cache/bin/1", skip=tmp_path / "cache").found is None


def test_what_is_not_installed_is_not_found(tmp_path: Path) -> None:
    assert look("etcd", tmp_path) == Look(found=None)


def test_a_tool_without_a_policy_is_always_built(tmp_path: Path) -> None:
    stand_in(tmp_path, "lws-manager", "v0.9.0")
    stand_in(tmp_path, "pulumi-resource-kubernetes", "4.25.0")
    assert look("lws-manager", tmp_path).found is None
    assert look("pulumi-resource-kubernetes", tmp_path).found is None


@pytest.mark.parametrize(
    ("says", "want"), [("v3.260.0", "3.260.0"), ("v3.299.1", "3.299.1"), ("v3.259.0", None), ("v4.0.0", None)]
)
def test_pulumi_on_path_brings_its_own_language_host(tmp_path: Path, says: str, want: str | None) -> None:
    stand_in(tmp_path, "pulumi", says)
    host = stand_in(tmp_path, "pulumi-language-python", "")
    stand_in(tmp_path, "pulumi-language-python-exec", "")
    found = look("pulumi-language-python", tmp_path).found
    assert found == (want and Found(path=host, version=want))


def test_pulumi_without_its_language_host_is_declined(tmp_path: Path) -> None:
    stand_in(tmp_path, "pulumi", "v3.270.0")
    stand_in(tmp_path / "elsewhere", "pulumi-language-python", "")
    stand_in(tmp_path / "elsewhere", "pulumi-language-python-exec", "")
    result = look("pulumi", tmp_path, tmp_path / "elsewhere")
    assert result.found is None
    assert [d.why for d in result.declined] == ["is 3.270.0, but has no pulumi-language-python beside it"]
    assert look("pulumi-language-python", tmp_path, tmp_path / "elsewhere").found is None


def test_a_language_host_is_found_where_the_link_to_pulumi_leads(tmp_path: Path) -> None:
    real = stand_in(tmp_path / "opt", "pulumi", "v3.270.0")
    host = stand_in(tmp_path / "opt", "pulumi-language-python", "")
    stand_in(tmp_path / "opt", "pulumi-language-python-exec", "")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/pulumi").symlink_to(real)
    assert look("pulumi-language-python", tmp_path / "bin").found == Found(path=host, version="3.270.0")
