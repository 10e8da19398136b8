"""How a model server leaves: the way out of each role, its arithmetic, and the hook that walks it.

Kubernetes runs a Pod's preStop hook when the Pod is deleted, at the same moment as it tells routers and Services, sends
SIGTERM to the main process of each container when the hook is over, and SIGKILL at the end of the grace period, whose
clock starts with the hook. vLLM aborts every running request at SIGTERM unless `--shutdown-timeout` says how long it
may go on. So four things have to fit one another (hook, flag, grace period, process namespace), and all of them come
from here; ADR 0024 has the reasons.

Sources: vLLM `vllm/entrypoints/cli/serve.py` (number of API processes), `vllm/entrypoints/openai/dp_supervisor.py`
(SIGTERM is forwarded to each rank, which has `--shutdown-timeout` + 5 s), `vllm/entrypoints/launcher.py` (drain at
SIGTERM; vllm#36666, since 0.18.0), NIXL connector (`kv_lease_duration`). What a drain costs in a change is computed in
`stack.impact`; how long the endpoint picker takes to leave in `stack.epp.drain`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stack.config.root import StackConfig
    from stack.recipes.model import Recipe
    from stack.scalars import Role

RoleMode = Literal["native", "idle", "off"]

FLAG: Final = "shutdown-timeout"
API_SERVERS: Final = "api-server-count"
MULTI_PORT_LB: Final = "data-parallel-multi-port-external-lb"
LOG_STATS_OFF: Final = "disable-log-stats"
"""With it an engine's `/metrics` tells nothing of its requests (vLLM `vllm/v1/engine/async_llm.py`)."""
VLLMS_OWN_IMAGE: Final = "vllm-openai"
"""Name of vLLM's own image, also in a mirror."""
FIRST_NATIVE: Final = Version("0.18.0")
"""First vLLM with `--shutdown-timeout`; an older one stops at the unknown flag (vllm#36666)."""
FIRST_LEASE: Final = Version("0.22.0")
"""First vLLM whose prefill engines hold blocks under a lease; before, for VLLM_NIXL_ABORT_REQUEST_TIMEOUT."""
LEASE_SECONDS: Final = 30
"""vLLM's `kv_lease_duration` where none is given (NIXL connector)."""
OLD_HOLD_SECONDS: Final = 480
"""vLLM's VLLM_NIXL_ABORT_REQUEST_TIMEOUT where none is given."""
PULL_SECONDS: Final = 30
ABORT_GRACE_SECONDS: Final = 30
"""Kubernetes' own grace period, where nothing drains."""
RESTART_GRACE_SECONDS: Final = 30
"""For a container that fails its liveness or startup probe: it serves nobody, and must not stay for a whole drain."""

PYTHON: Final = ("python3", "-I", "-S", "-c")
"""Nothing but the standard library: no module of the working directory takes the place of one of its own, and nothing
that the image's packages do at every start (`.pth` files) makes the hook late."""
LEAVE: Final = (resources.files("stack.hooks") / "leave.py").read_text(encoding="utf-8")
"""The preStop hook. Its numbers are arguments, so that one text serves all: router delay, whether to wait until idle,
for how long at most, time for pulls, and the engine's ports.

Whether an engine serves is read from the kernel's tables of this network namespace, which is the Pod's: vLLM binds its
port first and listens when it has loaded (`vllm/entrypoints/openai/api_server.py`). An engine that loads has nothing to
drain and does not hear SIGTERM, so everything is killed at once, and so it is after a drain of which a rank is missing.
Otherwise SIGTERM is Kubernetes' to send, when the hook is over.
"""


@dataclass(frozen=True, kw_only=True)
class RoleDrain:
    """The way out of one role's Pods; all times in whole seconds.

    Attributes:
        mode: `native` (the engine drains at SIGTERM), `idle` (the hook waits until nothing runs), or `off`.
        why: one sentence: why this mode.
        delay: from the deletion until nothing new is sent to the Pod.
        timeout: N, the longest time that running requests get after that; 0 with `off`.
        pull: for which prompts that a prefill Pod has computed can still be pulled after that; 0 for other roles.
        margin: from there to SIGKILL.
        is_pulled_from: whether it is prefill of a P/D pair: decode Pods pull blocks from it.
        ports: the engine's ports, of which the hook asks each.
    """

    role: Role
    mode: RoleMode
    why: str
    delay: int
    timeout: int
    pull: int
    margin: int
    is_pulled_from: bool
    ports: tuple[int, ...]

    @property
    def grace(self) -> int:
        """terminationGracePeriodSeconds: the whole way, hook included."""
        return ABORT_GRACE_SECONDS if self.mode == "off" else self.delay + self.timeout + self.pull + self.margin

    @property
    def watches(self) -> bool:
        """Whether the hook waits for requests to end: also where the engine would, if its drain forgets the pulls."""
        return self.mode == "idle" or (self.mode == "native" and self.is_pulled_from)

    @property
    def longest_hook(self) -> int:
        """Longest time that the preStop hook may take: where a rank is missing it waits in either mode."""
        return self.delay + self.timeout + self.pull

    @property
    def arithmetic(self) -> str:
        """The grace period as a sum, for letters."""
        if self.mode == "off":
            return f"grace period {self.grace} s, no drain"
        pulls = f" + {self.pull} (KV pulls)" if self.pull else ""
        return (
            f"grace period {self.grace} s = {self.delay} (router) + {self.timeout} (drain){pulls} + {self.margin} "
            "(margin)"
        )

    @property
    def flag(self) -> int | None:
        """Value of `--shutdown-timeout`; None where the flag is not rendered."""
        return self.timeout if self.mode == "native" else None

    @property
    def hook(self) -> list[str] | None:
        """Command of the preStop hook; None where there is none."""
        if self.mode == "off":
            return None
        numbers = (self.delay, int(self.watches), self.timeout, self.pull)
        return [*PYTHON, LEAVE, *map(str, (*numbers, *self.ports))]

    @property
    def shares_process_namespace(self) -> bool:
        """Whether PID 1 is the sandbox's pause process, so that the hook can end a container's main process."""
        return self.mode != "off"


def plan_drain(
    config: StackConfig,
    recipe: Recipe,
    role: Role,
    args: Mapping[str, Any],
    env: Mapping[str, Any],
    *,
    is_disaggregated: bool,
    ports: tuple[int, ...],
) -> RoleDrain:
    """Settle the way out of a role's Pods.

    Args:
        config: the configuration.
        recipe: its recipe.
        role: the role.
        args: serve arguments as the engine will see them: flag -> value, those appended included.
        env: environment of the engine: name -> text, or a reference, whose text is not known.
        is_disaggregated: whether prefill and decode are apart.
        ports: the engine's ports.
    """
    block = config.drain
    mode, why = _choose(config, recipe, role, args, env)
    timeout = block.shutdown_timeout_seconds.of(role) or recipe.shutdown_timeout_seconds.of(role)
    is_pulled_from = role == "prefill" and is_disaggregated and bool(args.get("kv-transfer-config"))
    pull = 0
    if is_pulled_from and mode != "off":
        lease = kv_lease_seconds(config, recipe, args, env)
        given = block.kv_pull_seconds
        pull = given if given is not None else min(PULL_SECONDS, PULL_SECONDS if lease is None else lease)
    return RoleDrain(
        role=role,
        mode=mode,
        why=why,
        delay=0 if mode == "off" else block.router_delay_seconds,
        timeout=0 if mode == "off" else timeout,
        pull=pull,
        margin=0 if mode == "off" else block.margin_seconds,
        is_pulled_from=is_pulled_from,
        ports=ports,
    )


def _choose(
    config: StackConfig, recipe: Recipe, role: Role, args: Mapping[str, Any], env: Mapping[str, Any]
) -> tuple[RoleMode, str]:
    given = config.drain.mode
    if given == "off":
        return "off", "drain.mode is off, so running streams are cut"
    if given == "native":
        return "native", "drain.mode is native"
    if given == "idle":
        return "idle", "drain.mode is idle"
    against = against_native(config, recipe, role, args, env)
    if against is not None:
        return "idle", against
    version = engine_version(config, recipe)  # not None: it is not against native
    kept = "one API process" if not args.get(MULTI_PORT_LB) else "one API process for each rank"
    return "native", f"vLLM {version} has --{FLAG}, and there is {kept}"


def against_native(
    config: StackConfig, recipe: Recipe, role: Role, args: Mapping[str, Any], env: Mapping[str, Any]
) -> str | None:
    """Why the engine of a role cannot drain at SIGTERM; None if it can."""
    found = engine_version(config, recipe)
    version = parse_version(found)
    if version is None:
        source = "from its image" if found is None else f"by {found}"
        return (
            f"the engine's version cannot be told {source}, and an older vLLM stops at --{FLAG}; drain.engineVersion "
            "says it"
        )
    if version < FIRST_NATIVE:
        return f"vLLM {found} has no --{FLAG}, which came with {FIRST_NATIVE}"
    if _has_rust_frontend(env):
        return "the Rust frontend is a process of its own, which stops before the engine"
    count = api_processes(args)
    if count is None:
        return f"{role} engines have an --{API_SERVERS} that is no number, and several API processes stop first"
    if count > 1:
        return f"{count} API processes share the engine and stop before it, which freezes every stream"
    return None


def engine_version(config: StackConfig, recipe: Recipe) -> str | None:
    """The vLLM version that the drain is chosen for; None where nothing tells it.

    An image of vLLM itself is called by its version, perhaps with more behind it (`v0.17.1-cu130`); a digest, another
    tag, or the tag of a repository with another name tells nothing. The image of a plugin is called by the plugin's
    version, and is taken for what the recipe was written for, as it has to be for the recipe's arguments.
    """
    if config.drain.engine_version is not None:
        return config.drain.engine_version
    image = config.modelserver.image
    is_recipes = image.repository is None and image.tag is None and image.digest is None
    if recipe.engine.name != "vllm" or is_recipes:
        return recipe.engine.vllm
    repository = image.repository or recipe.image.repository
    if image.digest is not None or (
        repository != recipe.image.repository and repository.rpartition("/")[2] != VLLMS_OWN_IMAGE
    ):
        return None
    version = (image.tag or recipe.image.tag or "").partition("-")[0]
    if not re.match(r"v?[0-9]+\.[0-9]+\.[0-9]", version) or parse_version(version) is None:
        return None
    return version.removeprefix("v")


def parse_version(text: str | None) -> Version | None:
    """A version as packages write it, with or without `v`; None if it is none."""
    try:
        return None if text is None else Version(text)
    except InvalidVersion:
        return None


def api_processes(args: Mapping[str, Any]) -> int | None:
    """API processes that share one engine client's engines; None if the number given is none.

    vLLM starts as many as there are data-parallel ranks, unless something else balances the load (external, or several
    ports with a supervisor), and as many as there are local ranks with hybrid balancing. All ranks of an engine are in
    one Pod here.
    """
    if args.get(MULTI_PORT_LB):
        return 1
    given = _number(args.get(API_SERVERS, 0))
    if given is None:
        return None
    if given == 0:
        is_external = bool(args.get("data-parallel-external-lb")) or args.get("data-parallel-rank") is not None
        given = 1 if is_external else _number(args.get("data-parallel-size", 1))
    if given is not None and args.get("enable-elastic-ep"):
        return 1
    return given


def _number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() else None


def _has_rust_frontend(env: Mapping[str, Any]) -> bool:
    """A path alone, in vLLM 0.20 and later with a switch beside it (`vllm/envs.py`)."""
    switch = env.get("VLLM_USE_RUST_FRONTEND")
    if switch is not None:
        return str(switch).lower() not in {"0", "false", ""}
    return bool(env.get("VLLM_RUST_FRONTEND_PATH"))


def kv_lease_seconds(
    config: StackConfig, recipe: Recipe, args: Mapping[str, Any], env: Mapping[str, Any]
) -> int | None:
    """How long a prefill engine holds the blocks of a finished prompt; None where it is not known.

    The connector's lease (`kv_lease_duration`), in vLLM before 0.22 VLLM_NIXL_ABORT_REQUEST_TIMEOUT. Decode engines
    prolong a lease while they wait, which nobody may rely on.
    """
    leases: list[int] = []
    for connector in _connectors(args.get("kv-transfer-config")):
        if "nixl" not in str(connector.get("kv_connector", "")).lower():
            continue
        given = _number(_extra(connector).get("kv_lease_duration"))
        if given is not None:
            leases.append(given)
        else:
            version = parse_version(engine_version(config, recipe))
            is_old = version is not None and version < FIRST_LEASE
            held = _number(env.get("VLLM_NIXL_ABORT_REQUEST_TIMEOUT", OLD_HOLD_SECONDS))
            leases.append((held or LEASE_SECONDS) if is_old else LEASE_SECONDS)
    return min(leases, default=None)


def _connectors(value: object) -> Iterator[Mapping[str, Any]]:
    """The connector of a `kv-transfer-config`, and those inside a MultiConnector."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return
    if not isinstance(value, dict):
        return
    connector = cast("Mapping[str, Any]", value)
    yield connector
    inner: object = _extra(connector).get("connectors")
    if isinstance(inner, list):
        for each in cast("list[object]", inner):
            yield from _connectors(each)


def _extra(connector: Mapping[str, Any]) -> Mapping[str, Any]:
    extra: object = connector.get("kv_connector_extra_config")
    return cast("Mapping[str, Any]", extra) if isinstance(extra, dict) else {}
