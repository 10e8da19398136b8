"""What becomes of a finding: what the guard is told to do, and whether Pods start that it is about."""

from __future__ import annotations

import pytest

from stack.config.guards import GUARD_NAMES, Force, GuardsConfig
from stack.guards import GuardFinding, GuardsError, sort_findings
from stack.guards.finding import Idle, refusal, warning
from tests.unit.guards.scene import claim, scene

LETTER = refusal("volumes", "storage.model.size", "1Gi", "why", fix="Do it")
DECODE = frozenset({"rel-decode"})


def sorted_as(force: Force, finding: GuardFinding, *, starting: frozenset[str] | None = None) -> str:
    """What becomes of it."""
    refusals, warnings = sort_findings(GuardsConfig(volumes=force), [finding], starting=starting)
    assert len(refusals) + len(warnings) <= 1
    return "refused" if refusals else "warned" if warnings else "silent"


@pytest.mark.parametrize(
    ("force", "is_refusal", "want"),
    [
        ("enforce", True, "refused"),
        ("warn", True, "warned"),
        ("off", True, "silent"),
        ("enforce", False, "warned"),
        ("warn", False, "warned"),
        ("off", False, "silent"),
    ],
)
def test_the_configuration_decides(force: Force, is_refusal: bool, want: str) -> None:
    finding = LETTER if is_refusal else warning("volumes", "storage.model.size", "1Gi", "why", fix="Do it")
    assert sorted_as(force, finding) == want


@pytest.mark.parametrize(
    ("idle", "starting", "want"),
    [
        ("refuse", frozenset[str](), "refused"),
        ("warn", frozenset[str](), "warned"),
        ("omit", frozenset[str](), "silent"),
        ("warn", frozenset({"rel-prefill"}), "warned"),
        ("warn", DECODE, "refused"),
        ("omit", DECODE, "refused"),
        ("omit", None, "refused"),
    ],
)
def test_what_is_about_pods_matters_when_they_start(idle: Idle, starting: frozenset[str] | None, want: str) -> None:
    finding = refusal("volumes", "k", "v", "why", fix="Do it", workloads=DECODE, idle=idle)
    assert sorted_as("enforce", finding, starting=starting) == want


def test_what_is_about_no_pod_is_refused_whatever_starts() -> None:
    finding = refusal("volumes", "k", "v", "why", fix="Do it", idle="omit")
    assert sorted_as("enforce", finding, starting=frozenset()) == "refused"


def test_a_refusal_says_which_guard_lets_it_pass_and_a_warning_does_not() -> None:
    refusals, _ = sort_findings(GuardsConfig(), [LETTER])
    assert [str(each) for each in refusals] == [
        "storage.model.size = 1Gi: why. Do it. `guards.volumes: warn` lets it pass."
    ]
    _, warnings = sort_findings(GuardsConfig(volumes="warn"), [LETTER])
    assert [str(each) for each in warnings] == ["storage.model.size = 1Gi: why. Do it."]


def test_refusals_end_in_one_letter_sorted_by_key() -> None:
    other = refusal("names", "Gateway rel", "ns/rel", "why", fix="Is it yours?")
    refusals, _ = sort_findings(GuardsConfig(), [LETTER, other, LETTER])
    assert str(GuardsError(refusals)).splitlines() == [
        "Refused before anything was touched:",
        "  Gateway rel = ns/rel: why. Is it yours? `guards.names: warn` lets it pass.",
        "  storage.model.size = 1Gi: why. Do it. `guards.volumes: warn` lets it pass.",
    ]


def test_every_guard_enforces_by_default() -> None:
    assert {name: GuardsConfig().of(name) for name in GUARD_NAMES} == dict.fromkeys(GUARD_NAMES, "enforce")


def test_a_guard_that_is_off_finds_nothing() -> None:
    stray = scene(guards={"volumes": "off"})
    assert stray.but(volume_claims={"rel-compile-cache-decode": claim("rel-compile-cache-decode")}).findings() == ()
