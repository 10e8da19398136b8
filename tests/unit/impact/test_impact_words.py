"""How keys, templates, the compile cache and the whole of it are put into words."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
from world import Blocks, World, accepted, change, first_plan, part

from stack.facts import Surroundings, TrialFacts
from stack.impact import Start, duration, foresee, render_table
from stack.impact.cache import start_after, start_of_a_role, start_of_more
from stack.impact.keys import Delta, compare, in_words
from stack.impact.templates import is_same_template, where_templates_differ
from stack.plan import plan_stack
from stack.recipes import load_recipe
from stack.record import Record
from tests.builders import EMPTY_CLUSTER, merged

if TYPE_CHECKING:
    from collections.abc import Callable

    from stack.impact import Impact

RBLN, NVIDIA = load_recipe("minimax-m2.7-rbln"), load_recipe("gpt-oss-120b-nvidia")


# --- keys -------------------------------------------------------------------------------------------------------------


def told(before: Any, after: Any) -> str:
    """How one key is told; ... stands for a key that has no value."""
    records = [Record(values={} if value is ... else {"a.b": json.dumps(value)}) for value in (before, after)]
    [change] = in_words(compare(records[0], records[1]))
    return str(change)


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param("0.12.0", "0.12.1", "a.b: 0.12.0 -> 0.12.1", id="texts"),
        pytest.param(1, 2, "a.b: 1 -> 2", id="numbers"),
        pytest.param(True, False, "a.b: true -> false", id="truth values"),
        pytest.param(..., "x", "a.b: not set -> x", id="new"),
        pytest.param("x", ..., "a.b: x -> not set", id="gone"),
        pytest.param("", "x", 'a.b: "" -> x', id="empty text"),
        pytest.param("a\nb", "x", 'a.b: "a\\nb" -> x', id="more than one line"),
        pytest.param({"k": [1]}, {"k": [2]}, 'a.b: {"k":[1]} -> {"k":[2]}', id="maps"),
        pytest.param(["--x"], ["--x", "--y"], 'a.b: ["--x"] -> ["--x","--y"]', id="lists"),
        pytest.param("1", 1, "a.b: 1 -> 1", id="a text and a number that look alike"),
        pytest.param("a" * 61, "b", f"a.b: {'a' * 57}... -> b", id="one that is too long"),
        pytest.param("hf_abcdefghijklmnopqrst", "x", "a.b: (not shown) -> x", id="what looks like a secret"),
    ],
)
def test_a_key_is_told_from_what_to_what(before: Any, after: Any, want: str) -> None:
    assert told(before, after) == want


def test_long_values_are_told_by_where_they_differ() -> None:
    same = "".join(chr(ord("a") + i % 26) for i in range(80))
    assert told(f"{same}-old", f"{same}-new") == f"a.b: ...{same[-11:]}-old -> ...{same[-11:]}-new"


def test_keys_come_in_order_and_positions_as_numbers() -> None:
    names = ["b", "a[10]", "a[2]", "a.x"]
    found = compare(Record(), Record(values=dict.fromkeys(names, "1")))
    assert [delta.key for delta in found] == ["a.x", "a[2]", "a[10]", "b"]


def test_what_is_the_same_is_not_told() -> None:
    record = Record(values={"a": "1"}, hashes={"b": "12345678"})
    assert compare(record, record) == ()


def test_a_value_that_was_too_large_to_keep_is_told_to_be_another() -> None:
    [change] = in_words(compare(Record(hashes={"a": "12345678"}), Record(values={"a": '"x"'})))
    assert str(change) == "a: too long to be kept -> x"


# --- templates --------------------------------------------------------------------------------------------------------


def template(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "a"}], **spec}}


@pytest.mark.parametrize(
    ("other", "want"),
    [
        pytest.param(template(), (), id="nothing"),
        pytest.param(
            template() | {"metadata": {"labels": {"app": "x", "pod-template-hash": "1"}}},
            (),
            id="the controller's label",
        ),
        pytest.param(
            template() | {"metadata": {"labels": {"app": "x"}, "creationTimestamp": None}}, (), id="null for nothing"
        ),
        pytest.param(template(containers=[{"name": "c", "image": "b"}]), ("spec.containers[c].image",), id="an image"),
        pytest.param(
            template(containers=[{"name": "c", "image": "a"}, {"name": "d"}]), ("spec.containers[d]",), id="a container"
        ),
        pytest.param(template(dnsPolicy="Default"), ("spec.dnsPolicy",), id="a field"),
        pytest.param(
            template() | {"metadata": {"labels": {"app": "x", "example.com/team": "a"}}},
            ("metadata.labels[example.com/team]",),
            id="a label with dots",
        ),
        pytest.param(template(tolerations=[{"operator": "Exists"}]), ("spec.tolerations",), id="a list without names"),
        pytest.param({"spec": template()["spec"]}, ("metadata.labels.app",), id="no metadata at all"),
    ],
)
def test_templates_are_told_apart_and_where(other: dict[str, Any], want: tuple[str, ...]) -> None:
    assert where_templates_differ(template(), other) == want
    assert is_same_template(template(), other) == (not want)


def test_another_order_of_named_entries_is_another_template() -> None:
    """Kubernetes takes the order of containers, and of variables that are made from others, at its word."""
    one, other = ({"spec": {"env": [{"name": name} for name in names]}} for names in ("ab", "ba"))
    assert not is_same_template(one, other)
    assert where_templates_differ(one, other) == ("spec.env",)


# --- compile cache ----------------------------------------------------------------------------------------------------


def deltas(*changes: tuple[str, Any, Any]) -> list[Delta]:
    return [Delta(key=key, before=json.dumps(before), after=json.dumps(after)) for key, before, after in changes]


TAG, FLAG, ENV = "modelserver.image.tag", "modelserver.serveArgs.decode", "modelserver.extraServeEnv.decode"


@pytest.mark.parametrize(
    ("change", "want", "why"),
    [
        pytest.param((TAG, "0.12.0", "0.12.1"), Start.WARM, "", id="a patch of the same compiler"),
        pytest.param((TAG, "0.12.0", "0.13.0"), Start.COLD, "compiler 0.12 -> 0.13", id="another minor"),
        pytest.param((TAG, "v0.12.0", "1.12.0"), Start.COLD, "compiler 0.12 -> 1.12", id="another major"),
        pytest.param((TAG, "0.1", "0.12"), Start.COLD, "compiler 0.1 -> 0.12", id="a number that begins alike"),
        pytest.param((TAG, "0.12.0", "20260801"), Start.UNKNOWN, "does not tell", id="a tag that is no version"),
        pytest.param(("modelserver.image.digest", "a", "b"), Start.UNKNOWN, "compiler than 0.12", id="a digest"),
        pytest.param(
            ("modelserver.image.repository", "a", "b"), Start.UNKNOWN, "compiler than 0.12", id="a repository"
        ),
        pytest.param(("modelserver.model", "a", "b"), Start.COLD, "another model", id="another model"),
        pytest.param((f"{FLAG}.max-num-seqs", 1, 2), Start.COLD, "(max-num-seqs)", id="a shape"),
        pytest.param((f"{FLAG}.data-parallel-size", 4, 8), Start.COLD, "(data-parallel-size)", id="parallelism"),
        pytest.param((f"{FLAG}.shutdown-timeout", 1, 2), Start.WARM, "", id="an argument around the engine"),
        pytest.param(
            (f"{FLAG}.seed", 1, 2), Start.UNKNOWN, "seed may be part", id="an argument of which nothing is known"
        ),
        pytest.param(
            ("modelserver.extraServeArgs.decode", ["--seed=1"], ["--seed=1", "--max_model_len=9"]),
            Start.COLD,
            "(max-model-len)",
            id="an appended argument",
        ),
        pytest.param(
            ("modelserver.extraServeArgs.decode", ["--seed=1"], ["--seed=1", "--uvicorn-log-level=debug"]),
            Start.WARM,
            "",
            id="a harmless one",
        ),
        pytest.param((f"{ENV}.VLLM_CACHE_ROOT", "/a", "/b"), Start.COLD, "elsewhere", id="another folder"),
        pytest.param(
            (f"{ENV}.VLLM_RBLN_SAMPLER", "0", "1"), Start.UNKNOWN, "VLLM_RBLN_SAMPLER", id="the engine's variable"
        ),
        pytest.param((f"{ENV}.VLLM_LOGGING_LEVEL", "INFO", "DEBUG"), Start.WARM, "", id="logging"),
        pytest.param((f"{ENV}.OMP_NUM_THREADS", "1", "2"), Start.WARM, "", id="another variable"),
        pytest.param(("devices.claimTemplateName", "a", "b"), Start.UNKNOWN, "another type", id="other devices"),
        pytest.param(
            ("devices.claimTemplate", {"a": 0}, {"a": 1}), Start.UNKNOWN, "another type", id="another template"
        ),
        pytest.param(("devices.npu.mode", "dra", "devicePlugin"), Start.UNKNOWN, "another type", id="another mode"),
        pytest.param(("devices.rdma.enabled", True, False), Start.WARM, "", id="NICs"),
        pytest.param(
            ("modelserver.podOverrides.decode.nodeSelector.example.com/npu", "a", "b"),
            Start.UNKNOWN,
            "other nodes",
            id="other nodes",
        ),
        pytest.param(
            ("storage.compileCache.existingClaim.decode", "a", "b"),
            Start.UNKNOWN,
            "another volume",
            id="another volume",
        ),
        pytest.param(("recipe", "minimax-m2.7-rbln", "gpt-oss-120b-nvidia"), Start.COLD, "recipe", id="another recipe"),
        pytest.param(("recipe", "minimax-m2.7-rbln", "qwen3-0.6b"), Start.WARM, "", id="a recipe of the same compiler"),
        pytest.param(("modelserver.hfTokenSecret.name", "a", "b"), Start.WARM, "", id="a Secret"),
        pytest.param(("tracing.enabled", False, True), Start.WARM, "", id="tracing"),
    ],
)
def test_a_compile_cache_fits_or_not(change: tuple[str, Any, Any], want: Start, why: str) -> None:
    found = start_after(RBLN, deltas(change), kind="pvc")
    assert found.start is want
    assert why in found.why
    assert bool(why) == bool(found.why)


def test_what_is_certain_is_told_before_what_may_be() -> None:
    found = start_after(RBLN, deltas((f"{FLAG}.seed", 1, 2), (TAG, "0.12.0", "0.13.0")), kind="pvc")
    assert found.start is Start.COLD
    assert "seed" not in found.why


def test_without_a_record_it_is_not_known_whether_it_fits() -> None:
    assert start_after(RBLN, None, kind="pvc").start is Start.UNKNOWN


def test_an_empty_dir_keeps_nothing() -> None:
    for found in (
        start_after(RBLN, [], kind="emptyDir"),
        start_of_more(RBLN, kind="emptyDir"),
        start_of_a_role(RBLN, kind="emptyDir", is_filled=None),
    ):
        assert found.start is Start.COLD
        assert "emptyDir" in found.why


def test_where_nothing_is_compiled_nothing_is_said() -> None:
    for found in (
        start_after(NVIDIA, deltas((TAG, "1", "2")), kind="pvc"),
        start_of_more(NVIDIA, kind="emptyDir"),
        start_of_a_role(NVIDIA, kind="pvc", is_filled=False),
    ):
        assert (found.start, found.why) == (Start.NOTHING_COMPILED, "")


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (690, "11 min 30 s"), (7200, "2 h"), (7290, "2 h 1 min 30 s")],
)
def test_a_time_in_words(seconds: int, want: str) -> None:
    assert duration(seconds) == want


PLUGINS: Blocks = {
    "devices": {"npu": {"mode": "devicePlugin"}, "rdma": {"mode": "devicePlugin", "resourceName": "rdma/hca"}}
}


def lines_of(found: Impact) -> list[str]:
    """The table, line by line, with single spaces."""
    return [" ".join(line.split()) for line in render_table(found).splitlines()]


def lines(before: Blocks, after: Blocks, *, meanwhile: Callable[[World], object] | None = None) -> list[str]:
    return lines_of(change(before, after, meanwhile=meanwhile))


def test_nothing_is_said_of_a_change_that_changes_nothing() -> None:
    assert render_table(change({}, {})) == ""
    assert render_table(change({}, {"gateway": {"port": 8080}})) == ""


def test_a_new_image_in_a_table() -> None:
    assert lines(PLUGINS, {"modelserver": {"image": {"tag": "0.12.1"}}}) == [
        "what this change does:",
        "part Pods what happens spare devices capacity at most",
        "prefill 4 restarts: rolling, 1 more and none fewer at a time 4 NPUs, 2 NICs 100 % 8 h 6 min",
        "decode 4 restarts: rolling, 1 more and none fewer at a time 4 NPUs, 2 NICs 100 % 8 h 6 min",
        "epp 1 stays - - -",
        "because of modelserver.image.tag: 0.12.0 -> 0.12.1 (prefill, decode)",
        "no outage",
    ]


WHY_ALL_GO = "all model servers leave before the first new one starts, since the topology changes"


def test_a_mode_switch_in_a_table() -> None:
    placed = {"nodePlacement": [{"role": "prefill", "node": "n1"}, {"role": "decode", "node": "n2"}]}
    assert lines(PLUGINS, {"modelserver": placed}) == [
        "what this change does:",
        "part Pods what happens spare devices capacity at most",
        "prefill 4 -> 1 restarts: all leave before any starts 4 NPUs, 2 NICs, its own freed 0 % 2 h 1 min 30 s",
        "decode 4 -> 1 restarts: all leave before any starts 4 NPUs, 2 NICs, its own freed 0 % 2 h 1 min 30 s",
        "epp 1 stays - - -",
        "because of modelserver (mode): replicas -> nodePlacement",
        f"outage, for about 11 min 30 s, at most 2 h 1 min 30 s: {WHY_ALL_GO}",
    ]


def test_columns_stand_below_one_another() -> None:
    table = render_table(change({}, {"modelserver": {"image": {"tag": "0.12.1"}}})).splitlines()[1:5]
    at = table[0].index("capacity")
    assert all(row[at - 1] == " " for row in table)
    assert [row[at : at + 3].strip() for row in table[1:3]] == ["100", "100"]


def test_a_first_install_is_one_line() -> None:
    wanted = accepted(**PLUGINS)
    plan = plan_stack(wanted, EMPTY_CLUSTER)
    around = Surroundings(deployments=[], volume_claims={})
    found = foresee(wanted.config, plan, around, TrialFacts(live={"rel-epp": None}))
    assert render_table(found) == (
        "nothing of rel runs yet: Pods of 4 prefill, 4 decode and 1 epp start, for 32 NPUs, 16 NICs; "
        "the compile cache is new, so they compile first"
    )


def test_what_is_not_known_at_all_is_one_line() -> None:
    blind = lines_of(change({}, {}, around=lambda around: dataclasses.replace(around, deployments=None)))
    assert blind == ["what this change does to running Pods is not known: the Deployments that run could not be read"]
    untried = lines_of(change({}, {}, trial=lambda _: TrialFacts(unknown="403 Forbidden")))
    assert untried == ["what this change does to running Pods is not known: 403 Forbidden"]


def test_a_part_that_is_not_known_is_never_an_assurance() -> None:
    def without_decode(trial: TrialFacts) -> TrialFacts:
        return dataclasses.replace(trial, results={n: r for n, r in trial.results.items() if n != "rel-decode"})

    said = lines_of(change({}, {}, trial=without_decode))
    assert "decode 4 not known - - -" in said
    assert said[-1] == "whether there is an outage is not known"
    assert "decode: the API server was not asked what it would make of it" in said


def test_a_role_that_goes_is_not_called_no_outage() -> None:
    said = lines({}, {"modelserver": {"replicas": {"prefill": 0}}})
    assert "prefill 4 -> 0 goes - 0 % 1 min 30 s" in said
    assert said[-1] == "no outage of what stays"


def test_going_back_says_what_stays() -> None:
    newer = first_plan(modelserver={"image": {"tag": "0.12.1"}})

    def stuck(world: World) -> None:
        world.roll(newer, "rel-decode", taken=0, given=1, ready=False, placed=False)

    said = lines({}, {}, meanwhile=stuck)
    assert (
        "decode 4 goes back: 4 stay, 1 leave, 0 new: rolling, 1 more and none fewer at a time - 100 % 1 min 30 s"
        in said
    )


def test_a_compile_cache_that_does_not_fit_is_said_once_for_all_roles() -> None:
    said = lines({}, {"modelserver": {"image": {"tag": "0.13.0"}}})
    assert (
        "prefill, decode: the compile cache does not fit any more, so they compile first: compiler 0.12 -> 0.13" in said
    )


def test_very_many_keys_are_counted() -> None:
    variables = {f"EXAMPLE_{i:02}": "1" for i in range(30)}
    said = lines({}, {"modelserver": {"extraServeEnv": {"decode": variables}}})
    because = [line for line in said if line.startswith(("because", "and of"))]
    assert len(because) == 12
    assert because[-1] == "and of 19 more keys"


def test_what_was_found_of_spare_devices_stands_beside_what_is_needed() -> None:
    found = change(PLUGINS, {"modelserver": {"image": {"tag": "0.12.1"}}})
    seen = tuple(dataclasses.replace(each, spare="free 0") if each.part == "decode" else each for each in found.parts)
    table = render_table(dataclasses.replace(found, parts=seen))
    assert "4 NPUs, 2 NICs (free 0)" in table
    assert table.count("free 0") == 1


def test_a_template_without_record_is_told_by_its_paths() -> None:
    def forget(world: World) -> None:
        for live in world.deployments.values():
            live["metadata"]["annotations"].clear()

    after = merged({"modelserver": {"image": {"tag": "0.12.1"}}}, {"storage": {"tmp": {"sizeLimit": "30Gi"}}})
    said = lines({}, after, meanwhile=forget)
    assert (
        "prefill, decode: it is not known what was applied before; the templates differ at "
        "spec.containers[modelserver].image, spec.initContainers[rdma-discovery].image, "
        "spec.volumes[tmp].emptyDir.sizeLimit"
    ) in said


@pytest.mark.parametrize("secret", ["hf_abcdefghijklmnopqrstuvwxyz", "https://user:pass@example.com/x"])
def test_a_secret_that_got_into_a_live_record_is_never_shown(secret: str) -> None:
    """Rules refuse it in a stack file; a record may be older than the rule."""

    def leak(world: World) -> None:
        for live in world.deployments.values():
            annotations = live["metadata"]["annotations"]
            values = json.loads(annotations["serving-stack.dev/applied"]) | {"modelserver.image.repository": secret}
            annotations["serving-stack.dev/applied"] = json.dumps(values)

    found = change({}, {"modelserver": {"image": {"tag": "0.12.1"}}}, meanwhile=leak)
    assert "modelserver.image.repository" in str(part(found, "decode").keys)
    assert secret not in render_table(found)
    assert secret not in str(found)
