"""A report as Markdown and as a page: everything is said, nothing that stands in it is taken for markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.report import render_html, render_markdown
from cli.report.course import courses
from cli.report.figure import LEFT, PLOT, draw_devices, draw_pods
from cli.report.markdown import CUT, MARKS, code, plain, prose
from cli.report.page import ticked
from stack.errors import Problem
from stack.guards import GuardProblem
from stack.impact import (
    CompileCache,
    FreeDevices,
    Happening,
    KeyChange,
    Method,
    Outage,
    PartImpact,
    Start,
    WorkloadImpact,
)
from stack.report import Difference, Engine, EngineStep, Report, Verdict
from tests.builders import ROOT
from tests.reports import impact, part, report

DRAIN, START, SEEN = 90, 7200, 600
KEY = KeyChange(key="modelserver.image.tag", before="0.12.0", after="0.12.1")
NASTY = "a|b `c` *d* _e_ <script>alert(1)</script> @team #1 [x](y)\n| new row | &amp;"


def rolled(name: str = "decode", pods: int = 4, **over: Any) -> PartImpact:
    """A role that is rolled, one more at a time."""
    workload = WorkloadImpact(
        name=f"llm-{name}",
        part=name,
        entry=None,
        happens=Happening.RESTARTS,
        method=Method.ROLLING,
        before=pods,
        after=pods,
        new=pods,
        kept=0,
        leaving=pods,
        is_template_changed=True,
        extra_pods=1,
        ready=pods,
        placed=pods,
        drain_seconds=DRAIN,
        start_seconds=START,
        about_start_seconds=SEEN,
    )
    numbers: dict[str, Any] = {
        "part": name,
        "before": pods,
        "after": pods,
        "new": pods,
        "leaving": pods,
        "at_most_seconds": pods * (DRAIN + START),
        "max_surge": 1,
        "max_unavailable": 0,
        "cache": CompileCache(start=Start.WARM),
        "keys": (KEY,),
        "spare": "free",
        "fits": 1,
        "free": (FreeDevices(device_class="npu.example.com", count=8, per_pod=4),),
        "drain_seconds": DRAIN,
        "start_seconds": START,
        "about_start_seconds": SEEN,
        "accelerators_per_pod": 4,
        "nics_per_pod": 2,
        "workloads": (workload,),
    }
    return part(over.pop("happens", Happening.RESTARTS), **numbers | over)


def all_down(found: PartImpact) -> PartImpact:
    """The same in a change of the topology."""
    outage = Outage(at_most_seconds=DRAIN + START, about_seconds=DRAIN + SEEN, start=Start.WARM, why="all leave first")
    [workload] = found.workloads
    workload = replace(workload, method=Method.ALL_DOWN, extra_pods=found.after)
    return replace(found, method=Method.ALL_DOWN, capacity_percent=0, outage=outage, workloads=(workload,))


def about(*parts: PartImpact, engine: Engine | None = None, **over: Any) -> Report:
    """A report about a change of these parts, or of both roles."""
    outage = next((each.outage for each in parts if each.outage is not None), None)
    found = impact(*(parts or (rolled("prefill"), rolled())), accelerator="NPU", outage=outage)
    return replace(report(found, **over), engine=engine)


REFUSAL = GuardProblem(
    key="modelserver.strategy.rollingUpdate",
    value="maxSurge 1, maxUnavailable 0",
    why="devices for the Pods that this change adds: cannot fit",
    fix="Free as many devices: `kubectl get resourceclaims -A` shows who holds them",
    guard="devices",
)
REPORTS = {
    "restarts": about(),
    "outage": about(all_down(rolled("prefill")), all_down(rolled("decode"))),
    "refused": about(rolled("prefill", fits=0, spare="not free"), refusals=(REFUSAL,)),
    "not known": report(None, unknown=("the cluster could not be read",)),
    "nothing restarts": about(
        rolled(
            happens=Happening.STAYS,
            method=None,
            new=0,
            kept=4,
            leaving=0,
            extra_pods=0,
            keys=(),
            workloads=(replace(rolled().workloads[0], happens=Happening.STAYS, new=0, kept=4, leaving=0),),
        )
    ),
}


def both(made: Report) -> tuple[str, str]:
    return render_markdown(made), render_html(made)


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_is_told_in_the_first_line(verdict: Verdict) -> None:
    made = REPORTS[verdict]
    assert made.verdict is verdict
    markdown, page = both(made)
    assert markdown.splitlines()[0].startswith(f"### {MARKS[verdict]} prod: ")
    assert f'<header class="{verdict.value.replace(" ", "-")}">' in page


def test_a_refusal_has_its_key_its_reason_and_the_way_out() -> None:
    markdown, page = both(REPORTS["refused"])
    assert "- `modelserver.strategy.rollingUpdate` = maxSurge 1, maxUnavailable 0: devices for the Pods" in markdown
    assert "**Way out:** Free as many devices: `kubectl get resourceclaims -A` shows who holds them." in markdown
    assert "<code>kubectl get resourceclaims -A</code>" in page
    assert "guard devices" in page


def test_what_a_refusal_prevents_is_shown_as_it_would_go() -> None:
    markdown, page = both(REPORTS["refused"])
    assert "It would go no further" in markdown
    assert "1 new Pod waits for devices in vain" in page
    assert "How it would go" in page


def warned(why: str, *parts: PartImpact) -> Report:
    """As under `guards.devices: warn`."""
    return about(*parts, warnings=(replace(REFUSAL, why=f"devices for the Pods that this change adds: {why}"),))


def test_a_proven_shortage_that_is_let_pass_is_not_drawn_as_a_smooth_roll_out() -> None:
    markdown, page = both(warned("cannot fit", rolled("prefill", fits=0, spare="not free")))
    for text in (markdown, page):
        assert "It would go no further" in text
        assert "How it goes" in text
    maybe = warned("fits in some order", rolled("prefill", fits=0, spare="free for some placements only"))
    assert "It would go no further" not in render_markdown(maybe)


def test_nothing_is_drawn_that_contradicts_a_proven_shortage() -> None:
    assert courses(warned("cannot fit", rolled("prefill", fits=1))) == ()
    back = rolled("prefill", fits=0, happens=Happening.GOES_BACK)
    assert courses(warned("cannot fit", replace(back, extra_pods=0)))


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(about(part(Happening.UNKNOWN)), ["not known", "not known"], id="one part is not known"),
        pytest.param(
            about(part(Happening.UNKNOWN), refusals=(REFUSAL,)), ["not known", "not known"], id="and it is refused"
        ),
        pytest.param(
            about(rolled("prefill"), part(Happening.UNKNOWN)), ["4 or more", "not known"], id="another part restarts"
        ),
        pytest.param(report(impact(rolled(), unknown=("x",))), ["4 or more", "not known"], id="something besides"),
        pytest.param(about(), ["8", "none"], id="all is known"),
    ],
)
def test_what_is_not_known_is_no_number(made: Report, want: list[str]) -> None:
    tiles = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)(?:<small>.*?</small>)?</dd>", render_html(made)))
    assert [tiles["Pods restart"], tiles["outage"]] == want
    assert ("least capacity" in tiles) == (want[1] == "none")


def test_a_letter_that_has_no_key_is_said_as_it_is() -> None:
    markdown, page = both(about(warnings=("2 claims could not be read",)))
    assert "- 2 claims could not be read" in markdown
    assert "2 claims could not be read" in page


def test_steps_are_told_for_the_likelier_time_in_markdown_and_for_both_on_the_page() -> None:
    markdown, page = both(REPORTS["restarts"])
    assert "| at once | 4 serve, 1 starts | 4 serve, 1 starts |" in markdown
    assert "| 46 min | 4 serve | 4 serve |" in markdown
    assert page.count('type="radio"') == 2
    assert "Through after 8 h 6 min" in page
    cold = replace(rolled(), about_start_seconds=None)
    assert 'type="radio"' not in render_html(about(cold))
    assert "Through after 8 h 6 min" in render_markdown(about(cold))


def test_differences_between_engine_and_impact_are_a_bug_to_report() -> None:
    differing = Difference(workload="llm-decode", engine="stays", impact="restarts")
    engine = Engine(version="3.1", is_refreshed=True, steps=(), differences=(differing,))
    for text in both(about(engine=engine)):
        assert "llm-decode" in text
        assert "bug" in text


def test_the_engines_steps_are_there_to_unfold() -> None:
    step = EngineStep(operation="update", kind="Deployment", name="llm-decode", paths=("spec.template",))
    markdown, page = both(about(engine=Engine(version="3.1", is_refreshed=True, steps=(step,), differences=())))
    assert "<summary>The engine: 1 to update</summary>" in markdown
    assert "- update Deployment `llm-decode`, at `spec.template`" in markdown
    assert "It agrees with this report" in page


# --- markup -----------------------------------------------------------------------------------------------------------


def nasty() -> Report:
    """One that has something to misread wherever anything can stand."""
    found = rolled(keys=(KeyChange(key="modelserver.serveEnv.X", before=NASTY, after=None),), reason=NASTY, spare=NASTY)
    problem = Problem(key=NASTY, value=NASTY, why=NASTY, fix=NASTY)
    step = EngineStep(operation="update", kind=NASTY, name=NASTY, paths=(NASTY,))
    engine = Engine(
        version=NASTY,
        is_refreshed=False,
        steps=(step,),
        differences=(Difference(workload=NASTY, engine=NASTY, impact=NASTY),),
    )
    made = about(found, engine=engine, refusals=(problem,), warnings=(problem, NASTY), unknown=(NASTY,))
    return replace(made, stack=NASTY, release=NASTY, namespace=NASTY, context=NASTY)


def test_markdown_shows_what_stands_in_it_as_it_is() -> None:
    text = render_markdown(nasty())
    outside = re.sub(r"(`+) ?.*?[^`] ?\1(?!`)", "", text)
    assert "<script" not in outside
    assert not re.search(r"@\w|(?<!&)#\w", outside), "no mention, of nobody and no issue"
    assert "&#64;" not in outside, "which GitHub would read before it looks for mentions"
    assert "\n| new row" not in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table[:3]} == {7}


def test_the_page_shows_what_stands_in_it_as_it_is() -> None:
    page = render_html(nasty())
    assert "<script" not in page
    assert "&lt;script&gt;" in page


@given(st.text(max_size=40))
def test_any_text_is_one_line_of_markdown(text: str) -> None:
    for shown in (plain(text), prose(text), code(text)):
        assert len(shown.splitlines()) <= 1
    assert "<" not in plain(text)
    assert not re.search(r"(?<!\\)(?:\\\\)*\|", plain(text))


@given(st.text(alphabet="ab`<&> ", max_size=20))
def test_any_text_is_text_on_the_page(text: str) -> None:
    shown = str(ticked(text))
    assert re.sub(r"</?code>", "", shown).count("<") == 0


def test_no_formula_is_made_of_dollars() -> None:
    assert plain("$(POD_IP):$PORT") == "&#36;(POD\\_IP):&#36;PORT"


def test_a_fence_is_longer_than_any_in_the_code() -> None:
    assert code("a") == "`a`"
    assert code("a ``b`` c") == "``` a ``b`` c ```"


def test_a_comment_is_never_too_long_for_github() -> None:
    many = [Problem(key=f"modelserver.{i}", value="x" * 5000, why="y" * 5000, fix="z" * 5000) for i in range(300)]
    steps = tuple(EngineStep(operation="update", kind="Deployment", name=f"d{i}") for i in range(3000))
    engine = Engine(version="3.1", is_refreshed=True, steps=steps, differences=())
    made = about(rolled(pods=200), engine=engine, refusals=many, warnings=many, unknown=["u" * 5000] * 300)
    text = render_markdown(made)
    assert len(text) < 65_000
    assert text.endswith(f"{CUT}\n")
    assert text.count("<details>") == text.count("</details>")


class Tags(HTMLParser):
    """Reads a page: which tags are open at its end, and what it would load."""

    VOID = frozenset({"meta", "input", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.referred: list[str] = []
        self.loads: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name == "aria-labelledby":
                self.referred += (value or "").split()
            if name in {"src", "href", "srcset", "data", "action", "style"} or name.startswith("on"):
                self.loads.append((tag, name))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("made", [*REPORTS.values(), nasty()], ids=[*REPORTS, "nasty"])
def test_the_page_is_whole_and_loads_nothing(made: Report) -> None:
    page = render_html(made)
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.loads == []
    assert len(set(tags.ids)) == len(tags.ids)
    assert set(tags.referred) <= set(tags.ids)
    assert "http" not in page
    assert "@import" not in page
    assert "url(" not in page.replace("url(#", "")


def test_a_figure_says_in_words_what_it_shows() -> None:
    page = render_html(REPORTS["outage"])
    assert "decode: at least 0 of 4 serve; none serves for 11 min 30 s; through after 11 min 30 s." in page
    assert re.search(r'<svg viewBox="[^"]+" role="img" aria-labelledby=', page)


CSS = (ROOT / "cli" / "report" / "templates" / "page.css").read_text()


def light(colour: str) -> float:
    """Relative luminance (WCAG 2.2, "relative luminance")."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((light(one), light(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("is_dark", [False, True])
def test_every_band_has_an_outline_that_stands_out_from_what_is_around_it(*, is_dark: bool) -> None:
    """WCAG 2.2, success criterion 1.4.11: 3 to 1 for what one has to see to understand a figure."""
    before, dark = CSS.split("prefers-color-scheme: dark", maxsplit=1)
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", dark if is_dark else before))
    for ground in ("sunk", "card"):
        assert contrast(colours["edge"], colours[ground]) >= 3
    assert ".edge, .legend .band { stroke: var(--edge); }" in CSS


def test_outlines_lie_upon_the_lines_to_count_by() -> None:
    for lane in re.findall(r"<g>.*?</g>", render_html(REPORTS["restarts"]), re.DOTALL):
        bands, edges = (re.findall(rf'<path class="{kind} ([^"]+)" d="([^"]+)"/>', lane) for kind in ("band", "edge"))
        assert bands
        assert bands == edges
        assert lane.rindex('class="band') < lane.index('class="unit"') <= lane.rindex('class="unit"')
        assert lane.rindex('class="unit"') < lane.index('class="edge')


def test_no_two_regions_have_the_same_name() -> None:
    labels = re.findall(r'role="region" aria-label="([^"]+)"', render_html(REPORTS["restarts"]))
    assert len(labels) == 7, "the table, and for each reading two figures and the steps"
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("verdict", Verdict)
def test_the_same_report_gives_the_same_text(verdict: Verdict) -> None:
    assert both(REPORTS[verdict]) == both(REPORTS[verdict])


# --- figures ----------------------------------------------------------------------------------------------------------

BOX = re.compile(r"M([\d.-]+) ([\d.-]+)V([\d.-]+)H([\d.-]+)V[\d.-]+Z")


def boxes(path: str) -> list[tuple[float, float, float, float]]:
    """Left, bottom, top and right edge of each."""
    return [(float(a), float(b), float(c), float(d)) for a, b, c, d in BOX.findall(path)]


@settings(max_examples=30)
@given(st.integers(1, 60), st.integers(0, 400), st.integers(1, 8))
def test_bands_fill_their_lane_and_lie_upon_one_another(pods: int, free: int, per_pod: int) -> None:
    made = rolled(pods=pods, free=(FreeDevices(device_class="npu", count=free, per_pod=per_pod),))
    course = courses(about(made))[0]
    found = about(made).impact
    assert found is not None
    devices = draw_devices(course, found)
    assert devices is not None
    for figure in (draw_pods(course, found), devices):
        for lane in figure.lanes:
            drawn = [box for band in lane.bands for box in boxes(band.path)]
            assert drawn
            for left, bottom, top, right in drawn:
                assert LEFT - 0.06 <= left < right <= LEFT + PLOT + 0.06
                assert lane.top - 0.06 <= top < bottom <= lane.bottom + 0.06
            for one in drawn:
                for other in drawn:
                    if one is not other and min(one[3], other[3]) - max(one[0], other[0]) > 0.11:
                        assert one[1] <= other[2] + 0.11 or other[1] <= one[2] + 0.11


def test_the_outage_of_a_change_of_the_topology_is_marked_over_all_roles() -> None:
    made = REPORTS["outage"]
    course = courses(made)[0]
    assert made.impact is not None
    figure = draw_pods(course, made.impact)
    assert figure.outage is not None
    assert figure.outage.text == "outage for 11 min 30 s"
    assert figure.outage.x == LEFT
    assert figure.outage.width == pytest.approx(PLOT / 1.05)
    assert all(lane.gaps == () for lane in figure.lanes)


def test_devices_are_drawn_by_class_where_somebody_looked_with_what_there_is_in_all() -> None:
    made = REPORTS["restarts"]
    assert made.impact is not None
    figure = draw_devices(courses(made)[0], made.impact)
    assert figure is not None
    [lane] = figure.lanes
    assert lane.name == "npu.example.com"
    assert lane.below == ("at most 40", "8 free now")
    assert [level.text for level in lane.levels] == ["32 now", "40 in all"]
    assert lane.said == "npu.example.com: 32 held now, at most 40 while the change goes on, 8 more are free now"


@pytest.mark.parametrize(
    ("over", "want"),
    [
        pytest.param({}, ["NPUs", "NICs"], id="as the configuration says"),
        pytest.param({"nics_per_pod": 0}, ["NPUs"], id="without NICs"),
        pytest.param(
            {"accelerators_per_pod": None, "nics_per_pod": None},
            ["Pods with devices"],
            id="by claims of the operator's",
        ),
    ],
)
def test_devices_are_drawn_as_far_as_they_are_known(over: dict[str, Any], want: list[str]) -> None:
    made = about(rolled(free=(), fits=None, spare=None, **over))
    assert made.impact is not None
    figure = draw_devices(courses(made)[0], made.impact)
    assert figure is not None
    assert [lane.name for lane in figure.lanes] == want


def test_parts_that_stay_are_not_drawn_among_pods() -> None:
    stays = REPORTS["nothing restarts"].impact
    assert stays is not None
    made = about(rolled("prefill"), *stays.parts)
    assert made.impact is not None
    assert [lane.name for lane in draw_pods(courses(made)[0], made.impact).lanes] == ["prefill"]
    assert courses(REPORTS["nothing restarts"]) == ()
