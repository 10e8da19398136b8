"""The smallest things an operator writes: names, quantities, ports, durations, each with the limit a cluster enforces.

Every type here is a plain `str` or `int` at run time with a validator in front, so that plans and manifests carry no
types of ours. The validators only see the one value; what two values mean together is the business of `stack.rules`.
`Strict` is the base of every model that reads something written by hand.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from stack.errors import reject

Role = Literal["prefill", "decode", "aggregated"]
ROLES: Final[tuple[Role, ...]] = ("prefill", "decode", "aggregated")

MAX_INT32: Final = 2**31 - 1
LABEL_LENGTH: Final = 63
SUBDOMAIN_LENGTH: Final = 253
RELEASE_LENGTH: Final = 32
"""Longest release. `<release>-aggregated-<2 digits>-<10 digits of the ReplicaSet>-<5 of the Pod>` is then a DNS label.

Kubernetes itself would accept more and cut the Pod's host name; the chart cuts the EPP's name at 40 characters, so
that two long releases could meet. One fixed number is kinder than one that depends on roles and entries.
"""


class Strict(BaseModel):
    """Base of the configuration models: unknown keys are refused, nothing is converted, nothing can be changed later.

    Python code writes `node_placement`, files write `nodePlacement`. Files are read with `by_name=False`, so that the
    snake_case spelling is refused there as any other unknown key.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )


# --- names ------------------------------------------------------------------------------------------------------------

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035: Final = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_EDGES: Final = "Use lower case letters, digits and '-', with a letter or digit at both ends"


def _length(text: str, limit: int, what: str) -> None:
    if not text:
        raise reject(f"a {what} is needed", fix="Fill it in, or remove the key")
    if len(text) > limit:
        raise reject(f"has {len(text)} characters, a {what} has at most {limit}", fix="Choose a shorter one")


def _dns_label(text: str) -> str:
    _length(text, LABEL_LENGTH, "DNS label")
    if not re.fullmatch(_LABEL, text):
        raise reject("is not a DNS label", fix=_EDGES)
    return text


def _release(text: str) -> str:
    _length(text, RELEASE_LENGTH, "release")
    if not re.fullmatch(_LABEL_1035, text):
        raise reject(
            "is not a DNS label that begins with a letter, which the names of Services made from it must be",
            fix="Use lower case letters, digits and '-', with a letter at the start and a letter or digit at the end",
        )
    return text


def _service_name(text: str) -> str:
    _length(text, LABEL_LENGTH, "name of a Service")
    if not re.fullmatch(_LABEL_1035, text):
        raise reject(
            "is not a name that a Service can have",
            fix="Use lower case letters, digits and '-', with a letter at the start and a letter or digit at the end",
        )
    return text


def _dns_subdomain(text: str) -> str:
    _length(text, SUBDOMAIN_LENGTH, "DNS subdomain")
    if not re.fullmatch(_SUBDOMAIN, text):
        raise reject("is not a DNS subdomain", fix=f"{_EDGES}; parts are separated by '.'")
    return text


def _label_key(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if slash and not re.fullmatch(_SUBDOMAIN, prefix):
        raise reject(
            "has a prefix that is no DNS subdomain", fix="Write it as `prefix.example/name`, or without prefix"
        )
    _length(prefix or "x", SUBDOMAIN_LENGTH, "prefix of a label key")
    _length(name, LABEL_LENGTH, "label key without its prefix")
    if not re.fullmatch(_QUALIFIED, name):
        raise reject("is not a label key", fix="Use letters, digits, '-', '_' and '.', letter or digit at both ends")
    return text


def _label_value(text: str) -> str:
    if not text:
        return text
    _length(text, LABEL_LENGTH, "label value")
    if not re.fullmatch(_QUALIFIED, text):
        raise reject("is not a label value", fix="Use letters, digits, '-', '_' and '.', letter or digit at both ends")
    return text


def _env_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise reject(
            "is not the name of an environment variable",
            fix="Use letters, digits and '_', not beginning with a digit",
        )
    return text


def _secret_data_key(text: str) -> str:
    _length(text, SUBDOMAIN_LENGTH, "key of a Secret")
    if not re.fullmatch(r"[-._A-Za-z0-9]+", text) or text in {".", ".."}:
        raise reject("is not a key that a Secret can have", fix="Use letters, digits, '-', '_' and '.'")
    return text


def _file_name(text: str) -> str:
    _length(text, SUBDOMAIN_LENGTH, "key of a ConfigMap")
    if not re.fullmatch(r"[-._A-Za-z0-9]+", text) or text in {".", ".."} or text.startswith(".."):
        raise reject("is not a file name that a ConfigMap can hold", fix="Use letters, digits, '-', '_' and '.'")
    return text


def _resource_name(text: str) -> str:
    """Name of a compute resource: `cpu`, `hugepages-2Mi`, or a qualified name such as `rebellions.ai/npu`."""
    if "/" in text:
        return _label_key(text)
    known = {"cpu", "memory", "ephemeral-storage"}
    if text not in known and not re.fullmatch(r"hugepages-[0-9]+[KMG]i", text):
        raise reject(
            "is not a resource that a container can ask for",
            fix="Use cpu, memory, ephemeral-storage, hugepages-<size>, or a device's name with its domain",
        )
    return text


def _extended_resource_name(text: str) -> str:
    if "/" not in text:
        raise reject(
            "has no domain, which the name of a device plugin's resource has", fix="For example rebellions.ai/npu"
        )
    if text.split("/", 1)[0].endswith("kubernetes.io") or text.startswith("requests."):
        raise reject(
            "lies in a domain that Kubernetes keeps for itself", fix="Use the name the device plugin registers"
        )
    return _label_key(text)


def _qualified_attribute(text: str) -> str:
    """`domain/identifier` of a device attribute (Kubernetes API reference, DeviceConstraint.matchAttribute)."""
    domain, slash, identifier = text.partition("/")
    if not slash:
        raise reject("has no domain", fix="Write it in full, for example resource.kubernetes.io/numaNode")
    if len(domain) > LABEL_LENGTH or not re.fullmatch(_SUBDOMAIN, domain):
        raise reject(
            f"has a domain that is no DNS subdomain of at most {LABEL_LENGTH} characters", fix="Correct the domain"
        )
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,31}", identifier):
        raise reject(
            "has a name that is no identifier of at most 32 characters",
            fix="Use letters, digits and '_' after the '/', not beginning with a digit",
        )
    return text


def _schema(pattern: str, limit: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "minLength": 1, "maxLength": limit, "pattern": f"^{pattern}$"})


Release = Annotated[str, AfterValidator(_release), _schema(_LABEL_1035, RELEASE_LENGTH)]
"""DNS label that begins with a letter, short enough for every name made from it."""
DnsLabel = Annotated[str, AfterValidator(_dns_label), _schema(_LABEL, LABEL_LENGTH)]
"""RFC 1123 label: at most 63 of `a-z0-9-`. Namespaces, containers, claim requests."""
ServiceName = Annotated[str, AfterValidator(_service_name), _schema(_LABEL_1035, LABEL_LENGTH)]
"""DNS label that begins with a letter."""
DnsSubdomain = Annotated[str, AfterValidator(_dns_subdomain), _schema(_SUBDOMAIN, SUBDOMAIN_LENGTH)]
"""RFC 1123 subdomain: labels joined by dots, at most 253. Most other object names."""
LabelKey = Annotated[str, AfterValidator(_label_key), WithJsonSchema({"type": "string", "minLength": 1})]
"""Key of a label, annotation or node selector: optional DNS prefix and a name of at most 63."""
LabelValue = Annotated[str, AfterValidator(_label_value), WithJsonSchema({"type": "string", "maxLength": LABEL_LENGTH})]
EnvName = Annotated[str, AfterValidator(_env_name), _schema("[A-Za-z_][A-Za-z0-9_]*", 1024)]
SecretDataKey = Annotated[str, AfterValidator(_secret_data_key), _schema("[-._A-Za-z0-9]+", SUBDOMAIN_LENGTH)]
FileName = Annotated[str, AfterValidator(_file_name), _schema("[-._A-Za-z0-9]+", SUBDOMAIN_LENGTH)]
ResourceName = Annotated[str, AfterValidator(_resource_name), WithJsonSchema({"type": "string", "minLength": 1})]
ExtendedResourceName = Annotated[
    str, AfterValidator(_extended_resource_name), WithJsonSchema({"type": "string", "pattern": "/"})
]
AttributeName = Annotated[str, AfterValidator(_qualified_attribute), WithJsonSchema({"type": "string", "pattern": "/"})]


def _not_blank(text: str) -> str:
    if not text.strip():
        raise reject("holds nothing", fix="Fill it in, or remove the key")
    return text


NonEmpty = Annotated[str, AfterValidator(_not_blank), WithJsonSchema({"type": "string", "minLength": 1})]


# --- images -----------------------------------------------------------------------------------------------------------

_TAG: Final = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
_PATH_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST: Final = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?"


def _image_tag(text: str) -> str:
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+ ?(Z|[+-][0-9: +-]+)( UTC)?", text):
        raise reject("was read as a date", fix="Put the tag in quotes, exactly as the registry shows it")
    _length(text, 128, "tag")
    if not re.fullmatch(_TAG, text):
        raise reject(
            "is not an image tag",
            fix="Use letters, digits, '_', '.' and '-', not beginning with '.' or '-'; a digest has its own key",
        )
    return text


def _image_digest(text: str) -> str:
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", text):
        raise reject("is not an image digest", fix="Write sha256: and 64 hexadecimal digits in lower case")
    return text


def _image_repository(text: str) -> str:
    if "@" in text:
        raise reject("holds a digest", fix="Write the digest under `digest`")
    if re.search(r":[^/]*$", text) and not re.fullmatch(_HOST, text):
        raise reject("holds a tag", fix="Write the tag under `tag`")
    if "://" in text:
        raise reject("is a URL", fix="Leave out the scheme")
    host, _, rest = text.partition("/")
    path = rest if rest and re.search(r"[.:]|^localhost$", host) and re.fullmatch(_HOST, host) else text
    if not re.fullmatch(rf"{_PATH_PART}(/{_PATH_PART})*", path):
        raise reject("is not an image repository", fix="Write it like registry.example/team/image, in lower case")
    return text


ImageTag = Annotated[str, AfterValidator(_image_tag), _schema(_TAG, 128)]
ImageDigest = Annotated[str, AfterValidator(_image_digest), _schema("sha256:[0-9a-f]{64}", 71)]
ImageRepository = Annotated[str, AfterValidator(_image_repository), WithJsonSchema({"type": "string", "minLength": 1})]


def _semantic_version(text: str) -> str:
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?", text):
        raise reject("is not a version", fix="Write three numbers without v in front, such as 4.25.0")
    return text


SemanticVersion = Annotated[
    str, AfterValidator(_semantic_version), _schema(r"[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?", 64)
]


# --- numbers ----------------------------------------------------------------------------------------------------------

Port = Annotated[int, Field(ge=1, le=65535)]
Positive = Annotated[int, Field(ge=1, le=MAX_INT32)]
Count = Annotated[int, Field(ge=0, le=MAX_INT32)]


def _int_or_percent(value: object) -> int | str:
    match value:
        case bool():
            pass
        case int() if 0 <= value <= MAX_INT32:
            return value
        case int():
            raise reject(f"lies outside 0 to {MAX_INT32}", fix="Write a number of Pods, or a percentage such as 25%")
        case str() if re.fullmatch(r"[0-9]{1,9}%", value):
            return value
        case str() if re.fullmatch(r"[0-9]+", value):
            raise reject("is text, not a number", fix="Write the number without quotes")
        case _:
            pass
    raise reject("is neither a number nor a percentage", fix="Write a number of Pods, or a percentage such as 25%")


IntOrPercent = Annotated[
    int | str,
    BeforeValidator(_int_or_percent),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,9}%$"}]}),
]

_SUFFIXES: Final = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]{1,19}(?:\.[0-9]{0,18})?|\.[0-9]{1,18}))"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,2}))?"
)


def amount(quantity: str) -> Decimal:
    """Read a Kubernetes quantity: `500m` is 0.5, `8Gi` is 8589934592, `1e3` is 1000.

    Two quantities compare by their amounts: `amount("1024Mi") == amount("1Gi")`.

    Raises:
        ValueError: the text is no quantity, or far larger than any cluster.
    """
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        raise ValueError(quantity)
    scale = Decimal(10) ** int(found["exponent"]) if found["exponent"] else _SUFFIXES[found["suffix"] or ""]
    return Decimal(found["number"]) * scale


def _quantity(value: object) -> str:
    """Numbers are taken as they are, since `cpu: 4` and `cpu: 0.5` mean the same quoted or not."""
    match value:
        case bool():
            raise reject("is not a quantity", fix="Write an amount such as 500m, 4 or 8Gi")
        case int() | float():
            text = str(value)
        case str():
            text = value
        case _:
            raise reject("is not a quantity", fix="Write an amount such as 500m, 4 or 8Gi")
    try:
        size = amount(text)
    except ValueError:
        unit = re.fullmatch(r"[0-9.]+ ?(?:[kKMGTP]i?[bB]|[gmtkp]i?[bB]?)", text)
        fix = "Write an amount such as 500m, 4 or 8Gi"
        raise reject("is not a quantity", fix=f"{fix}; units are Ki, Mi, Gi, Ti without a B" if unit else fix) from None
    if size < 0:
        raise reject("is less than nothing", fix="Write an amount of 0 or more")
    return text


def _positive_quantity(text: str) -> str:
    if amount(text) == 0:
        raise reject("is nothing", fix="Write a size such as 10Gi")
    return text


_QUANTITY_SCHEMA: Final = WithJsonSchema(
    {
        "anyOf": [
            {"type": "number", "minimum": 0},
            {"type": "string", "pattern": "^[0-9.]+([eE]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$"},
        ]
    }
)
Quantity = Annotated[str, BeforeValidator(_quantity), _QUANTITY_SCHEMA]
"""Kubernetes quantity of 0 or more, kept as it was written; `amount` gives its value."""
Size = Annotated[str, BeforeValidator(_quantity), AfterValidator(_positive_quantity), _QUANTITY_SCHEMA]
"""Quantity above 0: the size of a volume."""


# --- time -------------------------------------------------------------------------------------------------------------

_GATEWAY_UNITS: Final = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


def _gateway_duration(text: str) -> str:
    """Gateway API Duration (GEP-2257): one to four parts of at most five digits with h, m, s or ms."""
    if not re.fullmatch(r"([0-9]{1,5}(h|m|s|ms)){1,4}", text):
        raise reject(
            "is not a duration of the Gateway API",
            fix="Write up to four parts with h, m, s or ms, such as 300s or 1h30m",
        )
    return text


def milliseconds(duration: str) -> int:
    """Length of a Gateway API duration that has been accepted, in milliseconds."""
    return sum(int(n) * _GATEWAY_UNITS[unit] for n, unit in re.findall(r"([0-9]+)(ms|h|m|s)", duration))


def _scrape_interval(text: str) -> str:
    """Prometheus duration, as the Prometheus Operator's and VictoriaMetrics' schemas accept it."""
    if not re.fullmatch(r"([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?", text) or not re.search(r"[1-9]", text):
        raise reject("is not an interval", fix="Write a duration above 0 such as 10s or 1m30s")
    return text


GatewayDuration = Annotated[str, AfterValidator(_gateway_duration), _schema("([0-9]{1,5}(h|m|s|ms)){1,4}", 24)]
ScrapeInterval = Annotated[str, AfterValidator(_scrape_interval), WithJsonSchema({"type": "string", "minLength": 2})]


# --- paths, hosts, flags ----------------------------------------------------------------------------------------------


def _mount_path(text: str) -> str:
    if not text.startswith("/") or text.strip("/") == "":
        raise reject("is not an absolute path below the root", fix="Write a path such as /models")
    if ":" in text:
        raise reject("holds a ':', which a mount path must not", fix="Choose a path without ':'")
    if any(part in {"", ".", ".."} for part in text[1:].split("/")):
        raise reject("is not in its plain form", fix="Leave out '.', '..', '//' and a '/' at the end")
    return text


def _sub_path(text: str) -> str:
    if text.startswith("/"):
        raise reject(
            "is absolute, but is looked up inside the model volume", fix="Write it relative to storage.model.mountPath"
        )
    if any(part in {"", ".", ".."} for part in text.split("/")):
        raise reject("is not in its plain form", fix="Leave out '.', '..', '//' and a '/' at the end")
    return text


def _http_path(text: str) -> str:
    if not re.fullmatch(r"/[!-~]*", text):
        raise reject("is not an HTTP path", fix="Begin it with '/' and use no spaces")
    return text


def _hostname(text: str) -> str:
    """Gateway API Hostname: a DNS name, the first label may be '*', never an IP address."""
    _length(text, SUBDOMAIN_LENGTH, "host name")
    if re.fullmatch(r"[0-9.]+|[0-9a-fA-F]*:[0-9a-fA-F:]*", text):
        raise reject("is an IP address or has a port", fix="Write a DNS name; the Gateway API takes no addresses here")
    if not re.fullmatch(rf"(\*\.)?{_SUBDOMAIN}", text):
        raise reject(
            "is not a host name", fix="Write a DNS name such as llm.example.com or *.example.com, in lower case"
        )
    return text


def _flag_name(text: str) -> str:
    """Name of an engine flag without its dashes, in vLLM's spelling: words joined by '-', sub-keys after a '.'."""
    if text.startswith("-"):
        raise reject("begins with '-'", fix=f"Leave the dashes out: {text.lstrip('-') or 'block-size'}")
    if "=" in text or " " in text:
        raise reject("holds a value", fix="Write the flag's name as the key and its value after the ':'")
    head, dot, rest = text.partition(".")
    if "_" in head:
        raise reject(
            "is written with '_', so it would not replace the same flag written with '-'",
            fix=f"Write {head.replace('_', '-')}{dot}{rest}",
        )
    if not re.fullmatch(r"[a-z][a-z0-9-]*(\.[A-Za-z0-9_.-]+)?", text):
        raise reject(
            "is not the name of a flag", fix="Write it in lower case without dashes in front, such as block-size"
        )
    return text


def _extra_flag(text: str) -> str:
    """One argument in the form `--flag` or `--flag=value`; a short form is refused so that duplicates can be told."""
    if re.fullmatch(r"-[A-Za-z][A-Za-z]*(=.*)?", text, re.DOTALL):
        return text  # a short form: `stack.rules` says what it stands for
    if not text.startswith("--"):
        raise reject("does not begin with '--'", fix="Write flag and value as one entry: --flag=value", hide=True)
    name = text[2:].split("=", 1)[0]
    if " " in name or "\n" in name:
        raise reject("holds flag and value separated by a space", fix="Write flag and value as one entry: --flag=value")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_.-]+)?", name):
        raise reject("is not a flag", fix="Write one entry for each flag: --flag or --flag=value")
    return text


MountPath = Annotated[str, AfterValidator(_mount_path), WithJsonSchema({"type": "string", "pattern": "^/[^:]+$"})]
SubPath = Annotated[str, AfterValidator(_sub_path), WithJsonSchema({"type": "string", "pattern": "^[^/]"})]
HttpPath = Annotated[str, AfterValidator(_http_path), WithJsonSchema({"type": "string", "pattern": "^/"})]
Hostname = Annotated[str, AfterValidator(_hostname), WithJsonSchema({"type": "string", "maxLength": SUBDOMAIN_LENGTH})]
FlagName = Annotated[str, AfterValidator(_flag_name), _schema(r"[a-z][a-z0-9-]*(\.[A-Za-z0-9_.-]+)?", 200)]
ExtraFlag = Annotated[str, AfterValidator(_extra_flag), WithJsonSchema({"type": "string", "pattern": "^-"})]


_SCALAR_WORDS: Final[dict[Callable[..., Any], str]] = {
    _release: "DNS label of at most 32 characters",
    _dns_label: "DNS label",
    _service_name: "DNS label",
    _dns_subdomain: "name",
    _image_tag: "image tag",
    _image_digest: "image digest",
    _image_repository: "image repository",
    _int_or_percent: "whole number or percentage",
    _quantity: "quantity",
    _gateway_duration: "duration",
    _scrape_interval: "duration",
    _mount_path: "absolute path",
    _sub_path: "relative path",
    _http_path: "HTTP path",
    _hostname: "host name",
    _flag_name: "flag without dashes",
    _extra_flag: "--flag=value",
    _extended_resource_name: "resource with its domain",
    _qualified_attribute: "attribute with its domain",
}


def word_for(metadata: tuple[Any, ...]) -> str | None:
    """What a type of this module is called in the reference; None for types that it says nothing special about."""
    for item in metadata:
        if isinstance(item, AfterValidator | BeforeValidator) and item.func in _SCALAR_WORDS:
            return _SCALAR_WORDS[item.func]
    return None


# --- quantities as the API server shows them --------------------------------------------------------------------------

_DECIMAL_SUFFIX: Final = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_SUFFIX: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_NANO: Final = 10**9
_LARGEST_BINARY: Final = 2**63 - 1


def canonical(quantity: str) -> str:
    """Write a quantity of 0 or more as the API server gives it back, so that a preview shows no difference.

    `1024Mi` is `1Gi`, `0.5` is `500m`, `4000m` is `4`, `1000` is `1k`, `1.5Gi` is `1536Mi`. The family of the unit
    stays as long as it can say the amount in whole numbers: `0.1Gi` becomes `107374182400m`, less than 1Ki loses its
    unit, and `1e4` stays an exponent, `10e3` (Kubernetes apimachinery, `pkg/api/resource`, canonical form of Quantity).

    Raises:
        ValueError: the text is no quantity.
    """
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        raise ValueError(quantity)
    is_binary = (found["suffix"] or "").endswith("i")
    nanos = _nanos(found["number"], found["suffix"] or "", int(found["exponent"] or 0))
    if is_binary:
        nanos = min(nanos, _LARGEST_BINARY * _NANO)
        if nanos % _NANO == 0 and nanos >= 1024 * _NANO:
            number, power = nanos // _NANO, 0
            while number % 1024 == 0 and power < len(_BINARY_SUFFIX) - 1:
                number, power = number // 1024, power + 1
            return f"{number}{_BINARY_SUFFIX[power]}"
    if nanos == 0:
        return "0"
    number, exponent = nanos, -9
    is_exponent = found["exponent"] is not None
    while number % 1000 == 0 and (is_exponent or exponent < max(_DECIMAL_SUFFIX)):
        number, exponent = number // 1000, exponent + 3
    if is_exponent:
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{_DECIMAL_SUFFIX[exponent]}"


def _nanos(number: str, suffix: str, exponent: int) -> int:
    """The amount in billionths, in whole numbers: what is finer is rounded up, as the API server does."""
    whole, _, fraction = number.lstrip("+").partition(".")
    value, places = int(f"{whole}{fraction}"), len(fraction)
    if suffix.endswith("i"):
        value *= int(_SUFFIXES[suffix])
    else:
        exponent += _SUFFIXES[suffix].adjusted()
    shift = exponent - places + 9
    return value * 10**shift if shift >= 0 else -(-value // 10**-shift)
