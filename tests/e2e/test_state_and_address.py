"""A lost or old state, a new token, another address, a wrong cluster: the next update finds what runs and leaves it."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pytest
import yaml

from local.control_plane import running_plane
from local.inventory import load_inventory
from tests.builders import ROOT
from tests.e2e.bench import PLACED, is_ready, without_traceback

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from local.api import Object
    from local.toolchain import Toolbox
    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]


@pytest.fixture(scope="module")
def live(module_bench_of: Callable[[str], Bench]) -> Bench:
    """A stack that is looked for again and again."""
    bench = module_bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.up()
    return bench


def uids(bench: Bench) -> dict[str, set[str]]:
    """UIDs of role Pods, which must be Ready, of the EPP's, and of the volumes."""
    pods = bench.pods("app.kubernetes.io/instance=rel")
    assert all(is_ready(pod) for pod in pods)
    return {"pods": {pod["metadata"]["uid"] for pod in pods}, "volumes": set(bench.volume_uids().values())}


def import_state(bench: Bench, state: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(json.dumps(state))
    bench.run("stack", "import", "--file", str(file))


def test_an_emptied_state_finds_every_object_again(live: Bench, tmp_path: Path) -> None:
    before, state = uids(live), live.export_state()
    state["deployment"]["resources"] = []
    import_state(live, state, tmp_path)

    good = live.blocks
    live.change(modelserver=PLACED)
    said = live.refuse()
    assert "rel-topology" in said
    assert "put back the configuration that runs and run `pulumi up`" in said
    assert without_traceback(said)
    assert uids(live) == before, "the key of running Pods is not rewritten by an engine that does not know them"

    live.write(**good)
    live.up()
    assert uids(live) == before
    assert live.preview() == {}


def test_an_old_state_from_before_a_mode_switch_changes_nothing(live: Bench, tmp_path: Path) -> None:
    old, good = live.export_state(), live.blocks
    live.change(modelserver=PLACED)
    live.up()
    before = uids(live)

    import_state(live, old, tmp_path)
    live.up()
    assert uids(live) == before
    assert live.preview() == {}
    live.write(**good)
    live.up()
    assert not uids(live)["pods"] & before["pods"] - uids_of_epp(live)
    assert live.preview() == {}


def uids_of_epp(bench: Bench) -> set[str]:
    return {pod["metadata"]["uid"] for pod in bench.pods("app.kubernetes.io/component=epp")}


def test_a_token_that_rotates_is_not_in_the_state(live: Bench, tmp_path: Path) -> None:
    before, api = uids(live), live.plane.api
    account = f"/api/v1/namespaces/{live.namespace}/serviceaccounts/deployer"
    binding = f"deployer-{live.namespace}"
    api.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": binding},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "deployer", "namespace": live.namespace}],
        }
    )
    tokens: list[str] = []
    for _ in range(2):
        api.create(
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "deployer", "namespace": live.namespace},
            }
        )
        request: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
        tokens.append(api.request("POST", f"{account}/token", request)["status"]["token"])
        with using(live, tmp_path, user={"token": tokens[-1]}):
            live.up()
            assert uids(live) == before
        api.delete(account)  # with it every token of it is worth nothing
    assert not any(token in json.dumps(live.export_state()) for token in tokens)
    api.delete(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{binding}")


def test_an_address_that_moves_changes_nothing(live: Bench, tmp_path: Path) -> None:
    before, home = uids(live), urlsplit(live.plane.server)
    for _ in range(2):
        with (
            forwarding(cast("str", home.hostname), cast("int", home.port)) as port,
            using(live, tmp_path, cluster={"server": f"https://127.0.0.1:{port}"}),
        ):
            live.up()
            assert live.preview() == {}
        assert uids(live) == before


def test_a_wrong_cluster_and_then_the_right_one_ends_with_the_same_pods(
    live: Bench, tmp_path: Path, toolbox: Toolbox
) -> None:
    before = uids(live)
    with running_plane(load_inventory("small"), tmp_path / "other", tools=toolbox, context="test") as other:
        live.environment["KUBECONFIG"] = str(other.kubeconfig)
        said = live.refuse()
        assert without_traceback(said)
    live.environment["KUBECONFIG"] = str(live.plane.kubeconfig)
    live.up()
    assert uids(live) == before
    assert live.preview() == {}


@contextmanager
def using(
    bench: Bench, folder: Path, *, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None
) -> Generator[None]:
    """With a kubeconfig that differs from the plane's in its user or its cluster."""
    content = yaml.safe_load(bench.plane.kubeconfig.read_text())
    if user is not None:
        content["users"][0]["user"] = user
    content["clusters"][0]["cluster"] |= cluster or {}
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    bench.environment["KUBECONFIG"] = str(file)
    try:
        yield
    finally:
        bench.environment["KUBECONFIG"] = str(bench.plane.kubeconfig)


@contextmanager
def forwarding(host: str, port: int) -> Generator[int]:
    """A port of its own that leads to the other for as long as the block runs."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def start(run: Callable[..., None], *args: socket.socket) -> threading.Thread:
        threads.append(threading.Thread(target=run, args=args, daemon=True))
        threads[-1].start()
        return threads[-1]

    def pass_on(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def connect(near: socket.socket) -> None:
        with near, socket.create_connection((host, port)) as far:
            back = start(pass_on, far, near)
            pass_on(near, far)
            back.join()

    def serve() -> None:
        with suppress(OSError):  # it was shut
            while True:
                start(connect, listener.accept()[0])

    start(serve)
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join()
