"""Sequences of changes on the real engine: every claim ever made is the same to the end, and nothing is left to do.

The changes are drawn by seed (`tests/changes.py`). A few sequences, which make every kind of change between them, run
with `make test`, all with `make soak`. What always holds is stated in `tests/components/test_volume_safety.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.changes import IN_EVERY_RUN, SEEDS, draw_sequence

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.changes import Step
    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]


@pytest.mark.parametrize(
    "seed", [seed if seed in IN_EVERY_RUN else pytest.param(seed, marks=pytest.mark.soak) for seed in SEEDS]
)
def test_no_claim_is_deleted_or_replaced_in_sequence(bench_of: Callable[[str], Bench], seed: int) -> None:
    bench = bench_of("small")
    kept: dict[str, str] = {}
    for step in draw_sequence(seed):
        if step.after_destroy:
            bench.destroy()
            assert claims_that_stay(bench, "the stack is destroyed").items() >= kept.items()
        bench.write(**step.situation.blocks())
        add_claims_of_the_operator(bench, step)
        bench.up()
        found = claims_that_stay(bench, step.change)
        assert found.items() >= kept.items(), f"after {step.change}"
        assert found.keys() >= step.situation.claims_to_make
        kept = found
    assert bench.preview() == {}
    bench.destroy()
    assert claims_that_stay(bench, "the stack is destroyed") == kept


def add_claims_of_the_operator(bench: Bench, step: Step) -> None:
    """Claims that the stack file names and the stack does not make, where they are not there yet."""
    for name in set(step.situation.claims_of_the_operator) - bench.volume_claims().keys():
        bench.add_model_store(name)


def claims_that_stay(bench: Bench, after: str) -> dict[str, str]:
    """UIDs of all claims by name, none of which may be on its way out."""
    claims = bench.volume_claims()
    leaving = [name for name, claim in claims.items() if "deletionTimestamp" in claim["metadata"]]
    assert leaving == [], f"after {after}"
    return {name: claim["metadata"]["uid"] for name, claim in claims.items()}
