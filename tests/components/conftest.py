"""Runs programs against a recorder in place of an engine, and hands back what they asked for, with which options.

The recorder answers as a cluster would: with the inputs and, except in a preview, a uid. It runs no diff, no deletion,
no hook and no inheritance of options; those are the engine's, and the business of `tests/e2e`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from tests.components.programs import PLANS, under_a_provider
from tests.components.recorder import Recorder, Stage, keep_pulumi_to_itself

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from stack.planned import StackPlan


@pytest.fixture
def declare() -> Generator[Stage]:
    """Run a program; what it registered comes back once every registration has landed."""
    with keep_pulumi_to_itself() as stage:
        yield stage


@pytest.fixture(scope="session")
def recording() -> Generator[Callable[[str, bool], Recorder]]:
    """What the whole stack of a plan in `PLANS` registers in an update or a preview, under a provider of its own."""
    with keep_pulumi_to_itself() as stage:

        @functools.cache
        def record(situation: str, preview: bool = False) -> Recorder:  # noqa: FBT002  # a cache key
            return stage(under_a_provider(PLANS[situation]), preview=preview)

        yield record


@pytest.fixture(params=PLANS, ids=str)
def situation(request: pytest.FixtureRequest) -> str:
    """Each of `PLANS`."""
    return request.param


@pytest.fixture
def planned(situation: str) -> StackPlan:
    """Its plan."""
    return PLANS[situation]


@pytest.fixture
def seen(situation: str, recording: Callable[[str, bool], Recorder]) -> Recorder:
    """What an update registers of it."""
    return recording(situation, False)
