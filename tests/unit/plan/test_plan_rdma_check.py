"""The check before the model server, run by a real shell against a folder that stands for sysfs."""

from __future__ import annotations

import resource
import subprocess
from typing import TYPE_CHECKING

import pytest

from stack.modelserver import RDMA_CHECK, RDMA_CHECK_PRIVILEGED
from tests.builders import container, environment, plan, pod

if TYPE_CHECKING:
    from pathlib import Path

UNLIMITED = (
    "ulimit -l unlimited"
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY
    else "ulimit() { echo unlimited; }"  # a machine that does not allow it: say what such a node would
)


def port(sysfs: Path, device: str, state: str, number: int = 1) -> Path:
    folder = sysfs / "class" / "infiniband" / device / "ports" / str(number)
    folder.mkdir(parents=True)
    (folder / "state").write_text(f"{state}\n")
    return folder / "state"


def check(
    sysfs: Path, *, needed: int = 2, timeout: int = 0, before: str = UNLIMITED, script: str = RDMA_CHECK
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", f"{before}\n{script}"],
        env={
            "PATH": f"{sysfs}/bin:/usr/bin:/bin",
            "SYSFS": str(sysfs),
            "RDMA_PORTS_NEEDED": str(needed),
            "RDMA_DISCOVERY_TIMEOUT_SECONDS": str(timeout),
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_it_passes_with_enough_active_ports(tmp_path: Path) -> None:
    port(tmp_path, "bnxt_re0", "4: ACTIVE")
    port(tmp_path, "bnxt_re1", "4: ACTIVE")
    found = check(tmp_path)
    assert (found.returncode, found.stderr) == (0, "")


def test_two_ports_of_one_card_count_as_two(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", "4: ACTIVE", 1)
    port(tmp_path, "mlx5_0", "4: ACTIVE", 2)
    assert check(tmp_path).returncode == 0


@pytest.mark.parametrize("state", ["1: DOWN", "2: INIT", "3: ARMED", "5: ACTIVE_DEFER"])
def test_a_port_does_not_count_in_state(tmp_path: Path, state: str) -> None:
    port(tmp_path, "bnxt_re0", "4: ACTIVE")
    port(tmp_path, "bnxt_re1", state)
    found = check(tmp_path)
    assert found.returncode == 1
    assert "1 of 2 RDMA ports active" in found.stderr


def test_a_node_without_any_rdma_device_fails_and_says_so(tmp_path: Path) -> None:
    found = check(tmp_path)
    assert found.returncode == 1
    assert "0 of 2 RDMA ports active after 0 s" in found.stderr


def test_a_port_that_comes_up_while_it_waits_is_found(tmp_path: Path) -> None:
    late = port(tmp_path, "bnxt_re0", "1: DOWN")
    sleep = tmp_path / "bin" / "sleep"  # in place of a second of waiting the port comes up
    sleep.parent.mkdir()
    sleep.write_text(f"#!/bin/sh\necho '4: ACTIVE' > {late}\n")
    sleep.chmod(0o755)
    assert check(tmp_path, needed=1, timeout=5).returncode == 0


def test_it_gives_up_after_the_time_out(tmp_path: Path) -> None:
    sleep = tmp_path / "bin" / "sleep"
    sleep.parent.mkdir()
    sleep.write_text("#!/bin/sh\n")
    sleep.chmod(0o755)
    found = check(tmp_path, timeout=7)
    assert found.returncode == 1
    assert "after 7 s" in found.stderr


def test_limited_memlock_fails_before_any_port_is_looked_at(tmp_path: Path) -> None:
    port(tmp_path, "bnxt_re0", "4: ACTIVE")
    found = check(tmp_path, needed=1, before="ulimit -l 64")
    assert found.returncode == 1
    assert "memlock is limited to 64 KiB" in found.stderr
    assert "unlimited memlock" in found.stderr, "says what to do"


@pytest.mark.parametrize(
    ("may_raise", "script", "want_code"),
    [
        pytest.param(True, RDMA_CHECK_PRIVILEGED, 0, id="a privileged Pod raises it, as its model server will"),
        pytest.param(False, RDMA_CHECK_PRIVILEGED, 1, id="a privileged Pod that may not after all"),
        pytest.param(True, RDMA_CHECK, 1, id="another Pod does not, since its model server will not either"),
    ],
)
def test_where_the_runtime_limits_memlock(tmp_path: Path, may_raise: bool, script: str, want_code: int) -> None:
    port(tmp_path, "bnxt_re0", "4: ACTIVE")
    limited = f"""
    limit=64
    ulimit() {{
      [ "$#" -eq 1 ] && {{ echo "$limit"; return; }}
      {"limit=$2" if may_raise else "return 1"}
    }}"""
    found = check(tmp_path, needed=1, before=limited, script=script)
    assert found.returncode == want_code
    assert ("memlock is limited to 64 KiB" in found.stderr) == (want_code == 1)


def test_only_privileged_roles_raise_memlock_in_the_check() -> None:
    override = {"securityContext": {"privileged": True, "allowPrivilegeEscalation": True}}
    whole = plan(modelserver={"podOverrides": {"prefill": override}})
    scripts = {r: container(pod(whole, r), "rdma-discovery")["command"][2] for r in ("prefill", "decode")}
    assert scripts == {"prefill": RDMA_CHECK_PRIVILEGED, "decode": RDMA_CHECK}


@pytest.mark.parametrize(
    ("devices", "want_needed"),
    [
        pytest.param({}, "1", id="the operator's template decides: at least one"),
        pytest.param(
            {"rdma": {"mode": "devicePlugin", "resourceName": "rdma/hca", "count": 2}}, "2", id="two by device plugin"
        ),
        pytest.param(
            {
                "claimTemplate": {
                    "requests": [
                        {"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 4},
                        {"name": "nic", "deviceClassName": "dranet", "count": 2},
                    ]
                }
            },
            "2",
            id="two by a managed claim",
        ),
        pytest.param(
            {
                "claimTemplate": {
                    "requests": [
                        {"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 4},
                        {"name": "nic", "deviceClassName": "sriov.example.com", "count": 2},
                    ]
                }
            },
            "1",
            id="NICs of a class that the recipe does not know: still at least one",
        ),
    ],
)
def test_a_pod_waits_for_as_many_ports_as_it_gets(devices: dict[str, object], want_needed: str) -> None:
    for role in ("prefill", "decode"):
        found = environment(container(pod(plan(devices=devices), role), "rdma-discovery"))
        assert found == {"RDMA_PORTS_NEEDED": want_needed, "RDMA_DISCOVERY_TIMEOUT_SECONDS": "300"}


def test_without_rdma_nothing_is_checked() -> None:
    spec = pod(plan(devices={"rdma": {"enabled": False}}), "prefill")
    assert "initContainers" not in spec
