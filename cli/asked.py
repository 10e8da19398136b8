"""What `drain-budget` and `scale-advice` are asked with: words for options, where Prometheus is, what must be there.

Nothing here needs numpy, so that the command can list its options where the extra `advice` is not installed.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from cli.prometheus import Prometheus, quoted
from stack.errors import Problem, UnusableError, show

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from cli.situation import Situation
    from stack.scalars import Role

EXTRA: Final = ("matplotlib", "numpy", "plotext")
IMAGES: Final = (".png", ".svg")
WEEK: Final = "7d"
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}

complaints = Console(stderr=True, highlight=False, markup=False)


class RoleName(StrEnum):
    """Roles of model servers."""

    PREFILL = "prefill"
    DECODE = "decode"
    AGGREGATED = "aggregated"


class Form(StrEnum):
    """How advice is written."""

    TEXT = "text"
    JSON = "json"


class Layout(StrEnum):
    """How a file is written."""

    CSV = "csv"
    JSON = "json"
    ACCESS_LOG = "access-log"


class Unit(StrEnum):
    """Of the durations in a file."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"


StackFile = Annotated[
    Path | None,
    typer.Option(
        "--stack",
        "-s",
        help="Stack file, such as Pulumi.prod.yaml: says what the stack is called, and what is so now.",
        exists=True,
        dir_okay=False,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--prometheus", "-p", help="URL of a Prometheus or VictoriaMetrics: what stands before /api/v1/query."
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help="File with a bearer token for it.", exists=True, dir_okay=False),
]
CaFile = Annotated[
    Path | None,
    typer.Option("--ca-file", help="File with the certificates to trust it by.", exists=True, dir_okay=False),
]
Window = Annotated[str, typer.Option("--window", "-w", help="How far to look back, such as 12h, 7d or 4w.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Where the stack is; else --stack says it.")]
Release = Annotated[str | None, typer.Option("--release", "-r", help="What it is called; else --stack says it.")]
Selector = Annotated[
    str | None,
    typer.Option("--selector", help="Labels of the series, as PromQL has them: 'job=\"vllm\"'. Needs one --role."),
]
FormOption = Annotated[Form, typer.Option("--format", "-f", help="For people, or for a program.")]
Image = Annotated[
    Path | None,
    typer.Option("--plot", help="Write the plot into this file: .svg or .png.", dir_okay=False, writable=True),
]


@contextmanager
def answering() -> Generator[None]:
    """Print what cannot be used as a letter, and end with exit status 1."""
    try:
        yield
    except UnusableError as error:
        complaints.print(str(error), soft_wrap=True)
        raise typer.Exit(1) from None
    except BrokenPipeError:
        raise  # whoever reads has enough; the command line library ends quietly
    except OSError as error:
        complaints.print(f"{error.filename or 'input'}: {error.strerror or error}", soft_wrap=True)
        raise typer.Exit(1) from None


def answer(text: str, plot: Path | None, draw: Callable[[Path], None]) -> None:
    """Print what was found, and have the plot drawn into a file where one is wanted."""
    typer.echo(text, nl=False)
    if plot is not None:
        draw(plot)
        complaints.print(f"plot written to {plot}", soft_wrap=True)


def need_extra() -> None:
    """Say what to install where the packages of the extra are missing.

    Raises:
        UnusableError: one is missing.
    """
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise UnusableError(
            Problem(
                key=", ".join(missing),
                value="is missing",
                why="only advice needs it, so it is an extra",
                fix="Install it: pip install '.[advice]' in a checkout of this project",
            )
        )


def window_seconds(text: str) -> int:
    """Seconds of a time as Prometheus writes it.

    Raises:
        typer.BadParameter: it is none, or nothing.
    """
    parts = re.findall(r"([0-9]+)([smhdw])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise typer.BadParameter(f"{text} is no time such as 12h, 7d or 4w", param_hint="--window")
    seconds = sum(int(number) * _SECONDS[unit] for number, unit in parts)
    if not 60 <= seconds <= 366 * _SECONDS["d"]:  # noqa: PLR2004
        raise typer.BadParameter(f"{text} is not between a minute and a year", param_hint="--window")
    return seconds


def check_image(path: Path | None) -> None:
    """Refuse an image of another kind.

    Raises:
        typer.BadParameter: its name does not end as one of `IMAGES`.
    """
    if path is not None and path.suffix.lower() not in IMAGES:
        raise typer.BadParameter(f"{path} ends neither in .svg nor in .png", param_hint="--plot")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Which series are a role's: those of a stack by its names, or of a selector; None where the stack file says it."""

    names: tuple[str, str] | None = None
    selector: str | None = None

    def labels(self, role: Role, situation: Situation | None) -> str:
        """The selector, as PromQL has it between braces."""
        if self.selector is not None:
            return self.selector
        if self.names is not None:
            return of_role(role, *self.names)
        assert situation is not None  # noqa: S101  # `place_of` asks for one of the three
        return of_role(role, situation.namespace, situation.release)


def place_of(
    stack: Path | None, namespace: str | None, release: str | None, selector: str | None, role: RoleName | None
) -> Place:
    """Where Prometheus has to look.

    Raises:
        typer.BadParameter: too little says it, or too much.
    """
    if selector is not None:
        if role is None or namespace is not None or release is not None:
            raise typer.BadParameter("stands for namespace and release, and needs --role", param_hint="--selector")
        return Place(selector=selector)
    if namespace is not None and release is not None:
        return Place(names=(namespace, release))
    if namespace is not None or release is not None:
        raise typer.BadParameter("give both, namespace and release, or neither", param_hint="--namespace")
    if stack is None:
        why = "whose Pods? Give --stack, or --namespace and --release, or --selector"
        raise typer.BadParameter(why, param_hint="--prometheus")
    return Place()


def check_source(file: Path | None, prometheus: str | None, *, of_prometheus: Iterable[object]) -> None:
    """Refuse a file and Prometheus at once, neither, and options that go with the other.

    Raises:
        typer.BadParameter: one of these.
    """
    if (file is None) == (prometheus is None):
        raise typer.BadParameter("either a file or --prometheus is needed, and not both", param_hint="FILE")
    if file is not None and str(file) != "-" and not file.is_file():
        raise typer.BadParameter(f"{file} is no file", param_hint="FILE")
    if file is not None and any(given is not None for given in of_prometheus):
        why = (
            "token, certificates, namespace, release and selector say where Prometheus looks; a file has no such thing"
        )
        raise typer.BadParameter(why, param_hint="FILE")


def server(url: str, token_file: Path | None, ca_file: Path | None) -> Prometheus:
    """The Prometheus that was named.

    Raises:
        UnusableError: the address, the token or the certificates cannot be used.
    """
    token = None
    if token_file is not None:
        try:
            token = token_file.read_text(encoding="ascii").strip()
        except UnicodeDecodeError:
            token = ""
        if not token or not token.isprintable() or " " in token:
            why = "holds no token: one word in ASCII is expected"
            raise UnusableError(
                Problem(key="--token-file", value=show(str(token_file)), why=why, fix="Name another file")
            )
    return Prometheus(url, token=token, ca_file=ca_file)


def of_role(role: Role, namespace: str, release: str) -> str:
    """Labels by which a role's series are selected: those that an operator's scrape objects give every Pod's."""
    return f"namespace={quoted(namespace)},pod=~{quoted(f'{re.escape(release)}-{role}-.+')}"
