"""`verify --drain`: has one model server leave, if it may, and says whether it left as planned."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path  # noqa: TC003  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from cli.asked import Address, CaFile, Form, FormOption, RoleName, TokenFile, answering, complaints, server
from cli.drain_check import Check, Departure, Outcome, judge
from cli.files import read
from cluster.connect import ClusterError
from cluster.leaving import EvictingCluster
from stack import labels
from stack.alerts import resets_of
from stack.errors import Problem, UnusableError
from stack.serve import plan_serve

if TYPE_CHECKING:
    from cli.prometheus import Prometheus
    from cluster.connect import Object
    from stack.drain import RoleDrain
    from stack.rules import Accepted
    from stack.scalars import Role

TOO_MANY = 429
OVERSTAY_SECONDS = 60
"""How long after its grace period a Pod is still waited for."""
REST_SECONDS = 0.5
SCRAPE_SECONDS = 120
"""How long to wait for Prometheus to have looked at the gateway after the Pod had gone."""


def verify(
    file: Annotated[Path, typer.Argument(help="Stack file, such as Pulumi.prod.yaml.", exists=True, dir_okay=False)],
    *,
    drain: Annotated[bool, typer.Option("--drain", help="Evict one Pod and look how it leaves.")] = False,
    role: Annotated[
        RoleName | None, typer.Option("--role", help="Whose Pod. Default: decode, or aggregated.", show_default=False)
    ] = None,
    pod: Annotated[str | None, typer.Option("--pod", help="Which one. Default: the first one by name.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", help="Default: KUBECONFIG.", exists=True, dir_okay=False)
    ] = None,
    prometheus: Address = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    form: FormOption = Form.TEXT,
) -> None:
    """Look at the running stack: whether a Pod that is evicted drains as planned.

    It deletes one Pod, if its disruption budget allows that, and asks before. The Deployment makes a new one.

    Exit status: 0 nothing bad was seen, 1 something was, or it could not be looked at, 2 wrong usage.
    """
    if not drain:
        raise typer.BadParameter("say what to verify: --drain", param_hint="--drain")
    accepted = read(file)
    with answering():
        asked = None if prometheus is None else server(prometheus, token_file, ca_file)
        where = _Where(accepted=accepted, role=_role(accepted, role), prometheus=asked)
        try:
            with EvictingCluster(accepted.config.context, kubeconfig=kubeconfig) as cluster:
                chosen = where.choose(cluster, pod)
                name = chosen["metadata"]["name"]
                if not yes:
                    question = f"Evict {name} ({accepted.config.namespace}, context {accepted.config.context})?"
                    typer.confirm(question, abort=True, err=True)
                seen = where.watch(cluster, chosen)
        except ClusterError as error:
            raise UnusableError(
                Problem(key="kubernetes:context", value=accepted.config.context, why=str(error), fix="Correct that")
            ) from None
        checks = judge(where.drain, seen)
        typer.echo(write(where.drain, seen, checks, form), nl=False)
    if any(check.outcome is Outcome.BAD for check in checks):
        raise typer.Exit(1)


def _role(accepted: Accepted, given: RoleName | None) -> Role:
    roles = accepted.config.modelserver.roles()
    role: Role = given.value if given is not None else "aggregated" if "aggregated" in roles else "decode"
    if role not in roles:
        raise typer.BadParameter(f"the stack file has no {role} Pods", param_hint="--role")
    return role


@dataclass(frozen=True, kw_only=True)
class _Where:
    """Whose departure is looked at, and through what."""

    accepted: Accepted
    role: Role
    prometheus: Prometheus | None

    @property
    def drain(self) -> RoleDrain:
        """What is planned."""
        config = self.accepted.config
        is_disaggregated = config.modelserver.is_disaggregated()
        return plan_serve(config, self.accepted.recipe, self.role, is_disaggregated=is_disaggregated).drain

    def choose(self, cluster: EvictingCluster, given: str | None) -> Object:
        """The Pod to evict.

        Raises:
            UnusableError: there is none that would tell anything.
            ClusterError: the Pods can't be listed.
        """
        config = self.accepted.config
        if self.drain.mode == "off":
            self._refuse("drain.mode", "off", "nothing drains, so there is nothing to verify", "Set another mode")
        selector = f"{labels.INSTANCE}={config.release},{labels.COMPONENT}={self.role}"
        pods = cluster.list(f"/api/v1/namespaces/{config.namespace}/pods", labelSelector=selector)
        pods = sorted(pods, key=lambda each: each["metadata"]["name"])
        if not pods:
            self._refuse(
                "namespace",
                config.namespace,
                f"there is no {self.role} Pod of release {config.release}",
                "Run `pulumi up` first",
            )
        unsettled = [each["metadata"]["name"] for each in pods if not _is_ready(each)]
        if unsettled:
            self._refuse(
                f"{self.role} Pods",
                ", ".join(unsettled),
                "not Ready, or on their way out, so the role is short of Pods already",
                "Try again when the roll-out is over",
            )
        found = [each for each in pods if given in {None, each["metadata"]["name"]}]
        if not found:
            there = ", ".join(each["metadata"]["name"] for each in pods)
            self._refuse("--pod", given or "", f"there is no such {self.role} Pod; there are {there}", "Choose one")
        if len(pods) == 1:
            complaints.print(f"It is the only {self.role} Pod: the role stops until the next one has started.")
        return found[0]

    def watch(self, cluster: EvictingCluster, pod: Object) -> Departure:
        """Evict a Pod, and look until it is gone.

        Raises:
            UnusableError: its disruption budget does not allow it now.
            ClusterError: it can't be evicted.
        """
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        grace: int = pod["spec"]["terminationGracePeriodSeconds"]
        before, problem = self._resets()
        log = _Log(cluster, namespace, name, longest=grace + OVERSTAY_SECONDS)
        began = time.monotonic()
        try:
            cluster.evict(namespace, name)
        except ClusterError as error:
            if error.status != TOO_MANY:
                raise
            self._refuse(
                "disruptionBudget", name, str(error), "Try again when all Pods of the role are Ready; nothing changed"
            )
        log.start()
        is_gone = cluster.until_gone(
            pod,
            clock=time.monotonic,
            rest=lambda: time.sleep(REST_SECONDS),
            until=began + grace + OVERSTAY_SECONDS,
        )
        seconds = time.monotonic() - began
        log.join(timeout=5)
        after: float | None = None
        if before is not None:
            after, problem = self._resets(since=time.time())
        return Departure(
            pod=name,
            grace=grace,
            has_hook=_has_hook(pod),
            lines=tuple(log.lines),
            log_problem=log.problem,
            seconds=seconds if is_gone else None,
            resets=None if before is None or after is None else max(0, after - before),
            resets_problem=problem,
        )

    def _resets(self, *, since: float | None = None) -> tuple[float | None, str | None]:
        """The gateway's counter, and why it is not known; `since`: not before Prometheus has looked after that."""
        counter = resets_of(self.accepted.config)
        if self.prometheus is None:
            return None, None
        if counter is None:
            return None, "the stack has no Gateway"
        job = f"{self.accepted.config.namespace}/{self.accepted.config.release}-gateway"
        try:
            until = time.monotonic() + SCRAPE_SECONDS
            while since is not None:
                looked = self.prometheus.instant(f'min(timestamp(up{{job="{job}"}}))')
                if looked and looked[0].values[-1] > since:
                    break
                if time.monotonic() > until:
                    return None, f"Prometheus has not looked at the gateway for {SCRAPE_SECONDS} s (job {job})"
                time.sleep(REST_SECONDS)
            found = self.prometheus.instant(f"sum({counter})")
        except UnusableError as error:
            return None, str(error)
        return (found[0].values[-1] if found else 0.0), None

    def _refuse(self, key: str, value: str, why: str, fix: str) -> None:
        raise UnusableError(Problem(key=key, value=value, why=why, fix=fix))


class _Log(threading.Thread):
    """Follows the log of a Pod while it leaves."""

    def __init__(self, cluster: EvictingCluster, namespace: str, name: str, *, longest: float) -> None:
        super().__init__(daemon=True)
        self._follow = lambda: cluster.follow(namespace, name, longest=longest)
        self.lines: list[str] = []
        self.problem: str | None = None

    def run(self) -> None:
        """Read until it ends."""
        try:
            self.lines.extend(self._follow())
        except ClusterError as error:
            self.problem = str(error)


def _is_ready(pod: Object) -> bool:
    conditions: list[Object] = pod.get("status", {}).get("conditions", [])
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return is_ready and "deletionTimestamp" not in pod["metadata"]


def _has_hook(pod: Object) -> bool:
    containers: list[Object] = pod["spec"]["containers"]
    return any("preStop" in each.get("lifecycle", {}) for each in containers)


def write(drain: RoleDrain, seen: Departure, checks: tuple[Check, ...], form: Form) -> str:
    """The outcome as text or JSON."""
    if form is Form.JSON:
        found: dict[str, Any] = {
            "pod": seen.pod,
            "role": drain.role,
            "mode": drain.mode,
            "seconds": seen.seconds,
            "graceSeconds": seen.grace,
            "checks": [asdict(check) for check in checks],
        }
        return json.dumps(found, indent=2) + "\n"
    table = Table(title=f"{seen.pod}: {drain.mode}, {drain.arithmetic}", title_justify="left")
    for column in ("Check", "Outcome", "Seen"):
        table.add_column(column, overflow="fold")
    for check in checks:
        table.add_row(check.name, check.outcome.value, check.text)
    console = Console(highlight=False, width=120, no_color=True)
    with console.capture() as captured:
        console.print(table)
    return captured.get()
