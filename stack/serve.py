"""How a role serves: its vLLM arguments, environment and ports.

Arguments are merged recipe <- `modelserver.serveArgs.common` <- `modelserver.serveArgs.<role>`,
`modelserver.removeServeArgs` takes names out again, and `modelserver.extraServeArgs.<role>` is appended as written, so
that its last duplicate wins. What depends on other parts of the stack (port, model, ranks of this Pod, side channel) is
computed here and cannot be set.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import yaml

from stack.drain import FLAG as SHUTDOWN_TIMEOUT
from stack.drain import plan_drain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stack.config.root import StackConfig
    from stack.drain import RoleDrain
    from stack.recipes.model import Recipe
    from stack.scalars import Role

API_PORT = 8000
"""Where clients and the EPP reach a server that has no proxy before it."""
CONFIG_DIR = "/etc/serving-stack"
CONFIG_FILE = "serve.yaml"
COMMAND = ("vllm", "serve")
EXTERNAL_LB = "data-parallel-multi-port-external-lb"


@dataclass(frozen=True, kw_only=True)
class RoleServe:
    """One role's way of serving.

    Attributes:
        tensor, pipeline, data: ranks in each dimension; their product is the number of accelerators used.
        served_args: content of the vLLM config file (flag without dashes -> value).
        extra_args: appended on the command line, where they win over the file.
        env: environment as Kubernetes writes it, sorted by name.
        server_ports: ports the engine listens on, one per API server.
        active_ports: ports the EPP may send requests to (the proxy's, where there is one).
        side_channel_ports: NIXL side-channel ports, one per data-parallel rank; empty without KV transfer.
        drain: how its Pods leave.
    """

    role: Role
    tensor: int
    pipeline: int
    data: int
    model_argument: str
    served_args: Mapping[str, Any]
    extra_args: tuple[str, ...]
    env: tuple[Mapping[str, Any], ...]
    server_ports: tuple[int, ...]
    active_ports: tuple[int, ...]
    side_channel_ports: tuple[int, ...]
    drain: RoleDrain

    @property
    def accelerators(self) -> int:
        """Accelerators the engine of one Pod drives."""
        return self.tensor * self.pipeline * self.data

    @cached_property
    def config_text(self) -> str:
        """The vLLM config file; vLLM reads objects as JSON text. Written once, since writing YAML takes longest."""
        return yaml.safe_dump(
            {flag: arg_value(value) for flag, value in self.served_args.items()},
            sort_keys=True,
            default_flow_style=False,
            width=10_000,
        )


def arg_value(value: Any) -> Any:
    """An argument's value as the config file holds it."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else value


def given_args(config: StackConfig, recipe: Recipe, role: Role) -> dict[str, Any]:
    """Serve arguments of a role as given, without those taken out by name; `false` still stands for a flag left out.

    The engine's drain is computed; one that is written by hand is held against it by the rules, and left out here.
    """
    blocks = config.modelserver.serve_args
    merged = {**recipe.args_for(role), **blocks.common, **blocks.of(role)}
    removed = {*config.modelserver.remove_serve_args, SHUTDOWN_TIMEOUT}
    return {flag: value for flag, value in merged.items() if flag not in removed}


def merge_args(config: StackConfig, recipe: Recipe, role: Role) -> dict[str, Any]:
    """Serve arguments of a role before anything computed: flag without dashes -> value; `false` leaves a flag out."""
    return {flag: value for flag, value in given_args(config, recipe, role).items() if value is not False}


def split_argument(argument: str) -> tuple[str, Any]:
    """Flag (without dashes, words joined by '-') and value of `--flag=value`; a bare flag is true.

    Whole numbers are read as such, so that a number means the same wherever it is written.
    """
    name, equals, value = argument.lstrip("-").partition("=")
    head, dot, rest = name.partition(".")
    flag = f"{head.replace('_', '-')}{dot}{rest}"
    if not equals:
        return flag, True
    return flag, int(value) if re.fullmatch(r"[0-9]{1,18}", value) else value


def in_force_args(args: Mapping[str, Any], appended: tuple[str, ...]) -> dict[str, Any]:
    """Serve arguments as the engine will see them: what is appended wins, and its values are text or whole numbers."""
    return {**args, **dict(map(split_argument, appended))}


def plan_serve(config: StackConfig, recipe: Recipe, role: Role, *, is_disaggregated: bool) -> RoleServe:
    """Settle how a role serves."""
    args = merge_args(config, recipe, role)
    appended = config.modelserver.extra_serve_args.of(role)
    tensor, pipeline, data = (args.get(f"{kind}-parallel-size", 1) for kind in ("tensor", "pipeline", "data"))
    has_port_per_rank = _has_port_per_rank(args, appended)
    ranks = data if has_port_per_rank else 1
    is_proxied = role == "decode" and is_disaggregated
    proxy = config.routing.proxy
    first = proxy.model_server_port if is_proxied else API_PORT
    active_first = proxy.port if is_proxied else API_PORT
    side_channel_ports = _side_channel_ports(config, role, data) if is_disaggregated else ()
    server_ports = tuple(range(first, first + ranks))
    drain = plan_drain(
        config,
        recipe,
        role,
        in_force_args(args, appended) | {EXTERNAL_LB: has_port_per_rank},
        merge_env(config, recipe, role),
        is_disaggregated=is_disaggregated,
        ports=server_ports,
    )

    store = config.storage.model
    model = config.modelserver.model or recipe.model
    model_argument = f"{store.mount_path}/{store.path}" if store.path else model
    args |= {"port": first, "served-model-name": model}
    if drain.flag is not None:
        args[SHUTDOWN_TIMEOUT] = drain.flag
    if data > 1:
        args["data-parallel-size-local"] = data  # a Pod holds all ranks of its engine: one claim, one NUMA node
    tracing = config.tracing
    if tracing.enabled:
        args["otlp-traces-endpoint"] = tracing.collector.endpoint
    return RoleServe(
        role=role,
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        model_argument=model_argument,
        served_args=dict(sorted(args.items())),
        extra_args=appended,
        env=tuple(_environment(config, recipe, role, side_channel_ports)),
        server_ports=server_ports,
        active_ports=tuple(range(active_first, active_first + ranks)),
        side_channel_ports=side_channel_ports,
        drain=drain,
    )


def _has_port_per_rank(args: Mapping[str, Any], extra_args: tuple[str, ...]) -> bool:
    """Whether every data-parallel rank has an API server of its own; what is appended wins."""
    appended = [argument.lstrip("-").partition("=")[0].replace("_", "-") for argument in extra_args]
    last = [flag for flag in appended if flag in {EXTERNAL_LB, f"no-{EXTERNAL_LB}"}][-1:]
    return last == [EXTERNAL_LB] if last else bool(args.get(EXTERNAL_LB))


def _side_channel_ports(config: StackConfig, role: Role, data: int) -> tuple[int, ...]:
    base = config.devices.rdma.side_channel.base_port.of(role)
    return tuple(range(base, base + data))


def _environment(
    config: StackConfig, recipe: Recipe, role: Role, side_channel_ports: tuple[int, ...]
) -> list[dict[str, Any]]:
    """What follows from the volumes <- token <- what is written <- what is computed."""
    values: dict[str, Any] = default_env(config)
    token = config.modelserver.hf_token_secret
    if token is not None:
        values["HF_TOKEN"] = {"secretKeyRef": {"name": token.name, "key": token.key}}
    values |= merge_env(config, recipe, role)
    if side_channel_ports:
        host = config.devices.rdma.side_channel.host
        values["VLLM_NIXL_SIDE_CHANNEL_HOST"] = host or {"fieldRef": {"fieldPath": "status.podIP"}}
        values["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(side_channel_ports[0])  # vLLM adds the rank itself
    if config.tracing.enabled:
        values |= tracing_env(config, service=f"vllm-{role}")
    return [env_entry(name, value) for name, value in sorted(values.items())]


def default_env(config: StackConfig) -> dict[str, str]:
    """Environment that follows from the volumes; anything written wins over it."""
    values = {
        "HOME": "/tmp",  # noqa: S108  # the root filesystem is read-only and the image's user has no home
        "VLLM_CACHE_ROOT": f"{config.storage.compile_cache.mount_path}/.cache",
    }
    if not config.storage.model.path:
        values["HF_HOME"] = config.storage.model.mount_path
    return values


def merge_env(config: StackConfig, recipe: Recipe, role: Role) -> dict[str, Any]:
    """Environment as written: recipe <- `modelserver.serveEnv` <- `modelserver.extraServeEnv.<role>`."""
    values: dict[str, Any] = dict(recipe.env_for(role))
    for given in (config.modelserver.serve_env, config.modelserver.extra_serve_env.of(role)):
        values |= {name: env_value(value) for name, value in given.items()}
    return values


def env_value(value: Any) -> Any:
    """A configured environment value as text, or as the reference it is."""
    if isinstance(value, str | int):
        return str(value)
    return value.model_dump(by_alias=True, exclude_none=True)


def env_entry(name: str, value: Any) -> dict[str, Any]:
    """One entry of a container's `env`."""
    return {"name": name, "valueFrom": value} if isinstance(value, dict) else {"name": name, "value": str(value)}


def tracing_env(config: StackConfig, *, service: str) -> dict[str, str]:
    """OpenTelemetry variables of one traced process."""
    tracing = config.tracing
    return {
        "OTEL_SERVICE_NAME": service,
        "OTEL_EXPORTER_OTLP_ENDPOINT": tracing.collector.endpoint,
        # vLLM reads this one and no other, and speaks gRPC without it (vLLM, `tracing`, get_span_exporter).
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": tracing.collector.protocol,
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_TRACES_SAMPLER": tracing.sampler,
        "OTEL_TRACES_SAMPLER_ARG": tracing.sampler_arg,
    }
