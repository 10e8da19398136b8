"""`drain-budget`: how long a Pod that leaves should wait for its requests, chosen from how long requests take."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path  # noqa: TC003  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from cli.asked import (
    WEEK,
    Address,
    CaFile,
    Form,
    FormOption,
    Image,
    Layout,
    Namespace,
    Place,
    Release,
    RoleName,
    Selector,
    StackFile,
    TokenFile,
    Unit,
    Window,
    answer,
    answering,
    check_image,
    check_source,
    need_extra,
    place_of,
    server,
    window_seconds,
)
from cli.situation import read_situation

if TYPE_CHECKING:
    from cli.situation import Situation
    from stack.scalars import Role


def drain_budget(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="CSV, lines of JSON, or an access log (Envoy, Istio, agentgateway); - reads standard input.",
        ),
    ] = None,
    *,
    role: Annotated[
        RoleName | None,
        typer.Option(
            "--role",
            help="Whose durations. Without it: of a file, those that clients stream from; of Prometheus, all.",
            show_default=False,
        ),
    ] = None,
    stack: StackFile = None,
    column: Annotated[
        str | None, typer.Option("--column", "-c", help="Column by name or number; in JSON a key, a.b is b below a.")
    ] = None,
    unit: Annotated[Unit | None, typer.Option("--unit", "-u", help="Of the durations in the file.")] = None,
    layout: Annotated[Layout | None, typer.Option("--layout", help="Of the file, where it is not recognised.")] = None,
    prometheus: Address = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    window: Window = WEEK,
    namespace: Namespace = None,
    release: Release = None,
    selector: Selector = None,
    most_cut: Annotated[
        float, typer.Option("--cut", help="Most of the requests' time that may be cut, in percent.", min=0, max=99)
    ] = 1.0,
    step: Annotated[int, typer.Option("--step", help="Seconds of which N is a multiple.", min=1, max=3600)] = 30,
    least: Annotated[int, typer.Option("--least", help="Seconds that N has at least.", min=1, max=86_400)] = 60,
    most: Annotated[int, typer.Option("--most", help="Seconds that N has at most.", min=1, max=86_400)] = 900,
    form: FormOption = Form.TEXT,
    plot: Image = None,
) -> None:
    """Choose `drain.shutdownTimeoutSeconds` of each role from durations of requests.

    N is the smallest multiple of 30 s with which at most 1 % of the time of all requests is cut when a Pod leaves.

    Exit status: 0 chosen, 1 the durations cannot be used, 2 wrong usage. Nothing is changed.
    """
    check_source(file, prometheus, of_prometheus=(token_file, ca_file, namespace, release, selector))
    if prometheus is not None and any(given is not None for given in (column, unit, layout)):
        raise typer.BadParameter("column, unit and layout are of a file", param_hint="--prometheus")
    if least > most:
        raise typer.BadParameter(f"{least} is more than --most {most}", param_hint="--least")
    check_image(plot)
    seconds = window_seconds(window)
    place = Place() if prometheus is None else place_of(stack, namespace, release, selector, role)
    with answering():
        need_extra()
        from cli import drain_report as report  # noqa: PLC0415  # numpy, which no other command needs

        situation = None if stack is None else read_situation(stack)
        limits = report.Limits(step=step, least=least, most=most, most_cut=most_cut / 100)
        if prometheus is None:
            assert file is not None  # noqa: S101  # one of both is given
            sample = report.from_file(file, sys.stdin.buffer, column=column, unit=unit, layout=layout)
            found = [report.budget_of_sample(sample, _role(role, situation), limits, situation)]
        else:
            asked = server(prometheus, token_file, ca_file)
            where = report.Where(place=place, window=seconds, situation=situation)
            found = report.budgets_of_prometheus(asked, where, None if role is None else _name(role), limits)
        answer(report.write(found, form), plot, partial(report.draw, found))


def _role(role: RoleName | None, situation: Situation | None) -> Role:
    """Whose durations a file holds: those of the Pods that clients stream from, unless somebody says otherwise."""
    if role is not None:
        return _name(role)
    return "aggregated" if situation is not None and "decode" not in situation.roles else "decode"


def _name(role: RoleName) -> Role:
    return role.value
