"""Probes and the two clocks that follow from them: the start-up budget and the progress deadline.

Startup budget = initial delay + period x failures of the startup probe: model load and first compile must fit into it
(*Startup and readiness probes*). Kubernetes' default progress deadline of 600 s would call a healthy compiling
Deployment failed, so it is the budget here, plus the grace period: with `maxSurge: 0` the new Pod first waits for the
old one to leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stack.drain import RESTART_GRACE_SECONDS

if TYPE_CHECKING:
    from stack.config.root import StackConfig
    from stack.recipes.model import Recipe
    from stack.serve import RoleServe

PROBES = ("startup", "readiness", "liveness")
RESTARTING = ("startup", "liveness")
"""Probes whose failure restarts the container; Kubernetes takes a grace period of their own for these alone."""


def probe_numbers(config: StackConfig, recipe: Recipe, probe: str) -> dict[str, Any]:
    """Path and numbers of a probe: the recipe's, with what `modelserver.probes` says over them."""
    numbers = getattr(recipe.probes, probe).model_dump(by_alias=True)
    given = getattr(config.modelserver.probes, probe)
    return numbers | (given.model_dump(by_alias=True, exclude_none=True) if given is not None else {})


def startup_budget_seconds(config: StackConfig, recipe: Recipe) -> int:
    """Longest time from container start to Ready, in seconds."""
    numbers = probe_numbers(config, recipe, "startup")
    return numbers["initialDelaySeconds"] + numbers["periodSeconds"] * numbers["failureThreshold"]


def render_probes(config: StackConfig, recipe: Recipe, serve: RoleServe) -> dict[str, Any]:
    """The container's `startupProbe`, `readinessProbe` and `livenessProbe`.

    They ask the engine itself and never the proxy before it. Where every data-parallel rank has an API server of its
    own, all of them are asked: asking rank 0 alone would mark a Pod ready while the others still load.
    """
    probes: dict[str, Any] = {}
    for probe in PROBES:
        numbers = probe_numbers(config, recipe, probe)
        path = numbers.pop("path")
        if len(serve.server_ports) == 1:
            check: dict[str, Any] = {"httpGet": {"path": path, "port": serve.server_ports[0]}}
        else:
            check = {"exec": {"command": _ask_all(path, serve.server_ports, numbers["timeoutSeconds"])}}
        probes[f"{probe}Probe"] = check | {key: value for key, value in numbers.items() if value}
        if probe in RESTARTING and serve.drain.hook is not None:
            # It ends the hook too: an engine that hangs counts as busy, and would hang on for the whole drain.
            probes[f"{probe}Probe"]["terminationGracePeriodSeconds"] = RESTART_GRACE_SECONDS
    return probes


ASK_ALL = """\
import sys
from concurrent.futures import ThreadPoolExecutor
from urllib.request import ProxyHandler, build_opener
path, timeout, *ports = sys.argv[1:]
ask = build_opener(ProxyHandler({})).open
with ThreadPoolExecutor(len(ports)) as pool:
    for answer in pool.map(lambda port: ask(f"http://127.0.0.1:{port}{path}", timeout=int(timeout)), ports):
        answer.close()
"""
"""Asks every port at the same time, so that the time-out is that of each as with an HTTP probe, and never by a proxy
that the environment names. An answer from 400 up raises, which fails the probe."""


def _ask_all(path: str, ports: tuple[int, ...], timeout: int) -> list[str]:
    """Path and numbers are arguments, so that no character of a path can change the program."""
    return ["python3", "-c", ASK_ALL, path, str(timeout), *map(str, ports)]
