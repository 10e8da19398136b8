"""The cache: what a key depends on, and that what stands in it is whole, shared and left in peace."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.toolchain.cache import Cache, cache_root, digest, mark_used, tool_key
from local.toolchain.failures import ToolchainError
from local.toolchain.pins import Module, Tool, load_pins

if TYPE_CHECKING:
    from collections.abc import Mapping

PINS = load_pins()
PROVIDER = PINS.tools["pulumi-resource-kubernetes"]
GO = {"GOVERSION": "go1.26.8", "GOHOSTOS": "linux", "GOHOSTARCH": "amd64"}


SOURCES = {"go.mod": b"module one", "go.sum": b"one h1:x", "main.go": b"package main"}


def key(
    sources: Mapping[str, bytes] = SOURCES,
    tool: Tool = PROVIDER,
    module: Module = PINS.modules["provider-kubernetes"],
    go: Mapping[str, str] = GO,
) -> str:
    return tool_key(tool, module, sources, go)


@pytest.mark.parametrize("name", SOURCES)
def test_the_key_changes_with_every_source_of_the_wrapper_module(name: str) -> None:
    assert key(SOURCES | {name: b"changed"}) != key()


@pytest.mark.parametrize("setting", GO)
def test_the_key_changes_with_go_and_the_platform(setting: str) -> None:
    assert key(go=GO | {setting: "another"}) != key()


def test_the_key_changes_with_the_pins_that_shape_the_binary() -> None:
    other_file = PROVIDER.embeds[0].model_copy(update={"set": {"version": "4.26.0"}})
    changed = [
        key(),
        key(tool=PROVIDER.model_copy(update={"package": "./other"})),
        key(tool=PROVIDER.model_copy(update={"embeds": (other_file,)})),
        key(tool=PROVIDER.model_copy(update={"beside": (other_file,)})),
        key(module=PINS.modules["lws"]),
        key(module=PINS.modules["lws"].model_copy(update={"tags": ("small",)})),
    ]
    assert len(set(changed)) == len(changed)


def test_the_key_stays_when_only_policy_changes() -> None:
    policy = {"disk_mib": 1, "on_path": PINS.tools["kubectl"].on_path, "comes_with": "etcd", "plugin": None}
    assert key(tool=PROVIDER.model_copy(update=policy)) == key()


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        pytest.param({"HOME": "/home/ada"}, "/home/ada/.cache/serving-stack", id="nothing is set"),
        pytest.param({"HOME": "/home/ada", "XDG_CACHE_HOME": "/xdg"}, "/xdg/serving-stack", id="XDG_CACHE_HOME"),
        pytest.param({"XDG_CACHE_HOME": "/xdg", "SERVING_STACK_CACHE": "/own"}, "/own", id="SERVING_STACK_CACHE wins"),
        pytest.param({"HOME": "/home/ada", "XDG_CACHE_HOME": ""}, "/home/ada/.cache/serving-stack", id="set but empty"),
    ],
)
def test_the_cache_stands_where_the_environment_says(environ: dict[str, str], want: str) -> None:
    assert cache_root(environ) == Path(want)


def test_a_cache_that_cannot_be_written_is_one_clear_message(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ToolchainError) as caught:
        Cache(tmp_path / "file" / "cache").prepare()
    assert str(caught.value).startswith(f"cache directory {tmp_path}/file/cache: cannot be written: not a directory.")
    assert "SERVING_STACK_CACHE" in caught.value.fix


def test_of_two_that_publish_the_same_entry_the_first_stays(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for text in ("first", "second"):
        (tmp_path / text).mkdir()
        (tmp_path / text / "etcd").write_text(text, encoding="utf-8")
        cache.publish(tmp_path / text, cache.entry("etcd", "k"))
    assert cache.binary("etcd", "k") == tmp_path / "tools/etcd/k/etcd"
    assert (tmp_path / "tools/etcd/k/etcd").read_text(encoding="utf-8") == "first"
    assert not (tmp_path / "second").exists()


def test_a_directory_of_links_hard_links_what_is_ours_and_points_to_what_is_not(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.prepare()
    ours, theirs = cache.root / "etcd", tmp_path / "kubectl"
    ours.touch()
    theirs.touch()
    place = cache.linked("bin", {"etcd": ours, "deep/kubectl": theirs})
    assert (place / "etcd").samefile(ours)
    assert not (place / "etcd").is_symlink(), "a program must find its companions beside it, not beside its original"
    assert (place / "deep/kubectl").readlink() == theirs
    assert cache.linked("bin", {"etcd": ours, "deep/kubectl": theirs}) == place
    assert cache.linked("bin", {"etcd": ours}) != place


def test_who_comes_second_is_told_who_builds_and_gets_the_lock_afterwards(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    waiting = threading.Event()
    heard: list[str] = []

    def second() -> None:
        def on_wait(text: str) -> None:
            heard.append(text)
            waiting.set()

        with cache.build_lock("building kwok", on_wait=on_wait, on_tick=lambda: None):
            heard.append("its turn")

    thread = threading.Thread(target=second)
    with cache.build_lock("building etcd", on_wait=heard.append, on_tick=lambda: None):
        thread.start()
        assert waiting.wait(10)
    thread.join(10)
    assert heard == [f"waiting for another run (process {os.getpid()}, building etcd)", "its turn"]


def test_old_is_what_nobody_wants_and_nobody_used_lately(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    month = 31 * 24 * 3600
    for name in ("wanted", "idle", "fresh"):
        place = cache.entry("etcd", name)
        place.mkdir(parents=True)
        if name != "fresh":
            os.utime(place, (time.time() - month, time.time() - month))
    assert cache.unused([cache.entry("etcd", "wanted")], older_than_days=30) == [cache.entry("etcd", "idle")]
    mark_used(cache.entry("etcd", "idle"))
    assert cache.unused([cache.entry("etcd", "wanted")], older_than_days=30) == []


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
