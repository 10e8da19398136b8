"""Rules about the engines' arguments: what is computed, what excludes one another, what the engine would refuse.

Sources: vLLM `vllm/engine/arg_utils.py` (short forms), `vllm/config/scheduler.py` (batch sizes); vllm-rbln 0.12.0
`vllm_rbln/platform/vllm_impl.py` (chunked prefill, batch sizes with pipeline or data parallelism); vLLM's NIXL
connector (`compute_nixl_compatibility_hash` covers the cache type); flag names from the packages the recipe names.

Decisions: parallelism belongs into `serveArgs`, where the planner counts it, and is refused in `extraServeArgs` in
every spelling. Short forms are refused otherwise too, since duplicates could not be told. A flag that the recipe's
engine does not know is refused; with an image of the operator's own it is a warning, which may hold another engine.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stack.config.shape import near_key
from stack.errors import show
from stack.recipes.flags import has_flag, serve_flags
from stack.rules.rule import (
    MOST_RANKS,
    PARALLEL_FLAGS,
    Finding,
    Rule,
    Setting,
    error,
    is_count,
    once,
    rule,
    warning,
)
from stack.scalars import ROLES, Role
from stack.serve import split_argument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COMPUTED: Final[Mapping[str, str]] = {
    "config": "is how the stack hands over the arguments. Write the arguments themselves under modelserver.serveArgs",
    "data-parallel-size-local": "follows from data-parallel-size, since a Pod holds all ranks. Set that",
    "headless": "turns off the API, and nothing could be served. Remove it",
    "host": "must stay at all addresses, which probes, proxy and endpoint picker rely on. Remove it",
    "model": "is modelserver.model. Set that",
    "model-tag": "is modelserver.model. Set that",
    "port": "is 8000, or routing.proxy.modelServerPort on decode Pods. Set that",
    "served-model-name": "is modelserver.model, by which clients, endpoint picker and metrics know it. Set that",
    "ssl-certfile": "turns on TLS, and probes, proxy and endpoint picker speak HTTP. End TLS at the gateway",
    "ssl-keyfile": "turns on TLS, and probes, proxy and endpoint picker speak HTTP. End TLS at the gateway",
    "uds": "replaces the port by a socket, which nothing could reach. Remove it",
}
SHORT_FORMS: Final[Mapping[str, str]] = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "dpl": "data-parallel-size-local",
    "dpn": "data-parallel-rank",
    "dpr": "data-parallel-start-rank",
    "dpa": "data-parallel-address",
    "dpp": "data-parallel-rpc-port",
    "dph": "data-parallel-hybrid-lb",
    "dpb": "data-parallel-backend",
    "dcp": "decode-context-parallel-size",
    "pcp": "prefill-context-parallel-size",
    "ep": "enable-expert-parallel",
    "q": "quantization",
    "O": "optimization-level",
}
_COUNTS: Final = (
    *PARALLEL_FLAGS.values(),
    "block-size",
    "max-model-len",
    "max-num-batched-tokens",
    "max-num-seqs",
    "data-parallel-rpc-port",
)
_NOT_PARALLEL: Final = "Write it under modelserver.serveArgs.{role}, where its devices are counted"


def are_not_computed(setting: Setting) -> Iterator[Finding]:
    """Flags that the stack sets itself."""
    modelserver = setting.config.modelserver
    places: list[tuple[str, str, object]] = []
    for where, block in (
        ("common", modelserver.serve_args.common),
        *((r, modelserver.serve_args.of(r)) for r in ROLES),
    ):
        places += [(f"modelserver.serveArgs.{where}.{flag}", flag, value) for flag, value in block.items()]
    for role in ROLES:
        for index, argument in enumerate(modelserver.extra_serve_args.of(role)):
            if argument.startswith("--"):
                places.append((f"modelserver.extraServeArgs.{role}[{index}]", split_argument(argument)[0], argument))
    for index, flag in enumerate(modelserver.remove_serve_args):
        places.append((f"modelserver.removeServeArgs[{index}]", flag, flag))
    computed = dict(COMPUTED)
    if setting.config.tracing.enabled:
        computed["otlp-traces-endpoint"] = "is tracing.collector.endpoint. Set that"
    for key, flag, value in places:
        if flag in computed:
            why, _, fix = computed[flag].partition(". ")
            yield error(key, value, f"--{flag} {why}", fix=fix)


def keep_parallelism_countable(setting: Setting) -> Iterator[Finding]:
    """Parallelism in extraServeArgs (V5), and short forms there."""
    for role in ROLES:
        for index, argument in enumerate(setting.config.modelserver.extra_serve_args.of(role)):
            key = f"modelserver.extraServeArgs.{role}[{index}]"
            flag, _ = split_argument(argument)
            is_short = not argument.startswith("--")
            meant = SHORT_FORMS.get(flag) if is_short else _meant_parallel_flag(flag)
            if meant in PARALLEL_FLAGS.values():
                yield error(
                    key, argument, f"--{meant} decides how many devices a Pod uses", fix=_NOT_PARALLEL.format(role=role)
                )
            elif is_short:
                yield error(
                    key,
                    argument,
                    "is a short form, and a duplicate could not be told",
                    fix=f"Write it as --{meant}=..." if meant else "Write its long form",
                )


def _meant_parallel_flag(flag: str) -> str | None:
    """The parallel flag that the engine's parser would take this for; it accepts beginnings that fit one flag only."""
    if flag in PARALLEL_FLAGS.values():
        return flag
    for full, shortest in (("tensor-parallel-size", "tensor-p"), ("pipeline-parallel-size", "pipeline-p")):
        if full.startswith(flag) and flag.startswith(shortest[:1]) and len(flag) >= len(shortest) - 2:
            return full
    return None


def are_numbers_where_counted(setting: Setting) -> Iterator[Finding]:
    """Numbers that the planner or a rule counts with, written as something else."""
    for arg in _in_force(setting):
        is_refused_anyway = arg.flag in PARALLEL_FLAGS.values() and "extraServeArgs" in arg.key
        if arg.flag in _COUNTS and not is_refused_anyway and not is_count(arg.value):
            yield error(
                arg.key,
                arg.shown,
                f"is not a whole number of 1 or more ({arg.role} Pods)",
                fix="Write a number, without quotes",
            )
        if arg.flag in PARALLEL_FLAGS.values() and is_count(arg.value) and arg.value > MOST_RANKS:
            yield error(
                arg.key, arg.shown, f"is more than {MOST_RANKS}, the most ranks a Pod has", fix="Write a smaller number"
            )
        if arg.flag == "gpu-memory-utilization" and not _is_share(arg.value):
            yield error(
                arg.key,
                arg.shown,
                f"is no share above 0 and at most 1 ({arg.role} Pods)",
                fix="Write a number such as 0.8",
            )


def _is_share(value: object) -> bool:
    try:
        return not isinstance(value, bool) and 0 < float(str(value)) <= 1
    except ValueError:
        return False


def are_json_where_maps_are_meant(setting: Setting) -> Iterator[Finding]:
    """Text that begins like a map and is no JSON."""
    for arg in _in_force(setting):
        if isinstance(arg.value, str) and arg.value.lstrip().startswith("{"):
            try:
                json.loads(arg.value)
            except (ValueError, RecursionError):
                yield error(
                    arg.key,
                    arg.shown,
                    f"--{arg.flag} takes JSON, and this is none",
                    fix="Write it as a map in serveArgs",
                )
        if arg.flag == "kv-transfer-config" and not isinstance(arg.value, dict | str):
            yield error(
                arg.key,
                arg.shown,
                "is no map with the connector's settings",
                fix="Write kv_connector, kv_role and the rest below it",
            )


@dataclass(frozen=True, kw_only=True)
class _InForce:
    """A flag as the engine of a role will see it: where it is written, its value, and how it is shown."""

    role: Role
    key: str
    flag: str
    value: Any
    shown: object


def _in_force(setting: Setting) -> Iterator[_InForce]:
    """Every flag that counts, once for each place where it is written."""
    seen: set[str] = set()
    for role in setting.roles:
        extra = setting.config.modelserver.extra_serve_args.of(role)
        appended = {split_argument(argument)[0]: index for index, argument in enumerate(extra)}
        for flag, value in setting.in_force[role].items():
            index = appended.get(flag)
            if index is None:
                key, shown = setting.place_of(role, flag), value
            else:
                key, shown = f"modelserver.extraServeArgs.{role}[{index}]", extra[index]
            if key not in seen:
                seen.add(key)
                yield _InForce(role=role, key=key, flag=flag, value=value, shown=shown)


def do_not_contradict(setting: Setting) -> Iterator[Finding]:
    """A flag together with its negation."""
    for role in setting.roles:
        in_force = setting.in_force[role]
        for flag in in_force:
            if f"no-{flag}" in in_force:
                yield error(
                    setting.place_of(role, f"no-{flag}"),
                    in_force[f"no-{flag}"],
                    f"--{flag} is in force for {role} Pods as well",
                    fix=f"Write {flag}: false to leave the recipe's flag out, or remove no-{flag}",
                )


def win_once(setting: Setting) -> Iterator[Finding]:
    """Duplicates in a list of arguments: the last wins."""
    modelserver = setting.config.modelserver
    for role in ROLES:
        arguments = modelserver.extra_serve_args.of(role)
        counts = Counter(split_argument(argument)[0] for argument in arguments)
        for index, argument in enumerate(arguments):
            flag, _ = split_argument(argument)
            if counts[flag] > 1 and any(split_argument(later)[0] == flag for later in arguments[index + 1 :]):
                yield warning(
                    f"modelserver.extraServeArgs.{role}[{index}]",
                    argument,
                    f"--{flag} follows again, and the last one wins",
                    fix="Remove the earlier one",
                )


def are_there_to_remove(setting: Setting) -> Iterator[Finding]:
    """Flags to remove that no role has, or that are written just to be removed."""
    modelserver = setting.config.modelserver
    written = {
        flag
        for block in (modelserver.serve_args.common, *(modelserver.serve_args.of(r) for r in ROLES))
        for flag in block
    }
    present = written | {flag for role in ROLES for flag in setting.recipe.args_for(role)}
    for index, flag in enumerate(modelserver.remove_serve_args):
        key = f"modelserver.removeServeArgs[{index}]"
        if flag in modelserver.remove_serve_args[:index]:
            yield warning(key, flag, "is in the list already", fix="Remove it")
        elif flag not in present and flag not in COMPUTED:
            near = near_key(flag, sorted(present))
            yield warning(
                key,
                flag,
                f"is no flag of recipe {setting.recipe.name}, so nothing is removed",
                fix=f"Did you mean {near}?" if near else "Remove it",
            )
        elif flag in written:
            yield warning(
                key,
                flag,
                "is written under modelserver.serveArgs too, and is left out all the same",
                fix="Remove it from one of the two",
            )


def are_known_to_the_engine(setting: Setting) -> Iterator[Finding]:
    """Flags that the recipe's engine does not have."""
    engine, image = setting.recipe.engine, setting.config.modelserver.image
    is_own = image.tag is not None or image.digest is not None or image.repository is not None
    say = warning if is_own else error
    written = setting.config.modelserver.serve_args
    for arg in _in_force(setting):
        if arg.flag in COMPUTED or arg.flag in SHORT_FORMS or _meant_parallel_flag(arg.flag):
            continue
        if arg.flag not in {**written.common, **written.of(arg.role)} and "extraServeArgs" not in arg.key:
            continue  # the recipe's own
        if has_flag(engine, arg.flag) is not False:
            continue
        near = near_key(arg.flag, sorted(serve_flags(engine)))
        yield say(
            arg.key,
            arg.shown,
            f"{engine.name} {engine.version} has no flag --{arg.flag} and stops at an unknown one ({arg.role} Pods)",
            fix=f"Did you mean {near}?" if near else "Remove it",
        )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and is_count(value) else None


def fit_the_scheduler(setting: Setting) -> Iterator[Finding]:
    """Relations between batch sizes that the engine checks at start."""
    is_rbln = setting.recipe.engine.name == "vllm-rbln"
    for role, ranks in setting.parallelism.items():
        in_force = setting.in_force[role]
        tokens, seqs, length = (
            _count(in_force.get(flag)) for flag in ("max-num-batched-tokens", "max-num-seqs", "max-model-len")
        )
        is_chunked = in_force.get("enable-chunked-prefill", not is_rbln) and not in_force.get(
            "no-enable-chunked-prefill"
        )
        key = setting.place_of(role, "max-num-batched-tokens")
        if is_rbln and not is_chunked:
            yield error(
                setting.place_of(role, "enable-chunked-prefill"),
                value=False,
                why=f"vllm-rbln serves with chunked prefill only ({role} Pods)",
                fix="Leave the recipe's enable-chunked-prefill in place",
            )
        if tokens and seqs and tokens < seqs:
            yield error(key, tokens, f"is less than max-num-seqs ({seqs}) of {role} Pods", fix=f"Use {seqs} or more")
        elif is_rbln and ranks.data > 1 and tokens and seqs and tokens % seqs:
            yield error(
                key,
                tokens,
                f"is no multiple of max-num-seqs ({seqs}) of {role} Pods, which vllm-rbln needs with data parallelism",
                fix=f"Use a multiple of {seqs}",
            )
        if not is_rbln and not is_chunked and tokens and length and tokens < length:
            yield error(
                key,
                tokens,
                f"is less than max-model-len ({length}) of {role} Pods without chunked prefill",
                fix=f"Turn chunked prefill on, or use {length} or more",
            )
        if is_rbln and ranks.pipeline > 1 and seqs and seqs < ranks.pipeline:
            yield error(
                setting.place_of(role, "max-num-seqs"),
                seqs,
                f"is less than pipeline-parallel-size ({ranks.pipeline}) of {role} Pods, and each stage needs one",
                fix=f"Use {ranks.pipeline} or more",
            )


def transfer_where_split(setting: Setting) -> Iterator[Finding]:
    """A KV connector on both sides of the split, and on none without it."""
    flag = "kv-transfer-config"
    for role in setting.roles:
        has = flag in setting.in_force[role]
        if setting.is_disaggregated and not has:
            yield warning(
                setting.place_of(role, flag),
                "absent",
                f"{role} Pods have no KV connector, so every prompt is computed twice or not answered",
                fix=f"Leave the recipe's {flag} in place",
            )
        if not setting.is_disaggregated and has:
            yield warning(
                setting.place_of(role, flag),
                "given",
                "aggregated Pods have nobody to transfer KV blocks to",
                fix=f"Remove {flag} for aggregated Pods",
            )
    sides = [setting.in_force[role].get("kv-cache-dtype", "auto") for role in setting.roles]
    if setting.is_disaggregated and len(set(map(str, sides))) > 1:
        yield error(
            setting.place_of("decode", "kv-cache-dtype"),
            sides[1],
            f"differs from prefill ({show(sides[0])}), and NIXL refuses a peer with another cache type",
            fix="Write it under modelserver.serveArgs.common",
        )


def serve_the_recipes_model(setting: Setting) -> Iterator[Finding]:
    """Another model under the recipe's arguments."""
    model = setting.config.modelserver.model
    if model is not None and model != setting.recipe.model:
        yield warning(
            "modelserver.model",
            model,
            f"is not the model of recipe {setting.recipe.name} ({setting.recipe.model}), whose arguments stay in force",
            fix="Look through arguments, probes and resources, or choose its recipe",
        )


RULES: tuple[Rule, ...] = (
    rule(are_not_computed, "modelserver", "tracing"),
    rule(keep_parallelism_countable, "modelserver"),
    rule(are_numbers_where_counted, "modelserver", "recipe"),
    rule(are_json_where_maps_are_meant, "modelserver", "recipe"),
    rule(once(do_not_contradict), "modelserver", "recipe"),
    rule(win_once, "modelserver"),
    rule(are_there_to_remove, "modelserver", "recipe"),
    rule(are_known_to_the_engine, "modelserver", "recipe"),
    rule(once(fit_the_scheduler), "modelserver", "recipe"),
    rule(once(transfer_where_split), "modelserver", "recipe"),
    rule(serve_the_recipes_model, "modelserver", "recipe"),
)
