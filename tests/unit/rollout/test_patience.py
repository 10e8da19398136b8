"""For how long which Pod has been stuck: looks with a time each, and what they add up to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.rollout.patience import Case, Patience
from stack.rollout.pods import Kind, Trouble
from stack.rollout.progress import RollOut
from tests import live
from tests.live import deployment, pod, running, waiting, without_node

Pods = list[dict[str, Any]]
PLAN = live.roll_out(timeout_seconds=10_000, patience_seconds=30)
CRASHES = waiting("a", "CrashLoopBackOff", restartCount=2)
NO_IMAGE = waiting("a", "ImagePullBackOff", "denied")
NO_SECRET = waiting("a", "CreateContainerConfigError", "not found")
NO_NODE = without_node("a")
IS_MADE = waiting("a", "ContainerCreating")
RUNS = running("a")
READY = pod("a")


def state(pods: Pods, *, newest: str | None = "new", **over: Any) -> RollOut:
    return RollOut.read(PLAN, deployment(**over), pods, newest=newest)


def looks(*timed: tuple[float, Pods], patience: int = 30, excused_until: float = -1) -> tuple[Case, ...]:
    """The cases at the last of several looks; Pod `a` is excused at those up to a time."""
    kept = Patience(patience)
    cases: tuple[Case, ...] = ()
    for now, pods in timed:
        cases = kept.look(now, state(pods), {"a": "old"} if now <= excused_until else {})
    return cases


def told(cases: tuple[Case, ...]) -> list[tuple[str | None, str, float]]:
    return [(case.pod, case.trouble.reason, case.seconds) for case in cases]


# --- one Pod ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "timed", "want_seconds"),
    [
        ("stuck from the first look on", [(5, [NO_NODE]), (9, [NO_NODE])], 4),
        ("not before it was seen stuck", [(0, [RUNS]), (5, [NO_IMAGE]), (9, [NO_IMAGE])], 4),
        ("a crash loop runs between two crashes", [(0, [CRASHES]), (5, [RUNS]), (9, [CRASHES])], 9),
        ("and the last thing seen of it is that it runs", [(0, [CRASHES]), (5, [CRASHES]), (9, [RUNS])], 9),
        ("it is still without its image while it is made anew", [(0, [NO_IMAGE]), (5, [IS_MADE]), (9, [NO_IMAGE])], 9),
        ("likewise without its Secret", [(0, [NO_SECRET]), (5, [IS_MADE]), (9, [NO_SECRET])], 9),
        ("it was Ready in between", [(0, [CRASHES]), (5, [READY]), (9, [CRASHES]), (12, [CRASHES])], 3),
        ("it had a node in between", [(0, [NO_NODE]), (5, [IS_MADE]), (9, [NO_NODE]), (12, [NO_NODE])], 3),
        ("its image came in between", [(0, [NO_IMAGE]), (5, [RUNS]), (9, [NO_IMAGE]), (12, [NO_IMAGE])], 3),
        ("another trouble has a clock of its own", [(0, [NO_NODE]), (5, [NO_IMAGE]), (9, [NO_IMAGE])], 4),
    ],
)
def test_the_clock_of_a_pod_says(sentence: str, timed: list[tuple[float, Pods]], want_seconds: float) -> None:
    [case] = looks(*timed)
    assert (case.pod, case.seconds) == ("a", want_seconds), sentence


NO_PODS: Pods = []
CRASHED_ONCE = live.running("a", restartCount=1, lastState={"terminated": {"exitCode": 1}})


@pytest.mark.parametrize(
    ("sentence", "timed"),
    [
        ("it has a node", [(0, [NO_NODE]), (5, [IS_MADE])]),
        ("its image came, and it loads its model", [(0, [NO_IMAGE]), (5, [RUNS])]),
        ("its Secret was made, and it loads its model", [(0, [NO_SECRET]), (5, [RUNS])]),
        ("it is Ready after all", [(0, [CRASHES]), (5, [READY])]),
        ("it was told to go", [(0, [CRASHES]), (5, [pod("a", ready=False, **live.LEAVING)])]),
        ("it is gone", [(0, [CRASHES]), (5, NO_PODS)]),
        ("it is of another template", [(0, [waiting("a", "CrashLoopBackOff", template="old")])]),
        ("it crashed once and runs again", [(0, [RUNS]), (5, [CRASHED_ONCE])]),
    ],
)
def test_no_case_is_open_when(sentence: str, timed: list[tuple[float, Pods]]) -> None:
    assert looks(*timed) == (), sentence


def test_a_pod_that_gets_into_other_trouble_after_a_crash_is_still_the_crashing_one() -> None:
    assert told(looks((0, [CRASHES]), (5, [NO_IMAGE]), (9, [NO_IMAGE]))) == [
        ("a", "CrashLoopBackOff", 9),
        ("a", "ImagePullBackOff", 4),
    ]


def test_the_longest_case_comes_first_and_each_pod_has_its_own() -> None:
    cases = looks(
        (0, [NO_NODE]), (5, [NO_NODE, waiting("b", "ErrImagePull")]), (9, [waiting("b", "ErrImagePull"), NO_NODE])
    )
    assert told(cases) == [("a", "unschedulable", 9), ("b", "ErrImagePull", 4)]


def test_the_reason_of_a_failed_pull_is_kept_through_the_back_off() -> None:
    [case] = looks(
        (0, [waiting("a", "ErrImagePull", "manifest unknown")]), (1, [waiting("a", "ImagePullBackOff", "back")])
    )
    assert case.trouble.message == "manifest unknown"


def test_pods_that_cannot_be_made_have_a_clock_of_the_deployments() -> None:
    conditions = [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]
    kept = Patience(30)
    kept.look(0, state([], status={"conditions": conditions}), {})
    cases = kept.look(31, state([], status={"conditions": conditions}), {})
    assert told(cases) == [(None, "no Pod can be made", 31)]
    assert kept.look(32, state([]), {}) == ()


def test_another_template_in_force_starts_all_clocks_anew() -> None:
    kept = Patience(30)
    kept.look(0, state([NO_NODE]), {})
    kept.look(19, state([NO_NODE]), {})
    cases = kept.look(20, state([NO_NODE, without_node("b", template="next")], newest="next"), {})
    assert told(cases) == [("b", "unschedulable", 0)]


# --- crashes ----------------------------------------------------------------------------------------------------------


def init(state: dict[str, Any], *, beside: bool = False, **status: Any) -> dict[str, Any]:
    """An init container in this state, and a model server that is not Ready."""
    policy = {"restartPolicy": "Always"} if beside else {}
    loads: dict[str, Any] = {"name": "modelserver", "state": {"running": {}}}
    return pod(
        "a",
        ready=False,
        spec={"initContainers": [{"name": "check", **policy}]},
        status={
            "initContainerStatuses": [{"name": "check", "state": state, **status}],
            "containerStatuses": [loads],
        },
    )


FAILS = {"waiting": {"reason": "CrashLoopBackOff"}}
DONE = {"terminated": {"exitCode": 0}}
LASTED_5 = {"terminated": {"exitCode": 1, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:05Z"}}


def test_an_init_container_that_succeeds_in_the_end_is_no_case_however_long_the_model_loads() -> None:
    assert looks((0, [init(FAILS)]), (9, [init(DONE)])) == ()
    assert looks((0, [init(FAILS)]), (9, [init(DONE)]), (5000, [init(DONE)])) == ()


def test_what_crashes_after_it_has_a_clock_of_its_own() -> None:
    then = init(DONE)
    then["status"]["containerStatuses"] = [{"name": "modelserver", "state": FAILS}]
    assert told(looks((0, [init(FAILS)]), (9, [then]), (12, [then]))) == [("a", "CrashLoopBackOff", 3)]


def test_a_sidecar_that_ends_again_and_again_is_not_done_by_that() -> None:
    crashes, ends = init(FAILS, beside=True), init(DONE, beside=True)
    [case] = looks((0, [crashes]), (9, [ends]), (20, [crashes]))
    assert case.seconds == 20


def test_a_sidecar_that_runs_for_longer_than_before_holds_its_clock() -> None:
    runs = init({"running": {"startedAt": "x"}}, beside=True, lastState=LASTED_5)
    [case] = looks((0, [init(FAILS, beside=True)]), (9, [runs]), *[(9 + t, [runs]) for t in range(1, 1200)])
    assert (case.is_held, case.seconds) == (True, 9 + 6), (
        "its back-off, and five seconds until it was held at the sixth"
    )


@pytest.mark.parametrize(
    ("sentence", "timed", "want_seconds", "want_held"),
    [
        ("it runs for as long as before", [(0, CRASHES), (1, live.again("a")), (21, live.again("a"))], 21, False),
        ("for longer", [(0, CRASHES), (1, live.again("a")), (22, live.again("a"))], 22, True),
        (
            "for much longer",
            [(0, CRASHES), (1, live.again("a")), (22, live.again("a")), (9000, live.again("a"))],
            22,
            True,
        ),
        (
            "then crashes again, and what was counted counts",
            [
                (0, CRASHES),
                (1, live.again("a")),
                (22, live.again("a")),
                (500, live.again("a")),
                (501, CRASHES),
                (503, CRASHES),
            ],
            25,
            False,
        ),
        (
            "then runs again: it is the new run that has to last",
            [(0, CRASHES), (1, live.again("a", 2)), (4, live.again("a", 2)), (5, live.again("a", 4, number=2))],
            5,
            False,
        ),
        (
            "it had never been started before",
            [(0, CRASHES), (1, live.again("a", None)), (2, live.again("a", None)), (900, live.again("a", None))],
            2,
            True,
        ),
        ("it is not known how long it ran before", [(0, CRASHES), (1, RUNS), (22, RUNS), (29, RUNS)], 29, False),
    ],
)
def test_the_clock_of_a_crashing_container_is_held_while_it_runs_for_longer_than_before(
    sentence: str, timed: list[tuple[float, dict[str, Any]]], want_seconds: float, want_held: bool
) -> None:
    [case] = looks(*((now, [seen]) for now, seen in timed))
    assert (case.seconds, case.is_held) == (want_seconds, want_held), sentence


def test_a_start_that_goes_well_after_one_early_crash_is_never_given_up() -> None:
    kept = Patience(300)
    for now in range(2, 7200):
        cases = kept.look(now, state([CRASHES if now < 12 else live.again("a", 2)]), {})
        assert kept.overdue(cases) is None


@given(
    st.lists(st.tuples(st.integers(0, 600), st.integers(10, 300)), min_size=1, max_size=4),
    st.integers(30, 600),
    st.integers(1, 7),
)
def test_no_crash_loop_escapes_patience_for_ever_whatever_its_runs_last(
    loop: list[tuple[int, int]], patience: int, poll: int
) -> None:
    """Runs and back-offs of so many seconds, over and over; each back-off is seen for its length less one look."""
    kept = Patience(patience)
    now, before, number = 0, 0, 0
    for _ in range(patience):
        for run, back_off in loop:
            number += 1
            for seconds, seen in ((back_off, CRASHES), (run, live.again("a", before, number=number))):
                for passed in range(0, seconds + 1, poll):
                    if kept.overdue(kept.look(now + passed, state([seen]), {})) is not None:
                        return
                now += seconds
            before = run
    pytest.fail("it was never given up")


# --- overdue in leaving -----------------------------------------------------------------------------------------------

STAYS = Trouble(kind=Kind.TERMINATING, reason="stays terminating", message="on node n", node="n")


def test_a_pod_that_should_have_been_gone_is_a_case_until_it_is() -> None:
    kept = Patience(30)
    kept.look(0, state([READY]), {}, {"old": STAYS})
    cases = kept.look(30, state([READY]), {}, {"old": STAYS})
    assert told(cases) == [("old", "stays terminating", 30)]
    assert kept.overdue(cases) is cases[0]
    assert kept.look(31, state([READY]), {}, {}) == ()


def test_it_bequeaths_its_clock_to_none_that_comes_after_it() -> None:
    kept = Patience(30)
    kept.look(0, state([]), {}, {"old": STAYS})
    kept.look(29, state([]), {}, {"old": STAYS})
    kept.look(30, state([]), {}, {})
    assert told(kept.look(40, state([]), {}, {"another": STAYS})) == [("another", "stays terminating", 0)]


def test_it_is_named_before_the_pod_that_waits_for_its_devices() -> None:
    kept = Patience(30)
    kept.look(0, state([NO_NODE]), {}, {"old": STAYS})
    overdue = kept.overdue(kept.look(30, state([NO_NODE]), {}, {"old": STAYS}))
    assert overdue is not None
    assert overdue.pod == "old"


# --- excused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "excused_until", "want_seconds"),
    [
        ("not excused at all", -1, 30),
        ("excused at the first look only: what was between two looks is not known", 0, 20),
        ("excused until the next to last look", 10, 10),
        ("excused all the time", 99, 0),
    ],
)
def test_the_clock_stands_still_while_a_leaving_pod_holds_a_device(
    sentence: str, excused_until: float, want_seconds: float
) -> None:
    timed: list[tuple[float, Pods]] = [(now, [NO_NODE]) for now in (0, 10, 20, 30)]
    [case] = looks(*timed, excused_until=excused_until)
    assert case.seconds == want_seconds, sentence
    assert case.excuse == ("old" if excused_until > 30 else None), sentence


@pytest.mark.parametrize(
    ("sentence", "pods", "is_excused", "newest", "want"),
    [
        ("it is still excused", [NO_NODE], True, "new", True),
        ("it is not excused any more", [NO_NODE], False, "new", True),
        ("it loads its model", [RUNS], False, "new", True),
        ("another one is Ready", [RUNS, pod("b")], False, "new", False),
        ("another one is Ready, and this is still excused", [NO_NODE, pod("b")], True, "new", True),
        ("another template is in force", [NO_NODE], False, "next", False),
    ],
)
def test_an_excuse_is_remembered_until_the_roll_out_gets_on(
    sentence: str, pods: Pods, is_excused: bool, newest: str, want: bool
) -> None:
    kept = Patience(30)
    kept.look(0, state([NO_NODE]), {})
    assert not kept.has_excused
    kept.look(1, state([NO_NODE]), {"a": "old"})
    kept.look(2, state(pods, newest=newest), {"a": "old"} if is_excused else {})
    assert kept.has_excused is want, sentence


def test_only_a_pod_without_a_node_is_excused() -> None:
    [case] = looks((0, [CRASHES]), (30, [CRASHES]), excused_until=99)
    assert (case.seconds, case.excuse) == (30, None)


def test_no_clock_runs_while_nobody_answers() -> None:
    kept = Patience(30)
    kept.look(0, state([NO_NODE]), {})
    kept.look(10, state([NO_NODE]), {})
    kept.blink(20)
    kept.blink(500)
    assert told(kept.look(505, state([NO_NODE]), {})) == [("a", "unschedulable", 15)]


# --- overdue ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "want_overdue"), [(29, False), (29.9, False), (30, True), (400, True)])
def test_patience_is_over_when_its_seconds_are(seconds: float, want_overdue: bool) -> None:
    kept = Patience(30)
    kept.look(0, state([NO_NODE]), {})
    overdue = kept.overdue(kept.look(seconds, state([NO_NODE]), {}))
    assert (overdue is not None) is want_overdue


def test_nobody_is_overdue_while_excused_and_another_one_may_be() -> None:
    kept = Patience(30)
    kept.look(0, state([NO_NODE, waiting("b", "ErrImagePull")]), {})
    cases = kept.look(40, state([NO_NODE, waiting("b", "ErrImagePull")]), {"a": "old"})
    overdue = kept.overdue(cases)
    assert overdue is not None
    assert overdue.pod == "b"


# --- replaced Pods ----------------------------------------------------------------------------------------------------


def crashing(name: str) -> dict[str, Any]:
    return waiting(name, "CrashLoopBackOff")


@pytest.mark.parametrize(
    ("sentence", "timed", "want"),
    [
        (
            "its successor is in the same trouble",
            [(0, [NO_NODE]), (10, [NO_NODE]), (11, [without_node("b")]), (15, [without_node("b")])],
            [("b", "unschedulable", 14)],
        ),
        (
            "its successor appears while it leaves",
            [(0, [NO_IMAGE]), (10, [NO_IMAGE]), (11, [pod("a", **live.LEAVING), waiting("b", "ImagePullBackOff")])],
            [("b", "ImagePullBackOff", 10)],
        ),
        (
            "a crashing one's successor has to start first, and that time counts",
            [(0, [crashing("a")]), (10, [crashing("a")]), (12, [running("b")]), (20, [crashing("b")])],
            [("b", "CrashLoopBackOff", 20)],
        ),
        (
            "the successor is in other trouble",
            [(0, [crashing("a")]), (10, [crashing("a")]), (12, [without_node("b")])],
            [("b", "unschedulable", 0)],
        ),
        (
            "another Pod that was there before is no successor",
            [(0, [crashing("a"), running("b")]), (10, [crashing("a"), running("b")]), (12, [crashing("b")])],
            [("b", "CrashLoopBackOff", 0)],
        ),
        (
            "one clock is bequeathed once, and the longest first",
            [
                (0, [without_node("a")]),
                (4, [without_node("a"), without_node("b")]),
                (10, [without_node("a"), without_node("b")]),
                (11, [without_node("c"), without_node("d"), without_node("e")]),
            ],
            [("c", "unschedulable", 10), ("d", "unschedulable", 6), ("e", "unschedulable", 0)],
        ),
        (
            "a Pod became Ready meanwhile, so it went on",
            [
                (0, [crashing("a")]),
                (10, [crashing("a")]),
                (11, [running("b")]),
                (15, [pod("b")]),
                (20, [pod("b"), crashing("c")]),
            ],
            [("c", "CrashLoopBackOff", 0)],
        ),
    ],
)
def test_a_pod_that_is_replaced_while_it_is_stuck(
    sentence: str, timed: list[tuple[float, Pods]], want: list[tuple[str, str, float]]
) -> None:
    assert told(looks(*timed)) == want, sentence


def test_pods_that_their_nodes_throw_out_one_after_the_other_run_out_of_patience() -> None:
    kept = Patience(30)
    left_behind = [live.failed("long-ago")]
    overdue: list[bool] = []
    for turn in range(6):
        pods = [*left_behind, running(f"p{turn}")]
        assert kept.look(turn * 10, state(pods), {}) == ()
        left_behind.append(live.failed(f"p{turn}"))
        cases = kept.look(turn * 10 + 5, state([*left_behind, running(f"p{turn + 1}")]), {})
        assert told(cases) == [(f"p{turn}", "Evicted", turn * 10)]
        overdue.append(kept.overdue(cases) is not None)
    assert overdue == [False, False, False, True, True, True]


def test_what_ended_before_the_first_look_is_none_of_its_business() -> None:
    assert looks((0, [live.failed("x"), RUNS]), (100, [live.failed("x"), RUNS]), (200, [live.failed("x"), RUNS])) == ()


def test_a_pod_of_another_template_that_ended_is_none_of_its_business() -> None:
    assert looks((0, [RUNS]), (1, [RUNS, live.failed("x", template="old")])) == ()


# --- whatever happens -------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.floats(min_value=0.1, max_value=20),
        st.sampled_from([NO_NODE, NO_NODE, CRASHES, NO_IMAGE, NO_SECRET, IS_MADE, RUNS, READY]),
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)


def timed(steps: list[tuple[float, dict[str, Any], bool]]) -> list[tuple[float, dict[str, Any], bool]]:
    """Steps with the time since the beginning instead of the one since the step before."""
    now = 0.0
    found: list[tuple[float, dict[str, Any], bool]] = []
    for passed, seen, excused in steps:
        now += passed
        found.append((now, seen, excused))
    return found


@given(STEPS)
def test_patience_never_ends_before_its_seconds_are_over_since_the_pod_was_first_seen_stuck(
    steps: list[tuple[float, dict[str, Any], bool]],
) -> None:
    kept = Patience(30)
    stuck_since: float | None = None
    for now, seen, excused in timed(steps):
        cases = kept.look(now, state([seen]), {"a": "old"} if excused else {})
        if seen is READY:
            stuck_since = None
        elif seen in (NO_NODE, CRASHES, NO_IMAGE, NO_SECRET) and stuck_since is None:
            stuck_since = now
        if kept.overdue(cases) is not None:
            assert stuck_since is not None
            assert now - stuck_since >= 30 - 1e-6


@given(STEPS)
def test_an_unschedulable_pod_never_uses_up_patience_in_time_in_which_it_was_excused(
    steps: list[tuple[float, dict[str, Any], bool]],
) -> None:
    kept = Patience(30)
    counted, before = 0.0, None
    for now, seen, excused in timed(steps):
        seen = NO_NODE if seen is not READY else READY  # noqa: PLW2901  # only this trouble here
        cases = kept.look(now, state([seen]), {"a": "old"} if excused else {})
        is_counted = seen is NO_NODE and not excused
        counted = counted + now - before if before is not None and is_counted else 0 if seen is READY else counted
        before = now if is_counted else None
        assert (kept.overdue(cases) is not None) is (is_counted and counted >= 30) or abs(counted - 30) < 1e-6


@given(STEPS, st.sampled_from([NO_NODE, CRASHES, NO_IMAGE, NO_SECRET]), st.floats(min_value=0.1, max_value=20))
def test_a_pod_that_stays_stuck_without_excuse_always_runs_out_of_patience(
    steps: list[tuple[float, dict[str, Any], bool]], stuck: dict[str, Any], pause: float
) -> None:
    kept = Patience(30)
    now = 0.0
    for now, seen, excused in timed(steps):
        kept.look(now, state([seen]), {"a": "old"} if excused else {})
    first = now + pause
    cases: tuple[Case, ...] = ()
    now = first
    while now - first < 30 + 1e-6:
        cases = kept.look(now, state([stuck]), {})
        now += pause
    assert kept.overdue(kept.look(now, state([stuck]), {})) is not None, cases


@given(st.lists(st.tuples(st.floats(min_value=0.1, max_value=10), st.booleans()), min_size=1, max_size=60))
def test_a_crash_loop_does_not_escape_by_changing_its_name(steps: list[tuple[float, bool]]) -> None:
    kept = Patience(30)
    now, number, fired = 0.0, 0, False
    kept.look(now, state([crashing("p0")]), {})
    for passed, is_replaced in steps:
        now += passed
        number += is_replaced
        cases = kept.look(now, state([crashing(f"p{number}")]), {})
        fired = kept.overdue(cases) is not None
        assert fired is (now >= 30) or abs(now - 30) < 1e-6
