"""Asking an API server that is not there, refuses, or answers in pages; a plain HTTP server stands in for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cluster.connect import Cluster, ClusterError
from cluster.facts import read_facts
from tests.builders import merged
from tests.stand_in import Sent, kubeconfig

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stand_in import StandIn


def page(name: str, following: str | None = None) -> tuple[int, dict[str, Any]]:
    meta = {} if following is None else {"continue": following}
    return 200, {"metadata": meta, "items": [{"metadata": {"name": name}}]}


def test_a_list_is_read_to_its_last_page(api: StandIn) -> None:
    api.tell("/api/v1/configmaps", page("cm-0", "second"), page("cm-1", "third"), page("cm-2"))
    with Cluster("test") as cluster:
        listed = cluster.list("/api/v1/configmaps", labelSelector="a=b")
    assert [item["metadata"]["name"] for item in listed] == ["cm-0", "cm-1", "cm-2"]
    assert [query.get("continue") for _, query in api.asked] == [None, "second", "third"]
    assert {query["labelSelector"] for _, query in api.asked} == {"a=b"}


def test_what_is_not_there_is_told_from_what_may_not_be_read(api: StandIn) -> None:
    api.tell("/forbidden", (403, {"kind": "Status"}))
    with Cluster("test") as cluster:
        assert cluster.find("/absent") is None
        with pytest.raises(ClusterError, match="403") as refused:
            cluster.find("/forbidden")
        assert refused.value.status == 403


@pytest.mark.parametrize("answer", ["<html>log in first</html>", "[" * 100_000], ids=["a page", "too deep to read"])
def test_an_answer_that_is_no_json_is_no_good_answer(api: StandIn, answer: str) -> None:
    api.tell("/version", (200, answer))
    with Cluster("test") as cluster, pytest.raises(ClusterError, match="no JSON"):
        cluster.get("/version")


# --- writes that are tried without effect -----------------------------------------------------------------------------

TRIED = "/apis/apps/v1/namespaces/ns/deployments/rel-decode"


def try_to_apply(manifest: dict[str, Any] | None = None) -> tuple[dict[str, Any], tuple[str, ...]]:
    with Cluster("test") as cluster:
        return cluster.try_to_apply(TRIED, manifest or {"kind": "Deployment"}, field_manager="serving-stack")


def test_an_object_is_tried_as_it_would_be_applied_and_without_effect(api: StandIn) -> None:
    api.tell(TRIED, (200, {"kind": "Deployment"}))
    manifest = {"kind": "Deployment", "metadata": {"name": "rel-decode", "labels": {"with": "ümlaut: and 'quotes'"}}}
    try_to_apply(manifest)
    assert api.sent == [Sent(method="PATCH", path=TRIED, content_type="application/apply-patch+yaml", body=manifest)]
    assert api.query_of(TRIED) == {"dryRun": "All", "force": "true", "fieldManager": "serving-stack"}
    assert api.times_asked(TRIED) == 1


def test_what_would_be_stored_is_answered(api: StandIn) -> None:
    completed = {"kind": "Deployment", "spec": {"revisionHistoryLimit": 10}}
    api.tell(TRIED, (200, completed))
    assert try_to_apply() == (completed, ())


def test_an_answer_that_is_no_object_says_nothing(api: StandIn) -> None:
    api.tell(TRIED, (200, "<html>log in first</html>"))
    with pytest.raises(ClusterError, match="no JSON") as caught:
        try_to_apply()
    assert caught.value.status is None, "it was not looked at"


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        pytest.param([], (), id="no header"),
        pytest.param(['299 - "metadata.name: is long"'], ("metadata.name: is long",), id="one"),
        pytest.param(['299 - "one"', '299 - "two"'], ("one", "two"), id="two headers, as Kubernetes sends them"),
        pytest.param(['299 - "one", 299 - "two"'], ("one", "two"), id="two in one header, as a proxy may join them"),
        pytest.param(['299 - "a, b and 299 - c", 299 - "d"'], ("a, b and 299 - c", "d"), id="commas in the text"),
        pytest.param(
            ['299 kube/1.33 "one" "Sun, 02 Aug 2026 10:00:00 GMT", 299 - "two"'], ("one", "two"), id="with date"
        ),
        pytest.param(['299 - ""'], ("",), id="without words"),
        pytest.param(['110 - "Response is Stale"', '299 - "one"'], ("one",), id="of a cache in between"),
        pytest.param(["299"], (), id="no text"),
        pytest.param(['299 - "half'], (), id="half a text"),
    ],
)
def test_an_object_that_is_taken_may_be_warned_of(api: StandIn, headers: list[str], want: tuple[str, ...]) -> None:
    api.tell(TRIED, (200, {"kind": "Deployment"}))
    api.tell_headers(TRIED, *(("Warning", header) for header in headers))
    assert try_to_apply()[1] == want


@pytest.mark.parametrize(
    ("header", "want"),
    [
        pytest.param(
            r'299 - "would violate PodSecurity \"restricted:latest\": seccompProfile"',
            'would violate PodSecurity "restricted:latest": seccompProfile',
            id="quotation marks",
        ),
        pytest.param(r'299 - "a\\b \"c\\\""', r'a\b "c\"', id="backslashes, also before a quotation mark"),
    ],
)
def test_a_warning_is_told_without_the_backslashes_that_quote_its_characters(
    api: StandIn, header: str, want: str
) -> None:
    """Which Kubernetes sets before quotation marks and backslashes: k8s.io/apimachinery, `NewWarningHeader`."""
    api.tell(TRIED, (200, {"kind": "Deployment"}))
    api.tell_headers(TRIED, ("Warning", header), ("Warning", '299 - "another"'))
    assert try_to_apply()[1] == (want, "another")


@pytest.mark.parametrize(
    ("status", "answer", "want"),
    [
        pytest.param(422, {"kind": "Status", "message": "spec: Required value"}, "spec: Required value", id="in words"),
        pytest.param(403, {"kind": "Status"}, "403 Forbidden", id="without words"),
        pytest.param(502, "<html>try later</html>", "502 Bad Gateway", id="a page of something in between"),
        pytest.param(500, ["odd"], "500 Internal Server Error", id="another shape"),
        pytest.param(422, {"message": ""}, "422 Unprocessable Entity", id="no word"),
    ],
)
def test_an_object_that_is_not_taken_is_told_of(api: StandIn, status: int, answer: Any, want: str) -> None:
    api.tell(TRIED, (status, answer))
    with pytest.raises(ClusterError) as caught:
        try_to_apply()
    assert (str(caught.value), caught.value.status) == (want, status)
    assert api.times_asked(TRIED) == 1, "it is not tried twice"


def test_an_object_that_nobody_looks_at_is_told_of_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "http://127.0.0.1:1")))
    with pytest.raises(ClusterError, match="refused") as caught:
        try_to_apply()
    assert caught.value.status is None


# --- contexts and kubeconfigs -----------------------------------------------------------------------------------------


def test_an_unknown_context_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="elsewhere"):
        Cluster("elsewhere", kubeconfig=kubeconfig(tmp_path, "http://127.0.0.1:1"))


@pytest.mark.parametrize(("context", "why"), [("test", "refused"), ("elsewhere", "Invalid kube-config")])
def test_a_cluster_that_cannot_be_asked_makes_every_fact_unknown(
    context: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "http://127.0.0.1:1")))
    facts = read_facts(context, namespace="ns", release="rel")
    assert (facts.claims, facts.anchor, facts.anchor_is_known, facts.workloads) == (None, None, False, None)
    assert facts.live_topologies is None
    [reason] = facts.unknown
    assert context in reason
    assert why in reason


@pytest.mark.parametrize("written", ["one", "several", "none"])
def test_where_the_kubeconfig_is_is_not_told(written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = kubeconfig(tmp_path, "http://127.0.0.1:1")
    (tmp_path / "empty").touch()
    monkeypatch.setenv(
        "KUBECONFIG", {"one": f"{made}", "several": f"{tmp_path}/empty:{made}", "none": f"{tmp_path}/none"}[written]
    )
    with pytest.raises(ClusterError, match="kubeconfig context elsewhere: Invalid kube-config") as caught:
        Cluster("elsewhere")
    assert str(tmp_path) not in str(caught.value)


def test_a_kubeconfig_that_may_not_be_read_is_told_without_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="could not be read: Is a directory") as caught:
        Cluster("test", kubeconfig=tmp_path)
    assert str(tmp_path) not in str(caught.value)


def test_a_file_that_the_kubeconfig_names_is_told_by_its_last_name(tmp_path: Path) -> None:
    made = kubeconfig(tmp_path, "https://127.0.0.1:1")
    written = yaml.safe_load(made.read_text())
    written["clusters"][0]["cluster"]["certificate-authority"] = "/where/i/live/ca.crt"
    made.write_text(yaml.safe_dump(written))
    with pytest.raises(ClusterError, match=r"\.\.\./ca\.crt") as caught:
        Cluster("test", kubeconfig=made)
    assert "/where" not in str(caught.value)


# --- kubeconfigs that somebody is still writing -----------------------------------------------------------------------

NOTHING: dict[str, Any] = {}
SECRET = "hush-hush"  # noqa: S105  # nobody's
WHOLE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": SECRET}}],
    "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", "is empty", id="an empty file"),
        pytest.param("apiVersion", "malformed", id="a word"),
        pytest.param("- kind: Config\n", "malformed", id="a list"),
        pytest.param(f"kind: Config\nusers:\n- user: {{token: {SECRET}\n", "no YAML", id="a bracket that stays open"),
        pytest.param(f"kind: Config\nusers:\n\t- {SECRET}\n", r"no YAML \(line 3\)", id="a tab"),
        pytest.param({"contexts": None}, "Expected", id="no contexts"),
        pytest.param({"contexts": ["test"]}, "Expected", id="a context that is only a name"),
        pytest.param({"contexts": [{"name": "test", "context": NOTHING}]}, "Expected", id="a context of nothing"),
        pytest.param(
            {"clusters": [{"name": "c", "cluster": NOTHING}]}, "names no server", id="a cluster without a server"
        ),
        pytest.param({"clusters": [{"name": "c", "cluster": {"server": 7}}]}, "malformed", id="a number for a server"),
        pytest.param({"clusters": {"c": NOTHING}}, "Expected", id="a map of clusters"),
        pytest.param({"users": [{"name": "u", "token": SECRET}]}, "Expected", id="a token in the wrong place"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_told_in_one_line_without_its_content(
    text: str | dict[str, Any], why: str, tmp_path: Path
) -> None:
    path = tmp_path / "half-written"
    path.write_text(text if isinstance(text, str) else yaml.safe_dump(merged(WHOLE, text)))
    with pytest.raises(ClusterError, match=why) as caught:
        Cluster("test", kubeconfig=path)
    assert str(caught.value).startswith("kubeconfig context test: ")
    assert len(str(caught.value).splitlines()) == 1
    assert SECRET not in str(caught.value)


def test_a_kubeconfig_in_another_encoding_is_malformed(tmp_path: Path) -> None:
    path = tmp_path / "utf-16"
    path.write_bytes(yaml.safe_dump(WHOLE).encode("utf-16"))
    with pytest.raises(ClusterError, match="malformed"):
        Cluster("test", kubeconfig=path)


def test_a_cluster_on_this_machine_is_asked_past_any_proxy(api: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    api.tell("/version", (200, {"major": "1"}))
    with Cluster("test") as cluster:
        assert cluster.get("/version") == {"major": "1"}
