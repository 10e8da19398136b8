"""The sequences of changes that other tests make: drawn by seed, accepted, and together of every kind."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.builders import accepted
from tests.changes import CHANGES, IN_EVERY_RUN, INSTALLATION, SEEDS, draw_sequence


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sequence_is_always_the_same_and_always_accepted(seed: int) -> None:
    steps = draw_sequence(seed)
    assert steps == draw_sequence(seed)
    assert steps[0].change == INSTALLATION
    assert 3 <= len(steps[1:]) <= 4
    for before, after in pairwise(steps):
        accepted(**after.situation.blocks())
        assert after.situation.blocks() != before.situation.blocks(), after.change


def test_the_few_of_every_run_make_every_change_and_install_a_stack_again() -> None:
    steps = [step for seed in IN_EVERY_RUN for step in draw_sequence(seed)]
    assert {step.change for step in steps} == {*CHANGES, INSTALLATION}
    assert any(step.after_destroy for step in steps)
    assert set(IN_EVERY_RUN) <= set(SEEDS)
    assert len(IN_EVERY_RUN) == 5
    assert len(SEEDS) == 20


def test_a_claim_never_shrinks() -> None:
    for seed in SEEDS:
        for before, after in pairwise(draw_sequence(seed)):
            assert after.situation.cache.gibibytes >= before.situation.cache.gibibytes
            assert after.situation.store.gibibytes >= before.situation.store.gibibytes
