"""Device selectors in CEL, answered as kube-scheduler would, or not at all.

cel-python evaluates; this module gives it the `device` variable and the quantity and semver functions of Kubernetes.
What the library cannot do (optional syntax, `cel.bind`, string extensions) is *unknown*, never false. What fails at
evaluation, such as an attribute that the device lacks, fails the whole scheduling attempt, not just the device
(k8s.io/dynamic-resource-allocation, `structured.Allocator`: errors in CEL selectors abort).

Deliberately not here: which device belongs to whom, and CEL's cost limit (the API server estimates it beforehand).
"""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

import celpy
from celpy import celtypes
from celpy.evaluation import CELEvalError

from stack.scalars import amount

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Value = tuple[str, bool | int | str]
"""An attribute's type (`bool`, `int`, `string`, `version`) and value. Two match only if both are the same."""


class Answer(Enum):
    """What a selector says of a device."""

    YES = "yes"
    NO = "no"
    FAILS = "fails"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class DeviceView:
    """What a selector may read of a device; names are qualified, `<domain>/<identifier>`.

    Attributes:
        capacity: quantities as text.
        is_shareable: `device.allowMultipleAllocations`.
    """

    driver: str
    attributes: Mapping[str, Value]
    capacity: Mapping[str, str]
    is_shareable: bool = False


# --- values that CEL itself does not have -----------------------------------------------------------------------------


@functools.total_ordering
class _Quantity:
    """`kubernetes.Quantity`: compared by amount."""

    def __init__(self, value: Decimal) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Quantity) and self.value == other.value

    def __lt__(self, other: _Quantity) -> bool:
        return self.value < other.value

    def __hash__(self) -> int:
        return hash(self.value)


_SEMVER: Final = re.compile(
    r"(?P<numbers>(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*))(?:-(?P<pre>[0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)


@functools.total_ordering
class _Version:
    """`kubernetes.Semver`: compared by precedence, so builds do not count and a pre-release comes before its release.

    Raises:
        ValueError: the text is no version of semver 2.0.0 in its strict form.
    """

    def __init__(self, text: str) -> None:
        found = _SEMVER.fullmatch(text)
        if found is None:
            raise ValueError(text)
        self.numbers = tuple(int(number) for number in found["numbers"].split("."))
        parts: list[str] = found["pre"].split(".") if found["pre"] else []
        # Numbers come before words; a version without any part comes after all that have some.
        pre = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)
        self.precedence = (self.numbers, not pre, pre)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Version) and self.precedence == other.precedence

    def __lt__(self, other: _Version) -> bool:
        return self.precedence < other.precedence

    def __hash__(self) -> int:
        return hash(self.precedence)


class _Domains(celtypes.MapType):
    """`device.attributes` and `device.capacity`: a domain that is not there is an empty map, no error."""

    def __getitem__(self, key: Any) -> Any:
        return self.get(key, celtypes.MapType({}))


def _pair(left: Any, right: Any) -> tuple[Any, Any]:
    if type(left) is not type(right) or not isinstance(left, _Quantity | _Version):
        raise TypeError("no such overload")
    return left, right


def _compare(left: Any, right: Any) -> celtypes.IntType:
    left, right = _pair(left, right)
    return celtypes.IntType((left > right) - (left < right))


def _is_greater(left: Any, right: Any) -> celtypes.BoolType:
    return celtypes.BoolType(_compare(left, right) > 0)


def _is_less(left: Any, right: Any) -> celtypes.BoolType:
    return celtypes.BoolType(_compare(left, right) < 0)


def _version(text: Any) -> _Version:
    return _Version(str(text))


def _quantity(text: Any) -> _Quantity:
    return _Quantity(amount(str(text)))


def _reads(read: Callable[[str], object]) -> Callable[[Any], celtypes.BoolType]:
    """Whether a text can be read so."""

    def can(text: Any) -> celtypes.BoolType:
        try:
            read(str(text))
        except ValueError:
            return celtypes.BoolType(False)
        return celtypes.BoolType(True)

    return can


def _number_of(place: int) -> Callable[[Any], celtypes.IntType]:
    return lambda version: celtypes.IntType(version.numbers[place])


def _equal(left: Any, right: Any) -> Any:
    """Values of different types are not equal, where cel-python fails; numbers are compared as numbers.

    Of the types that Kubernetes adds, it says so itself only between two of a kind, and fails otherwise.
    """
    for side in (left, right):
        if isinstance(side, CELEvalError):
            return side
    if isinstance(left, _Quantity | _Version):
        _pair(left, right)
    numbers = (celtypes.IntType, celtypes.UintType, celtypes.DoubleType)
    if isinstance(left, numbers) and isinstance(right, numbers):
        return celtypes.BoolType(Decimal(left) == Decimal(right))
    return celtypes.BoolType(type(left) is type(right) and bool(left == right))


def _differ(left: Any, right: Any) -> Any:
    equal = _equal(left, right)
    return equal if isinstance(equal, CELEvalError) else celtypes.BoolType(not equal)


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "_==_": _equal,
    "_!=_": _differ,
    "quantity": _quantity,
    "isQuantity": _reads(amount),
    "semver": _version,
    "isSemver": _reads(_Version),
    "compareTo": _compare,
    "isGreaterThan": _is_greater,
    "isLessThan": _is_less,
    "major": _number_of(0),
    "minor": _number_of(1),
    "patch": _number_of(2),
}
_OWN_CALLS: Final = frozenset(
    {"has", "size", "startsWith", "endsWith", "contains", "matches", "int", "uint", "double", "string", "bool", "dyn"}
    | {"all", "exists", "exists_one", "in"}
)
_STRING: Final = re.compile(r'"(?:[^"\\\n])*"|\'(?:[^\'\\\n])*\'')

# --- selectors --------------------------------------------------------------------------------------------------------

_WORD: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_NAME: Final = rf"(?:\.(?P<id>{_WORD}\b)(?!\s*\()|\[(?P<quoted>{_STRING.pattern})\])"
_MAP: Final = rf"device\s*\.\s*(?P<map>attributes|capacity)\s*\[\s*(?P<domain>{_STRING.pattern})\s*\]"
_READ: Final = re.compile(rf"{_MAP}\s*{_NAME}")
_ASKED: Final = re.compile(rf"(?P<key>{_STRING.pattern})\s+in\s+{_MAP}(?!\s*[.\[])")
_OTHER: Final = re.compile(r"\bdevice\s*\.\s*(driver|allowMultipleAllocations)\b")
_DRIVER: Final = re.compile(r"""\s*device\.driver\s*==\s*(["'])(?P<driver>[A-Za-z0-9.-]+)\1\s*""")
_STRANGE: Final = re.compile(rf"\bdevice\s*\.\s*(?!(?:driver|attributes|capacity|allowMultipleAllocations)\b){_WORD}")


@dataclass(frozen=True, eq=False)
class Selector:
    """One compiled expression. Make it with `selector_of`, which compiles each once.

    Attributes:
        reads: attributes and capacities that the expression can read, as (`attributes` or `capacity`, qualified name);
            None when it may read all of them.
        unusable: why it cannot be evaluated here.
    """

    expression: str
    reads: frozenset[tuple[str, str]] | None
    program: Any = None
    unusable: str | None = None

    def ask(self, device: DeviceView) -> Answer:
        """Evaluate for a device. Memoised by what the expression can read, for one process."""
        if self.unusable is not None:
            return Answer.UNKNOWN
        return _ask(self, self._key(device), _Held(device))

    def _key(self, device: DeviceView) -> object:
        head = (device.driver, device.is_shareable)
        if self.reads is None:
            return (*head, tuple(sorted(device.attributes.items())), tuple(sorted(device.capacity.items())))
        maps: dict[str, Mapping[str, Any]] = {"attributes": device.attributes, "capacity": device.capacity}
        return (*head, *[maps[which].get(name) for which, name in sorted(self.reads)])


@dataclass(frozen=True, eq=False)
class _Held:
    """Carries a device past the cache, whose key says all of it that matters."""

    device: DeviceView

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held)

    def __hash__(self) -> int:
        return 0


@functools.cache
def _environment() -> Any:
    """The library's, made once. It raises Python's recursion limit for all of the process, which is put back."""
    limit = sys.getrecursionlimit()
    try:
        return celpy.Environment()
    finally:
        sys.setrecursionlimit(limit)


@dataclass(frozen=True)
class _IsDriver:
    """`device.driver == "x"`, what nearly every DeviceClass asks. The library takes a third of a second to begin."""

    driver: str

    def evaluate(self, given: Mapping[str, Any]) -> celtypes.BoolType:
        """As a program of the library."""
        return celtypes.BoolType(given["device"]["driver"] == self.driver)


@functools.lru_cache(maxsize=512)
def selector_of(expression: str) -> Selector:
    """Compile a CEL expression; it never raises: what cannot be compiled answers *unknown*."""
    if found := _DRIVER.fullmatch(expression):
        return Selector(expression, frozenset(), program=_IsDriver(found["driver"]))
    bare = _STRING.sub('""', expression)
    calls = set(re.findall(rf"({_WORD})\s*\(", bare))
    reads = _reads_of(expression)
    if foreign := sorted(calls - _OWN_CALLS - _FUNCTIONS.keys()):
        return Selector(expression, reads, unusable=f"{foreign[0]}() is not known here")
    if _STRANGE.search(bare):
        return Selector(expression, reads, unusable="it reads a field of the device that is not known here")
    try:
        environment = _environment()
        program: Any = environment.program(environment.compile(expression), functions=_FUNCTIONS)
    except Exception:  # noqa: BLE001  # the parser raises what it likes
        return Selector(expression, reads, unusable="its syntax is not known here")
    return Selector(expression, reads, program=program)


def _reads_of(expression: str) -> frozenset[tuple[str, str]] | None:
    """What an expression names in full. Anything else that touches `device`, or a text in disguise, may read all."""
    if "\\" in expression or re.search(r"\b[rbRB]{1,2}[\"']|\"\"\"|'''", expression):
        return None
    named: set[tuple[str, str]] = set()

    def note(found: re.Match[str]) -> str:
        parts = found.groupdict()
        identifier = parts.get("id") or (parts.get("quoted") or parts["key"])[1:-1]
        named.add((parts["map"], f"{parts['domain'][1:-1]}/{identifier}"))
        return "true"

    rest = _READ.sub(note, _ASKED.sub(note, expression))
    rest = _STRING.sub('""', _OTHER.sub("true", rest))
    return None if re.search(r"\bdevice\b", rest) else frozenset(named)


@functools.lru_cache(maxsize=100_000)
def _ask(selector: Selector, _key: object, held: _Held) -> Answer:
    try:
        result: object = selector.program.evaluate({"device": _device_value(held.device)})
    except CELEvalError as error:
        # Only a missing key is surely an error for Kubernetes too; overloads are where the libraries differ.
        return Answer.FAILS if KeyError in error.args[1:2] else Answer.UNKNOWN
    except Exception:  # noqa: BLE001  # the library raises what it likes; none of it is an answer
        return Answer.UNKNOWN
    if isinstance(result, celtypes.BoolType):
        return Answer.YES if result else Answer.NO
    return Answer.FAILS  # no truth value: Kubernetes says "could not be converted to bool"


def _device_value(device: DeviceView) -> celtypes.MapType:
    def by_domain(values: Mapping[str, Any]) -> _Domains:
        domains: dict[str, dict[Any, Any]] = {}
        for name, value in values.items():
            domain, _, identifier = name.partition("/")
            domains.setdefault(domain, {})[celtypes.StringType(identifier)] = value
        return _Domains({celtypes.StringType(domain): celtypes.MapType(held) for domain, held in domains.items()})

    made: dict[str, Any] = {
        "driver": celtypes.StringType(device.driver),
        "allowMultipleAllocations": celtypes.BoolType(device.is_shareable),
        "attributes": by_domain({name: _attribute_value(value) for name, value in device.attributes.items()}),
        "capacity": by_domain({name: _quantity(value) for name, value in device.capacity.items()}),
    }
    return celtypes.MapType({celtypes.StringType(key): value for key, value in made.items()})


def _attribute_value(value: Value) -> Any:
    match value:
        case ("bool", held):
            return celtypes.BoolType(held)
        case ("int", held):
            return celtypes.IntType(held)
        case ("version", held):
            return _Version(cast("str", held))
        case (_, held):
            return celtypes.StringType(cast("str", held))
