from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from stack import scalars
from stack.scalars import amount, milliseconds


def takes(kind: Any, value: object) -> bool:
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("Release", ["a", "chat", "a-1", "a" * 32], ["", "1a", "-a", "a-", "A", "a.b", "a_b", "a" * 33, "é"]),
        ("DnsLabel", ["1", "a-b", "a" * 63], ["", "a.b", "a" * 64, "a\n"]),
        ("ServiceName", ["epp", "a" * 63], ["1epp", "epp.llm", "a" * 64]),
        ("DnsSubdomain", ["a.b", "1.2", "a" * 253], ["a..b", ".a", "a.", "a_b", "a" * 254]),
        ("LabelKey", ["a", "A_b.c", "x.example/name", "a" * 63], ["", "/a", "a/", "a b", "X.Y/a", "a" * 64]),
        ("LabelValue", ["", "a", "A_b.c-1", "a" * 63], ["-a", "a/b", "a" * 64]),
        ("EnvName", ["A", "_a1"], ["", "1A", "A-B", "A.B", "A="]),
        ("SecretDataKey", ["HF_TOKEN", "tls.crt", "-"], ["", ".", "..", "a/b"]),
        ("FileName", ["a.yaml", "_a"], ["", ".", "..", "..a", "a/b.yaml"]),
        (
            "ResourceName",
            ["cpu", "memory", "hugepages-2Mi", "rebellions.ai/npu"],
            ["npu", "hugepages-2M", "CPU", "a//b"],
        ),
        ("ExtendedResourceName", ["rebellions.ai/npu"], ["npu", "kubernetes.io/npu", "requests.x.io/npu"]),
        (
            "AttributeName",
            ["resource.kubernetes.io/numaNode", "dra.net/rdma"],
            ["numaNode", "a.b/1x", "A.b/x", "a.b/" + "x" * 33],
        ),
        (
            "ImageTag",
            ["v1", "0120", "1.10", "_x", "a" * 128],
            ["", "-a", ".a", "a/b", "a" * 129, "2026-08-01T00:00:00Z"],
        ),
        ("ImageDigest", ["sha256:" + "0" * 64], ["sha256:" + "0" * 63, "sha256:" + "G" * 64, "sha512:" + "0" * 64]),
        (
            "ImageRepository",
            ["vllm", "team/vllm", "ghcr.io/llm-d/x", "localhost:5000/x", "Registry.Example/x", "a__b/c-d.e"],
            ["", "a:v1", "ghcr.io/x:v1", "ghcr.io/x@sha256:1", "https://a/b", "Team/vllm", "a//b"],
        ),
        ("Port", [1, 65535], [0, 65536, True, "80", 80.0]),
        ("Count", [0, 2**31 - 1], [-1, 2**31, True, "1"]),
        ("Positive", [1], [0]),
        ("IntOrPercent", [0, 1, "0%", "25%", "150%"], [-1, True, 1.5, "1", "x%", "1.5%", "-1%", 2**31]),
        (
            "Quantity",
            ["0", "500m", "8Gi", "1e3", "1E", ".5", "2.", 4, 0.5],
            ["", "8GB", "-1", "Gi", "1 Gi", "1ee3", True, None, "1ki"],
        ),
        ("Size", ["1", "10Gi"], ["0", "0Gi", "-1Gi"]),
        (
            "GatewayDuration",
            ["300s", "1h30m", "500ms", "0s"],
            ["", "300", "1d", "1.5h", "1s2s3s4s5s", "-1s", "100000s"],
        ),
        ("ScrapeInterval", ["10s", "1m30s", "500ms"], ["", "0s", "10", "1.5s", "s"]),
        ("MountPath", ["/a", "/a/b.c"], ["", "a", "/", "/a/", "/a//b", "/a/../b", "/a:b", "//"]),
        ("SubPath", ["a", "a/b"], ["", "/a", "a/", "../a", "a/./b"]),
        ("HttpPath", ["/", "/v1/models?x=1"], ["", "v1", "/a b"]),
        ("Hostname", ["a.b", "*.a.b", "a"], ["1.2.3.4", "*", "A.b", "a.b:80", "::1", "*.*.a", "a*.b"]),
        (
            "FlagName",
            ["block-size", "compilation-config.level", "kv-transfer-config.kv_role"],
            ["--a", "a_b", "a=1", "A", "a b", ""],
        ),
        ("ExtraFlag", ["--a", "--a=1", "--a-b=c d", "-tp=2", "--a_b"], ["a", "--a b", "--", "--=1", "-1", "-tp 2"]),
        ("SemanticVersion", ["4.25.0", "4.25.0-rc.1"], ["v4.25.0", "4.25", "4.25.0.1"]),
        ("NonEmpty", ["a", " a "], ["", "  "]),
    ],
)
def test_takes_what_a_cluster_takes_and_nothing_else(kind: str, good: list[object], bad: list[object]) -> None:
    tested = getattr(scalars, kind)
    assert [value for value in good if not takes(tested, value)] == []
    assert [value for value in bad if takes(tested, value)] == []


@pytest.mark.parametrize(
    ("quantity", "want"),
    [
        ("0", "0"),
        ("500m", "0.5"),
        ("1", "1"),
        ("1k", "1000"),
        ("1Ki", "1024"),
        ("8Gi", "8589934592"),
        ("1.5Gi", "1610612736"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("1E", "1000000000000000000"),
        ("1e-3", "0.001"),
        ("100n", "0.0000001"),
        ("2.", "2"),
        (".5", "0.5"),
    ],
)
def test_a_quantity_is_worth_what_kubernetes_takes_it_for(quantity: str, want: str) -> None:
    assert amount(quantity) == Decimal(want)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(["m", "", "k", "Ki", "M", "Mi", "G", "Gi"]))
def test_quantities_of_one_unit_are_ordered_as_their_numbers(left: int, right: int, unit: str) -> None:
    assert (amount(f"{left}{unit}") < amount(f"{right}{unit}")) == (left < right)


@given(st.integers(0, 10**6))
def test_the_same_amount_in_another_unit_is_equal(number: int) -> None:
    assert amount(f"{number}Gi") == amount(f"{number * 1024}Mi") == amount(str(number * 2**30))
    assert amount(f"{number}") == amount(f"{number * 1000}m")


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    assert takes(scalars.Quantity, text) in {True, False}


@pytest.mark.parametrize(("text", "want"), [("300s", 300_000), ("1h30m", 5_400_000), ("1s500ms", 1500), ("0s", 0)])
def test_a_duration_has_its_length(text: str, want: int) -> None:
    assert milliseconds(text) == want
