"""`scale-advice`: the fewest and most Pods of a role, and the occupancy to scale at, from what it was asked for."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path  # noqa: TC003  # typer reads the annotations
from typing import Annotated

import typer

from cli.asked import (
    WEEK,
    Address,
    CaFile,
    Form,
    FormOption,
    Image,
    Namespace,
    Place,
    Release,
    RoleName,
    Selector,
    StackFile,
    TokenFile,
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

STEP = 60


def scale_advice(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="CSV or lines of JSON with time, pod, running and waiting; - reads standard input.",
        ),
    ] = None,
    *,
    role: Annotated[RoleName, typer.Option("--role", help="Whose Pods.")] = RoleName.DECODE,
    stack: StackFile = None,
    slots: Annotated[
        int | None,
        typer.Option("--slots", help="Requests that one Pod runs at once; else --stack says it.", min=1),
    ] = None,
    start: Annotated[
        int | None,
        typer.Option(
            "--start-seconds", help="How long a Pod takes until it serves; else its start-up budget.", min=1, max=86_400
        ),
    ] = None,
    most_wait: Annotated[
        float, typer.Option("--wait", help="Most of the requests' time in a queue, in percent.", min=0, max=99)
    ] = 1.0,
    step: Annotated[
        int | None,
        typer.Option("--step", help="Seconds between two looks; else 60, or as a file has it.", min=5, max=3600),
    ] = None,
    prometheus: Address = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    window: Window = WEEK,
    namespace: Namespace = None,
    release: Release = None,
    selector: Selector = None,
    form: FormOption = Form.TEXT,
    plot: Image = None,
) -> None:
    """Find floor, ceiling and occupancy of `autoscaling.<role>` from a week or more of what it was asked for.

    With the floor requests would have spent at most 1 % of their time in a queue, and with one Pod less more.

    Exit status: 0 found, 1 the numbers cannot be used, 2 wrong usage. Nothing is changed.
    """
    check_source(file, prometheus, of_prometheus=(token_file, ca_file, namespace, release, selector))
    if slots is None and stack is None:
        raise typer.BadParameter(
            "how many requests does a Pod run at once? Give --slots or --stack", param_hint="--slots"
        )
    check_image(plot)
    seconds = window_seconds(window)
    place = Place() if prometheus is None else place_of(stack, namespace, release, selector, role)
    with answering():
        need_extra()
        from cli import scale_report as report  # noqa: PLC0415  # numpy, which no other command needs

        situation = None if stack is None else read_situation(stack)
        ground = report.ground_of(role.value, situation, slots=slots, start=start, most_wait=most_wait / 100)
        if prometheus is None:
            assert file is not None  # noqa: S101  # one of both is given
            found = report.advise_by_file(file, sys.stdin.buffer, ground, step=step)
        else:
            labels = place.labels(role.value, situation)
            asked = server(prometheus, token_file, ca_file)
            found = report.advise_by_prometheus(asked, labels, ground, window=seconds, step=step or STEP)
        answer(report.write(found, form), plot, partial(report.draw, found))
