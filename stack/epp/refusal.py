"""What a release cannot do, in words that a rule can turn into a letter to the operator.

A refusal names the decision that is to blame, not a config key: keys are the business of the configuration.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One decision that a release cannot carry out.

    `field` is the name of the field of `EppDecisions` or `ProxyDecisions`, `value` what stood there, `why` a fragment
    that continues "field = value: ", `fix` an imperative sentence without full stop. `follows_from` is the decision
    to take instead of writing an argument that follows from it.
    """

    field: str
    value: str
    why: str
    fix: str
    follows_from: str | None = None

    def __str__(self) -> str:
        return f"{self.field} = {self.value}: {self.why}. {self.fix}."


class UnsupportedError(ValueError):
    """Raised when decisions are rendered that were refused; carries every refusal."""

    refusals: tuple[Refusal, ...]

    def __init__(self, refusals: Iterable[Refusal]) -> None:
        self.refusals = tuple(refusals)
        super().__init__("\n".join(map(str, self.refusals)))


def split_flag(argument: str) -> str:
    """Name of a flag as it stands on a command line: `--v=2` is `v`."""
    return argument.lstrip("-").partition("=")[0]


def unknown_flags(arguments: Iterable[str], known: frozenset[str], *, field: str, release: str) -> Iterator[Refusal]:
    """Refuse each argument that is a flag the release does not define; both programs stop at such a one."""
    for argument in arguments:
        if argument.startswith("-") and split_flag(argument) not in known:
            yield Refusal(
                field=field,
                value=argument,
                why=f"{release} has no flag --{split_flag(argument)} and stops at an unknown one",
                fix="Take it out, or choose a version that has it",
            )
