"""Ports, credentials, CRDs, records and places: the small parts of a plane that need no server."""

from __future__ import annotations

import base64
import json
import socket
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from rich.console import Console
from typer.testing import CliRunner

from local import credentials, ports
from local.api import condition_is_true, describe
from local.cli import app
from local.control_plane import ControlPlane, PlaneRecord
from local.crds import OWN, digest_of, find_crds, restore_crds
from local.errors import DeadlineError, LocalError
from local.etcd_store import EtcdStore
from local.lws import render_webhooks
from local.places import cache_folder, planes_folder
from local.tools import FolderTools
from local.waiting import wait_until

# -- ports ------------------------------------------------------------------------------------------------------------


def test_ports_are_free_and_different() -> None:
    drawn = iter([18000, 18000, 18001, 18001, 18002])
    chosen = ports.choose_ports(["a", "b"], is_free=lambda port: port != 18000, draw=lambda _low, _high: next(drawn))
    assert chosen == {"a": 18001, "b": 18002}


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.port_is_free(port)
    assert ports.port_is_free(port)


def test_a_machine_without_free_ports_is_a_letter() -> None:
    with pytest.raises(LocalError, match="No free port for etcd"):
        ports.choose_ports(["etcd"], is_free=lambda _port: False)


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ("listen tcp 127.0.0.1:2379: bind: address already in use", True),
        (
            'failed to create listener: failed to listen on 127.0.0.1:6443: listen tcp: bind: address already in use"',
            True,
        ),
        ("open /nowhere: no such file or directory", False),
    ],
)
def test_a_port_taken_meanwhile_is_told_from_other_deaths(said: str, want: bool) -> None:
    assert ports.port_was_taken(["starting", said]) is want


# -- credentials ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> credentials.Credentials:
    return credentials.make_credentials(tmp_path_factory.mktemp("plane") / "pki")


def test_only_the_owner_reads_the_credentials(held: credentials.Credentials) -> None:
    assert stat.S_IMODE(held.folder.stat().st_mode) == 0o700
    secret = [path for path in held.folder.iterdir() if path.name != "complete"]
    assert len(secret) > 10
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}


def test_the_api_servers_certificate_is_the_authoritys_and_names_its_address(held: credentials.Credentials) -> None:
    authority = x509.load_pem_x509_certificate(held.ca.read_bytes())
    served = x509.load_pem_x509_certificate(held.certificate("kube-apiserver").read_bytes())
    served.verify_directly_issued_by(authority)
    names = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "127.0.0.1" in map(str, names.get_values_for_type(x509.IPAddress))
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)


def test_everybody_has_a_token_of_their_own(held: credentials.Credentials) -> None:
    assert set(held.tokens) == set(credentials.USERS)
    assert len(set(held.tokens.values())) == len(credentials.USERS)


def test_credentials_are_made_once(held: credentials.Credentials) -> None:
    again = credentials.make_credentials(held.folder)
    assert again.tokens == held.tokens


def test_a_kubeconfig_has_the_one_context_and_the_authority_inside(
    held: credentials.Credentials, tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    credentials.write_kubeconfig(
        path, server="https://127.0.0.1:1", credentials=held, holder=credentials.ADMIN, context="serving-stack-dev"
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = yaml.safe_load(path.read_text())
    assert content["current-context"] == "serving-stack-dev"
    assert [context["name"] for context in content["contexts"]] == ["serving-stack-dev"]
    assert content["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert "certificate-authority-data" in content["clusters"][0]["cluster"]
    assert content["users"][0]["user"] == {"token": held.tokens[credentials.ADMIN]}


# -- CRDs -------------------------------------------------------------------------------------------------------------

TWO_CRDS_AND_MORE = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    some.project/version: v1
  name: bs.example.com
spec: {}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: not-a-crd
---
# a comment
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: "as.example.com"
spec: {and: something longer}
"""


OWN_NAMES = {
    "podautoscalers.autoscaling.aibrix.ai",
    "vmpodscrapes.operator.victoriametrics.com",
    "vmrules.operator.victoriametrics.com",
    "vmservicescrapes.operator.victoriametrics.com",
}


@pytest.fixture
def tools(tmp_path: Path) -> FolderTools:
    folder = tmp_path / "crds"
    folder.mkdir()
    (folder / "all.yaml").write_text(TWO_CRDS_AND_MORE)
    (folder / "notes.txt").write_text("kind: CustomResourceDefinition")
    (tmp_path / "kube-apiserver").write_text("a program")
    (tmp_path / "empty").mkdir()
    return FolderTools(programs=tmp_path, crds={"gateway-api": folder, "keda": tmp_path / "empty"})


def test_crds_are_found_in_files_of_several_and_nothing_else_is(tools: FolderTools) -> None:
    assert {path.stem for path in OWN.glob("*.yaml")} == {own.partition(".")[0] for own in OWN_NAMES}
    assert {crd.name for crd in find_crds(tools, ["gateway-api"])} == {"as.example.com", "bs.example.com", *OWN_NAMES}


def test_a_project_without_crds_is_a_letter(tools: FolderTools) -> None:
    with pytest.raises(LocalError, match="no CRD of keda"):
        find_crds(tools, ["keda"])


def test_the_digest_changes_with_any_crd_and_with_the_server(tools: FolderTools, tmp_path: Path) -> None:
    server = tmp_path / "kube-apiserver"
    before = digest_of(find_crds(tools, ["gateway-api"]), server)
    assert digest_of(find_crds(tools, ["gateway-api"]), server) == before
    assert digest_of(find_crds(tools, []), server) != before
    server.write_text("another program")
    assert digest_of(find_crds(tools, ["gateway-api"]), server) != before


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"key": "not base64!"}', '{"key": 1}'])
def test_kept_crds_that_are_unusable_are_ignored(content: str | None, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    if content is not None:
        kept.write_text(content)
    nobody = EtcdStore(url="https://127.0.0.1:1", ca=tmp_path, certificate=tmp_path, key=tmp_path)
    assert not restore_crds(nobody, kept)


# -- the LeaderWorkerSet manager --------------------------------------------------------------------------------------

WEBHOOKS = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: validating-webhook-configuration}
webhooks:
- name: vpod.kb.io
  clientConfig: {service: {name: webhook-service, namespace: system, path: /validate--v1-pod}}
  failurePolicy: Fail
- name: vleaderworkerset.kb.io
  clientConfig: {service: {name: webhook-service, namespace: system, path: /validate-lws}}
"""


def test_webhooks_are_called_on_this_machine_and_for_pods_of_a_leader_worker_set_only() -> None:
    [rendered] = render_webhooks(WEBHOOKS, port=9443, ca=b"authority")
    assert rendered["metadata"] == {"name": "lws-validating-webhook-configuration"}
    of_pods, of_sets = rendered["webhooks"]
    assert of_pods["clientConfig"] == {
        "url": "https://127.0.0.1:9443/validate--v1-pod",
        "caBundle": base64.b64encode(b"authority").decode(),
    }
    assert of_pods["failurePolicy"] == "Fail"
    assert of_pods["objectSelector"] == {
        "matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]
    }
    assert of_sets["clientConfig"]["url"] == "https://127.0.0.1:9443/validate-lws"
    assert "objectSelector" not in of_sets


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_a_missing_program_is_a_letter(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="There is no etcd in"):
        FolderTools(programs=tmp_path).path("etcd")


def test_what_is_written_about_a_plane_is_read_again(tmp_path: Path) -> None:
    record = PlaneRecord(
        name="dev",
        context="serving-stack-dev",
        inventory="small",
        namespaces=("llm", "other"),
        ports={"etcd": 1, "etcd-peer": 2, "kube-apiserver": 3},
        crds_digest="def",
    )
    record.write(tmp_path)
    assert PlaneRecord.read(tmp_path) == record
    plane = ControlPlane.at(tmp_path)
    assert plane
    assert plane.server == "https://127.0.0.1:3"
    assert plane.status().state == "stopped"
    with pytest.raises(LocalError, match="dev is not running"):
        plane.check()


def test_a_record_of_another_version_is_read_as_far_as_it_is_known(tmp_path: Path) -> None:
    fields = {"name": "dev", "context": "c", "inventory": "small", "crds_digest": "", "namespaces": ["llm"]}
    (tmp_path / "plane.json").write_text(json.dumps({**fields, "ports": {"kube-apiserver": 3}, "new": True}))
    plane = ControlPlane.at(tmp_path)
    assert plane
    assert plane.record.namespaces == ("llm",)


@pytest.mark.parametrize("content", ["{", "[]", '{"name": "dev"}', "null"])
def test_a_record_that_is_none_is_a_letter(content: str, tmp_path: Path) -> None:
    (tmp_path / "plane.json").write_text(content)
    with pytest.raises(LocalError, match="is not the record of a plane"):
        ControlPlane.at(tmp_path)


def test_a_folder_that_never_held_a_plane_has_none(tmp_path: Path) -> None:
    assert ControlPlane.at(tmp_path) is None


def test_waiting_ends_with_the_answer_or_with_a_letter() -> None:
    answers = iter([0, 0, 7])
    assert wait_until(lambda: next(answers), timeout=5, what="seven", interval=0) == 7
    with pytest.raises(DeadlineError, match="Waited 0 s for rain, in vain"):
        wait_until(lambda: False, timeout=0, what="rain")


def test_places_follow_the_environment_unless_it_is_relative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert cache_folder() == Path("/somewhere/cache/serving-stack")
    assert planes_folder() == Path.home() / ".local/state/serving-stack/planes"


def test_an_object_is_described_by_what_its_conditions_say() -> None:
    item = {
        "metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False", "message": "no room"}]},
    }
    assert describe(item) == "Pending, Ready=False (no room), terminating"
    assert not condition_is_true(item, "Ready")
    assert describe({"metadata": {"name": "x"}}) == "exists"


# -- commands ---------------------------------------------------------------------------------------------------------


def invoke(tmp_path: Path, *args: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*args], env={"SERVING_STACK_PLANES": str(tmp_path), "COLUMNS": "200"})
    return result.exit_code, result.output


def test_a_plane_that_does_not_exist_is_a_letter_and_status_1(tmp_path: Path) -> None:
    code, said = invoke(tmp_path, "down", "--name", "none")
    assert code == 1
    assert "There is no plane called none" in said
    assert "Traceback" not in said


def test_status_of_a_stopped_plane_says_so(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    fields = {"name": "dev", "context": "c", "inventory": "small", "crds_digest": ""}
    (tmp_path / "dev/plane.json").write_text(
        json.dumps({**fields, "namespaces": [], "ports": {"etcd": 1, "etcd-peer": 2, "kube-apiserver": 3}})
    )
    assert invoke(tmp_path, "status") == (0, "dev: stopped, inventory small, context c, https://127.0.0.1:3\n")
    code, _ = invoke(tmp_path, "status", "--name", "dev")
    assert code == 1, "a script that asks for one plane wants it running"


def test_inventories_are_listed_with_what_they_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("local.cli.console", Console(width=200))
    code, said = invoke(tmp_path, "inventories")
    assert code == 0
    assert "32 npu.rebellions.ai, 16 dra.net" in said


def test_an_unknown_inventory_is_refused_before_anything_is_built_or_started(tmp_path: Path) -> None:
    code, said = invoke(tmp_path, "up", "--inventory", "large")
    assert code == 1
    assert "there is no such inventory" in said
    assert list(tmp_path.iterdir()) == []
