"""How an EPP leaves, by what its release does when it is told to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.config.router import MAX_DRAIN_SECONDS
from stack.epp import EppDrain, EppRelease, Refusal, find_epp, known_epp_versions, plan_drain
from stack.scalars import MAX_INT32

if TYPE_CHECKING:
    from stack.epp import EppDistribution

SECONDS = st.integers(min_value=1, max_value=MAX_DRAIN_SECONDS)
GIVES_UP = 30


def release(distribution: EppDistribution, version: str) -> EppRelease:
    found = find_epp(distribution, version)
    assert not isinstance(found, Refusal)
    return found


RELEASES = [release(d, v) for d in ("llm-d", "gaie") for v in known_epp_versions(d)]


@pytest.mark.parametrize(
    ("distribution", "version", "seconds", "want"),
    [
        pytest.param(
            "llm-d",
            "v0.10.0",
            60,
            EppDrain(pre_stop=10, hand_over=10, restart=30, grace=115),
            id="with the flag SIGTERM comes soon and streams end after it",
        ),
        pytest.param(
            "llm-d",
            "v0.10.0",
            1,
            EppDrain(pre_stop=10, hand_over=10, restart=30, grace=56),
            id="however short the drain, the gateways are told first",
        ),
        pytest.param(
            "llm-d",
            "v0.9.0",
            60,
            EppDrain(pre_stop=60, hand_over=None, restart=30, grace=95),
            id="without the flag streams end before SIGTERM",
        ),
        pytest.param(
            "gaie", "v1.5.0", 600, EppDrain(pre_stop=600, hand_over=None, restart=30, grace=635), id="gaie likewise"
        ),
        pytest.param(
            "gaie",
            "v1.5.0",
            3,
            EppDrain(pre_stop=10, hand_over=None, restart=30, grace=45),
            id="and the gateways are told first there too",
        ),
    ],
)
def test_an_epp_leaves(distribution: EppDistribution, version: str, seconds: int, want: EppDrain) -> None:
    assert plan_drain(seconds, release(distribution, version)) == want


@given(SECONDS, st.sampled_from(RELEASES))
def test_a_stream_that_runs_at_the_end_has_its_seconds_and_the_epp_ends_by_itself(seconds: int, of: EppRelease) -> None:
    drain = plan_drain(seconds, of)
    if drain.hand_over is None:
        assert drain.pre_stop >= seconds, "before SIGTERM, after which they are cut"
        assert drain.grace > drain.pre_stop + GIVES_UP, "it gives up by itself before it is killed"
    else:
        assert drain.grace > drain.pre_stop + GIVES_UP + drain.hand_over + seconds, "however slowly the manager stops"


@given(SECONDS, st.sampled_from(RELEASES))
def test_kubernetes_takes_it(seconds: int, of: EppRelease) -> None:
    drain = plan_drain(seconds, of)
    assert 1 <= drain.pre_stop <= drain.grace, "a preStop that sleeps longer is refused"
    assert drain.restart >= 1
    assert drain.grace + 600 <= MAX_INT32, "a Deployment's deadline holds it"


@given(SECONDS, st.sampled_from(RELEASES))
def test_more_seconds_never_shorten_anything(seconds: int, of: EppRelease) -> None:
    less, more = plan_drain(seconds, of), plan_drain(seconds + 1, of)
    assert more.pre_stop >= less.pre_stop
    assert more.grace >= less.grace


@given(SECONDS, SECONDS, st.sampled_from(RELEASES))
def test_an_epp_that_hangs_is_restarted_as_fast_whatever_the_drain(one: int, other: int, of: EppRelease) -> None:
    assert plan_drain(one, of).restart == plan_drain(other, of).restart
