"""In which order a change goes: devices are given back before others ask for them, and nothing goes before its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from local.waiting import wait_until
from tests.builders import ROOT
from tests.e2e.bench import ENTRIES, PLACED, EngineError, is_ready, without_traceback
from tests.e2e.prediction import as_foreseen
from tests.e2e.record import record
from tests.e2e.witness import part_of, uid, witness

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]

TAKES = 2
"""Pods that a role of the full cluster has: four of them take every device of the inventory."""
LEAVE_SECONDS = 60
DRAIN = {"annotations": {"local.serving-stack.dev/drain-delay": "2s"}}
LONG_DRAIN = {"annotations": {"local.serving-stack.dev/drain-delay": "12s"}}
START = {"annotations": {"local.serving-stack.dev/startup-delay": "1s"}}
PLUGINS = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: always-disagg-pd-decider
- type: disagg-profile-handler
  parameters:
    deciders:
      prefill: always-disagg-pd-decider
- type: prefill-filter
- type: decode-filter
- type: max-score-picker
schedulingProfiles:
- name: prefill
  plugins:
  - pluginRef: prefill-filter
  - pluginRef: max-score-picker
- name: decode
  plugins:
  - pluginRef: decode-filter
  - pluginRef: max-score-picker
"""


def uids(bench: Bench, selector: str = "llm-d.ai/role") -> set[str]:
    """UIDs of Pods, which must all be Ready."""
    found = bench.pods(selector)
    assert all(is_ready(pod) for pod in found)
    return {uid(pod) for pod in found}


def deployments(bench: Bench) -> set[str]:
    return {d["metadata"]["name"] for d in bench.list("apps/v1/deployments", labelSelector="llm-d.ai/role")}


def fill(bench: Bench) -> None:
    """Two Pods of each role with every device of the cluster, on a live stack."""
    bench.write_file(ROOT / "Pulumi.prod.yaml")
    bench.change(
        modelserver={"replicas": {"prefill": TAKES, "decode": TAKES}, "podOverrides": {"prefill": DRAIN}},
        storage={"compileCache": {"storageClass": "kwok-volume"}},
    )
    bench.add_what_an_operator_has()
    bench.up()
    assert len(uids(bench)) == 2 * TAKES


def place(bench: Bench, overrides: dict[str, Any]) -> None:
    """Write stack dev with an entry of each role on each node, all Pods with the same overrides."""
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(modelserver={**PLACED, "podOverrides": {"prefill": overrides, "decode": overrides}})


def test_a_role_set_to_0_on_a_full_cluster_gives_its_devices_to_the_role_that_grows_in_one_update(
    bench_of: Callable[[str], Bench],
) -> None:
    """The engine deletes last what is dropped: without its seat the new Pods would wait for devices in vain."""
    bench = bench_of("small")
    fill(bench)
    stayed, claims = uids(bench, "llm-d.ai/role=decode"), bench.volume_uids()

    bench.change(modelserver={"replicas": {"prefill": 0, "decode": 2 * TAKES}})
    foreseen = bench.foresee()
    with as_foreseen(bench, foreseen.report) as seen:
        bench.up()
    assert stayed < uids(bench, "llm-d.ai/role=decode"), "those that were there stay"
    assert deployments(bench) == {"rel-decode"}
    last_gone = seen.last(lambda what, pod: what == "DELETED" and part_of(pod) == "prefill")
    first_new = seen.first(lambda what, pod: what == "ADDED" and part_of(pod) == "decode" and uid(pod) not in stayed)
    assert 0 <= last_gone < first_new < len(seen.events)
    assert bench.volume_uids() == claims, "the cache of a role without Pods stays"
    assert bench.preview() == {}

    bench.change(modelserver={"replicas": {"prefill": TAKES, "decode": TAKES}})
    with as_foreseen(bench):
        bench.up()
    assert len(uids(bench)) == 2 * TAKES
    assert bench.volume_uids() == claims, "and is used again"
    assert bench.preview() == {}


def test_entries_that_run_are_changed_one_of_a_role_after_the_other(bench_of: Callable[[str], Bench]) -> None:
    bench = bench_of("small")
    place(bench, START)
    with as_foreseen(bench) as seen:
        bench.up()
    made = seen.last(lambda what, pod: what == "ADDED" and part_of(pod) != "epp")
    first_ready = seen.first(lambda _, pod: part_of(pod) != "epp" and is_ready(pod))
    assert made < first_ready, "in the first install all start together"

    before = uids(bench)
    bench.change(modelserver={"image": {"tag": "next"}})
    with as_foreseen(bench) as seen:
        bench.up()
    assert not before & uids(bench), "every entry has the new image"
    for role in ("prefill", "decode"):
        assert seen.fewest_ready(role) == 1, "one of two is always there"
    assert bench.preview() == {}


def test_another_node_for_one_entry_takes_all_pods_down_side_by_side(bench_of: Callable[[str], Bench]) -> None:
    """One after the other the outage would be the sum of the drains."""
    bench = bench_of("small")
    place(bench, DRAIN)
    bench.up()
    old, claims = uids(bench), bench.volume_uids()

    bench.change(modelserver={"nodePlacement": [*ENTRIES[:3], {"role": "decode", "node": "npu-0"}]})
    foreseen = bench.foresee()
    assert foreseen.objects["replace"] >= {"ConfigMap/rel-topology"}
    with as_foreseen(bench, foreseen.report) as seen:
        bench.up()
    assert len(uids(bench)) == len(ENTRIES)
    told = [
        seen.first(lambda _, pod, one=one: uid(pod) == one and "deletionTimestamp" in pod["metadata"]) for one in old
    ]
    first_gone = seen.first(lambda what, pod: what == "DELETED" and uid(pod) in old)
    last_gone = seen.last(lambda what, pod: what == "DELETED" and uid(pod) in old)
    first_new = seen.first(lambda what, pod: what == "ADDED" and part_of(pod) != "epp" and uid(pod) not in old)
    assert max(told) < first_gone, "all are told to go before the first has gone"
    assert last_gone < first_new < len(seen.events)
    assert bench.volume_uids() == claims
    assert bench.preview() == {}


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_changed_plugin_configuration_rolls_the_endpoint_picker_alone(
    bench_of: Callable[[str], Bench], replicas: int
) -> None:
    bench = bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(router={"epp": {"replicas": replicas}})
    bench.up()
    servers, epps = uids(bench), uids(bench, "app.kubernetes.io/component=epp")
    assert len(epps) == replicas

    bench.change(router={"epp": {"pluginsConfigFile": "own.yaml", "pluginsCustomConfig": {"own.yaml": PLUGINS}}})
    with as_foreseen(bench) as seen:
        bench.up()
    assert not uids(bench, "app.kubernetes.io/component=epp") & epps
    assert uids(bench) == servers
    # Of several only the leader picks, and one that comes while an old one leads stands by: they are exchanged at once.
    assert seen.fewest_ready("epp") == (1 if replicas == 1 else 0)
    assert len(bench.list("v1/configmaps", labelSelector="app.kubernetes.io/component=epp")) == 1, (
        "the old one has gone"
    )
    assert bench.preview() == {}


def test_new_pods_wait_for_a_pod_of_another_topology_whatever_made_it(bench_of: Callable[[str], Bench]) -> None:
    """The anchor takes down what it owns; a Pod that somebody else holds is waited for before anything is made."""
    bench = bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(guards={"names": "warn"})  # a Pod that its selectors match and that it did not make
    bench.plane.api.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "left",
                "namespace": bench.namespace,
                "labels": {
                    "app.kubernetes.io/instance": "rel",
                    "app.kubernetes.io/component": "prefill",
                    "serving-stack.dev/topology": "another",
                },
            },
            "spec": {"containers": [{"name": "c", "image": "c"}]},
        }
    )
    left = f"/api/v1/namespaces/{bench.namespace}/pods/left"
    said: list[str] = []
    with witness(bench) as seen:
        for line in bench.lines("up", "--yes", "--skip-preview"):
            said.append(line)
            if "waiting for devices: left of the earlier topology still there" in line and bench.plane.api.find(left):
                assert bench.pods() == [], "nothing was made yet"
                bench.plane.api.delete(left)
    gone = seen.last(lambda what, pod: what == "DELETED" and pod["metadata"]["name"] == "left")
    first = seen.first(lambda what, pod: what == "ADDED" and "llm-d.ai/role" in pod["metadata"]["labels"])
    assert 0 <= gone < first < len(seen.events), "".join(said)


# --- refusals, on one live stack --------------------------------------------------------------------------------------

UNHEARD_OF: dict[str, Any] = {
    # The configuration passes an affinity on as it is, so only the API server can tell what is wrong with it.
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1000, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
        ]
    }
}


OURS = ("release", "namespace", "cluster")
"""What a bench writes into every stack file by itself."""


def test_what_would_not_be_a_change_of_this_stack_is_refused_before_anything_is_touched(
    bench_of: Callable[[str], Bench],
) -> None:
    bench = bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.up()
    good, before = bench.blocks, uids(bench)

    for change, wanted in (
        ({"release": "another"}, ["release = another: this stack is live with release rel", "`pulumi destroy`"]),
        (
            {"namespace": "elsewhere"},
            ["namespace = elsewhere: this stack is live with namespace", "`pulumi stack init"],
        ),
        ({"cluster": {"identifier": "b"}}, ["cluster.identifier = b: this stack is live in cluster test"]),
        (
            {"modelserver": {**PLACED, "podOverrides": {"decode": {"affinity": UNHEARD_OF}}}},
            [
                "Deployment rel-decode-1",
                "Deployment rel-decode-3",
                "weight: Invalid value: 1000",
                "Nothing was changed",
            ],
        ),
    ):
        bench.change(**change)
        bench.write_over(**{key: value for key, value in change.items() if key in OURS})
        for said in (bench.refuse_preview(), bench.refuse()):
            assert all(words in said for words in wanted), said
            assert without_traceback(said)
        bench.write(**good)
    assert uids(bench) == before
    assert bench.preview() == {}


def test_nothing_is_made_for_an_anchor_that_went_since_the_engine_looked(bench_of: Callable[[str], Bench]) -> None:
    """As when an earlier change ends between the two looks: what is made then is deleted at once, owned by nobody."""
    bench = bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(modelserver={"replicas": {"prefill": 1, "decode": 0}})
    bench.up()
    bench.plane.api.delete(f"{bench.path('v1/configmaps')}/rel-topology", propagation="Foreground")
    wait_until(lambda: not deployments(bench), timeout=LEAVE_SECONDS, what="the workloads to go")
    bench.change(modelserver={"replicas": {"prefill": 1, "decode": 1}})
    with record(bench, "apps/v1/deployments") as seen, pytest.raises(EngineError) as failed:
        bench.run("up", "--yes", "--skip-preview", "--refresh=false")
    assert "Run `pulumi up` again" in str(failed.value)
    assert seen.begun("apps/v1/deployments") == []

    bench.up()
    assert bench.parts().counts == {"prefill": 1, "decode": 1, "epp": 1}


def test_an_anchor_deleted_by_hand_takes_the_servers_down_and_one_update_brings_all_back(
    bench_of: Callable[[str], Bench],
) -> None:
    bench = bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(modelserver={"podOverrides": {"decode": LONG_DRAIN}})
    bench.up()
    before, claims = uids(bench), bench.volume_uids()
    anchor = f"/api/v1/namespaces/{bench.namespace}/configmaps/rel-topology"
    assert (
        "deleting it takes them all down"
        in bench.plane.api.get(anchor)["metadata"]["annotations"]["serving-stack.dev/warning"]
    )

    bench.plane.api.delete(anchor)
    bench.up()
    again = uids(bench)
    assert len(again) == len(before)
    assert not again & before

    bench.plane.api.delete(anchor, propagation="Foreground")
    said = bench.refuse()
    assert "an earlier change is still under way" in said
    assert "Run `pulumi up` again" in said
    assert bench.pods() == [], "it has waited for the end of that change"
    with as_foreseen(bench):
        bench.up()
    assert len(uids(bench)) == len(before)
    assert not uids(bench) & again
    assert bench.volume_uids() == claims
    assert bench.preview() == {}
