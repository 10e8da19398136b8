"""The client for Prometheus, against a stand-in: what it asks, what it understands, and why it cannot."""

from __future__ import annotations

import json
import math
import socket
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli import prometheus
from cli.prometheus import Prometheus, numbers, quoted
from stack.errors import UnusableError
from tests.prometheus_stand_in import PrometheusStandIn, serve

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

TOKEN = "eyJhbGciOi.eyJzdWIiOiJ4.abcdef"  # noqa: S105  # of nobody


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
JSON: st.SearchStrategy[Any] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
ANSWERS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {
        "status": st.just("success"),
        "data": st.fixed_dictionaries(
            {
                "resultType": st.sampled_from(["vector", "matrix", "scalar"]),
                "result": JSON
                | st.lists(st.fixed_dictionaries({"metric": JSON, "value": JSON, "values": JSON}), max_size=2),
            }
        ),
    },
    optional={"warnings": JSON, "isPartial": JSON},
)


@pytest.fixture
def server() -> Generator[PrometheusStandIn]:
    with serve() as stand_in:
        yield stand_in


def refusal(asked: Prometheus, query: str = "up") -> str:
    with pytest.raises(UnusableError) as caught:
        asked.instant(query)
    assert caught.value.problem.fix
    return str(caught.value)


def answers(server: PrometheusStandIn, status: int, body: object, **headers: str) -> Prometheus:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    server.raw = (status, {name.replace("_", "-"): value for name, value in headers.items()}, data)
    return Prometheus(server.url)


def test_an_instant_query_gives_a_value_for_each_series(server: PrometheusStandIn) -> None:
    server.vector("up", ({"le": "1"}, 3), ({"le": "+Inf"}, "NaN"))
    one, other = Prometheus(server.url).instant("up", at=1_700_000_000)
    assert (one.labels, one.values) == ({"le": "1"}, (3.0,))
    assert math.isnan(other.values[0])
    assert numbers(other) == {}
    [asked] = server.asked
    assert (asked.path, asked.form) == ("/api/v1/query", {"query": "up", "time": "1700000000.000"})


def test_a_number_alone_is_a_series_without_labels(server: PrometheusStandIn) -> None:
    server.data("1", {"resultType": "scalar", "result": [1_700_000_000, "1"]})
    [series] = Prometheus(server.url).instant("1")
    assert (series.labels, series.values) == ({}, (1.0,))


def test_a_long_range_is_asked_for_in_parts_and_joined(
    server: PrometheusStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "MOST_POINTS", 4)
    server.matrix("up", ({"pod": "b"}, {t * 60.0: t for t in range(10)}), ({"pod": "a"}, {540.0: 1}))
    a, b = Prometheus(server.url).range("up", start=0, end=540, step=60)
    assert (a.labels, a.times) == ({"pod": "a"}, (540.0,))
    assert b.times == tuple(t * 60.0 for t in range(10))
    assert [(each.form["start"], each.form["end"]) for each in server.asked] == [
        ("0.000", "180.000"),
        ("240.000", "420.000"),
        ("480.000", "540.000"),
    ]


def test_a_path_before_the_api_is_kept_and_a_token_goes_along(server: PrometheusStandIn) -> None:
    Prometheus(f"{server.url}/select/0/prometheus/", token=TOKEN).instant("up")
    [asked] = server.asked
    assert asked.path == "/select/0/prometheus/api/v1/query"
    assert asked.headers["Authorization"] == f"Bearer {TOKEN}"


def test_name_and_password_of_the_address_go_along_and_are_never_shown(server: PrometheusStandIn) -> None:
    asked = Prometheus(server.url.replace("://", "://me:secr%40t@"))
    asked.instant("up")
    assert server.asked[0].headers["Authorization"] == "Basic bWU6c2VjckB0"
    server.raw = (401, {}, b"")
    assert "secr" not in refusal(asked)


def test_warnings_are_kept_once_each(server: PrometheusStandIn) -> None:
    server.vector("up", ({}, 1), warnings=["store 2 \n did not answer"], isPartial=True)
    asked = Prometheus(server.url)
    asked.instant("up")
    asked.instant("up")
    assert asked.warnings == ["some of its stores did not answer, so the answer is partial", "store 2 did not answer"]


@pytest.mark.parametrize(
    "url",
    [
        *("", "prometheus:9090", "ftp://prometheus", "http://", "http://host:port", "http://host/graph?g0.expr=up"),
        *("http://[::1", "http://host/ä", "http://host/a b", "http://host/\udcff"),
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UnusableError, match="is no address of a Prometheus"):
        Prometheus(url)


def test_certificates_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("none")
    for file in (tmp_path / "ca", tmp_path / "missing"):
        with pytest.raises(UnusableError, match="holds no certificates"):
            Prometheus("https://host", ca_file=file)


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening, so that nobody else can be there
        assert "does not answer (Connection refused)" in refusal(
            Prometheus(f"http://127.0.0.1:{taken.getsockname()[1]}")
        )


def test_a_name_that_is_none() -> None:
    for host in ("nothing.invalid", "a..b", "a" * 64, "ä" * 64, "ho st"):
        assert "does not answer" in refusal(Prometheus(f"http://{host}:9090"))


def test_a_server_that_hangs_is_not_waited_for_without_end(server: PrometheusStandIn) -> None:
    server.hangs = True
    assert "did not answer within 0.2 s" in refusal(Prometheus(server.url, timeout=0.2))


def test_a_server_that_speaks_no_tls(server: PrometheusStandIn) -> None:
    assert "could not be trusted" in refusal(Prometheus(server.url.replace("http:", "https:")))


@pytest.mark.parametrize(
    ("status", "body", "want"),
    [
        (401, b"", "wants a token (status 401)"),
        (403, b"<html>", "wants a token (status 403)"),
        (404, b"404 page not found", "has nothing at /api/v1 there"),
        (422, {"status": "error", "error": "query processing would load too many samples"}, "too many samples"),
        (503, {"status": "error", "error": "query timed out"}, 'status 503): "query timed out"'),
        (500, b"\xff\xfe", "could not answer (status 500)"),
        (200, b"<html>Sign in</html>", "something else than JSON"),
        (200, b"[]", "something else than JSON"),
        (200, {"status": "error", "error": "bad\nthing"}, '"bad thing"'),
        (200, {"status": "success"}, "could not answer"),
        (200, {"status": "success", "data": {"resultType": "matrix", "result": []}}, "else than a vector"),
        (200, {"status": "success", "data": {"resultType": "vector", "result": [1]}}, "a series that is no map"),
        (200, {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"a": "b"}}]}}, "no pairs"),
        (200, {"status": "success", "data": {"resultType": "vector", "result": [{"value": [1, "2"]}]}}, "no pairs"),
    ],
)
def test_an_answer_that_is_none_is_told_in_a_letter(
    server: PrometheusStandIn, status: int, body: object, want: str
) -> None:
    letter = refusal(answers(server, status, body))
    assert letter.startswith(f"--prometheus = {server.url}: ")
    assert want in letter


def test_an_answer_that_breaks_off(server: PrometheusStandIn) -> None:
    assert "broke off" in refusal(answers(server, 200, b'{"status":', Content_Length="1000"))


def test_an_answer_without_end_is_not_read_to_it(server: PrometheusStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MOST_BYTES", 100)
    assert "answered with more than" in refusal(answers(server, 200, b" " * 101))


def test_a_redirect_is_not_followed_so_that_no_token_goes_elsewhere(server: PrometheusStandIn) -> None:
    server.raw = (302, {"Location": "https://me:pw@login.example/?next=1"}, b"")
    letter = refusal(Prometheus(server.url, token=TOKEN))
    assert "redirects to https://login.example (status 302)" in letter
    assert TOKEN not in letter
    assert len(server.asked) == 1


def test_a_redirect_to_what_is_no_address_is_one_too(server: PrometheusStandIn) -> None:
    server.raw = (302, {"Location": "http://[::1"}, b"")
    assert "redirects (status 302)" in refusal(Prometheus(server.url))


@pytest.mark.parametrize("labels", [{}, {"le": "ten"}, {"le": "nan"}])
def test_a_bucket_without_an_edge_is_refused(server: PrometheusStandIn, labels: dict[str, str]) -> None:
    server.vector("up", ({"le": "5"}, 1), (labels, 2))
    with pytest.raises(UnusableError, match="has a bucket without a number as its edge"):
        Prometheus(server.url).buckets("up")


def test_an_edge_that_is_written_in_two_ways_is_one(server: PrometheusStandIn) -> None:
    server.vector("up", ({"le": "5"}, 1), ({"le": "5.0"}, 2), ({"le": "+Inf"}, 4))
    assert Prometheus(server.url).buckets("up") == {5.0: 3.0, math.inf: 4.0}


def test_a_token_that_is_not_accepted_is_not_shown(server: PrometheusStandIn) -> None:
    server.raw = (403, {}, json.dumps({"error": f"bad token {TOKEN}"}).encode())
    letter = refusal(Prometheus(server.url, token=TOKEN))
    assert "does not accept the token" in letter
    assert TOKEN not in letter


def test_what_a_server_says_is_shortened_and_holds_no_secret(server: PrometheusStandIn) -> None:
    assert len(refusal(answers(server, 400, {"error": "x" * 5000}))) < 700
    assert "hf_" not in refusal(answers(server, 400, {"error": "no hf_abcdefghijklmnopqrstuvwxyz here"}))


@pytest.mark.parametrize(("text", "want"), [("a", '"a"'), ('a"b', '"a\\"b"'), ("rel\\.x", '"rel\\\\.x"')])
def test_a_text_is_quoted_as_promql_wants_it(text: str, want: str) -> None:
    assert quoted(text) == want


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANSWERS | JSON)
def test_whatever_is_answered_it_is_understood_or_refused_in_a_letter(server: PrometheusStandIn, body: object) -> None:
    server.raw = (200, {}, json.dumps(body).encode())
    asked = Prometheus(server.url)
    for look in (lambda: asked.instant("up"), lambda: asked.range("up", start=0, end=60, step=60)):
        try:
            assert all(len(series.times) == len(series.values) for series in look())
        except UnusableError as error:
            assert error.problem.fix  # noqa: PT017  # either is right
