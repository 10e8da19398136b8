"""The impact as a short table of plain text, for the engine's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stack.impact.model import Happening, Method, Start

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stack.impact.model import Impact, Outage, PartImpact

MOST_KEYS, MOST_PATHS = 12, 4
"""Lines of keys, and paths in one line; the rest is counted."""
NOTHING = "-"
HEADS = ("part", "Pods", "what happens", "spare devices", "capacity", "at most")
WORDS: Mapping[Happening, str] = {
    Happening.CREATED: "starts",
    Happening.DELETED: "goes",
    Happening.RESTARTS: "restarts",
    Happening.GOES_BACK: "goes back",
    Happening.CONTINUES: "goes on with an earlier change",
    Happening.STAYS: "stays",
    Happening.UNKNOWN: "not known",
}
HOW: Mapping[Method, str] = {
    Method.RECREATE: "all leave first (Recreate)",
    Method.ONE_BY_ONE: "one entry after the other",
    Method.ALL_DOWN: "all leave before any starts",
    Method.REPLACE: "its Deployment is made anew",
    Method.START: "those that are missing may start",
}


def render_table(impact: Impact) -> str:
    """What a change will do, for the log; empty when it changes nothing about any Pod."""
    if impact.changes_nothing:
        return ""
    if (summary := summarize(impact)) is not None:
        return summary
    table = [HEADS, *rows(impact)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADS))]
    aligned = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    lines = [*aligned, *because(impact), *remarks(impact), outage_line(impact)]
    return "\n".join(["what this change does:", *(f"  {line}" for line in lines)])


def summarize(impact: Impact) -> str | None:
    """All there is to say in one line, where a table would only repeat itself; None where it takes one."""
    if impact.is_first_install:
        return _first_install(impact)
    if all(part.happens is Happening.UNKNOWN for part in impact.parts):
        return f"what this change does to running Pods is not known: {_joined_reasons(impact)}"
    return None


def duration(seconds: int) -> str:
    """A time in words: `2 h 1 min 30 s`."""
    hours, rest = divmod(seconds, 3600)
    amounts = ((hours, "h"), (rest // 60, "min"), (rest % 60, "s"))
    return " ".join(f"{amount} {unit}" for amount, unit in amounts if amount) or "0 s"


def how_long(outage: Outage) -> str:
    """How long it lasts: `about 4 min, at most 21 min`."""
    about = "" if outage.about_seconds is None else f"about {duration(outage.about_seconds)}, "
    cold = ", as the new Pods compile first" if outage.start is Start.COLD else ""
    return f"{about}at most {duration(outage.at_most_seconds)}{cold}"


def _first_install(impact: Impact) -> str:
    pods = [f"{part.after} {part.part}" for part in impact.parts]
    starts = f"{', '.join(pods[:-1])} and {pods[-1]}" if len(pods) > 1 else pods[0]
    roles = [part for part in impact.parts if part.part != "epp"]
    whys = dict.fromkeys(part.cache.why for part in roles if part.cache is not None and part.cache.why)
    needs = _count_devices(
        impact, sum(part.after for part in roles), _sum(p.accelerators for p in roles), _sum(p.nics for p in roles)
    )
    devices = f"for {needs}" if needs else "without devices"
    more = "".join(f"; {why}" for why in whys)
    return f"nothing of {impact.release} runs yet: Pods of {starts} start, {devices}{more}"


def rows(impact: Impact) -> list[tuple[str, ...]]:
    """A row for each part, with a cell for each of `HEADS`."""
    return [_row(impact, part) for part in impact.parts]


def _row(impact: Impact, part: PartImpact) -> tuple[str, ...]:
    is_idle = part.happens in {Happening.STAYS, Happening.UNKNOWN}
    return (
        part.part,
        _pods(part),
        _what(part),
        _devices(impact, part),
        NOTHING if part.capacity_percent is None or is_idle else f"{part.capacity_percent} %",
        NOTHING if is_idle or not part.at_most_seconds else duration(part.at_most_seconds),
    )


def _pods(part: PartImpact) -> str:
    if part.before is None:
        return f"? -> {part.after}"
    return str(part.after) if part.before == part.after else f"{part.before} -> {part.after}"


def _what(part: PartImpact) -> str:
    match part.happens:
        case Happening.SCALES_UP:
            return f"{part.after - (part.before or 0)} more"
        case Happening.SCALES_DOWN:
            return f"{(part.before or 0) - part.after} fewer"
        case Happening.RESTARTS if part.kept:
            return f"{part.new} restart, {part.kept} stay: {_how(part)}"
        case Happening.GOES_BACK | Happening.CONTINUES:
            stay = f"{part.kept} stay, {part.leaving} leave, {part.new} new"
            return f"{WORDS[part.happens]}: {stay}: {_how(part)}"
        case Happening.RESTARTS:
            return f"{WORDS[part.happens]}: {_how(part)}"
        case _:
            return WORDS[part.happens]


def _how(part: PartImpact) -> str:
    if part.method is Method.ROLLING:
        return f"rolling, {part.max_surge or 'none'} more and {part.max_unavailable or 'none'} fewer at a time"
    return "as it is" if part.method is None else HOW.get(part.method, "as it is")


def _devices(impact: Impact, part: PartImpact) -> str:
    needs = _count_devices(impact, part.extra_pods, part.accelerators, part.nics)
    if not needs:
        return NOTHING
    if part.method is Method.ALL_DOWN:
        needs = f"{needs}, its own freed"
    return f"{needs} ({part.spare})" if part.spare else needs


def _count_devices(impact: Impact, pods: int, accelerators: int | None, nics: int | None) -> str:
    """Empty when none is needed."""
    if not pods or accelerators == nics == 0:
        return ""
    counted = [
        f"{count} {word}{'s' * (count > 1)}"
        for count, word in ((accelerators, impact.accelerator), (nics, "NIC"))
        if count
    ]
    if accelerators is None or nics is None:
        counted.append(f"what {pods} claim{'s ask' if pods > 1 else ' asks'} for")
    return ", ".join(counted)


def _sum(counts: Iterable[int | None]) -> int | None:
    """None if one of them is."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def because(impact: Impact) -> list[str]:
    """Each key that brings the change about, once, with the parts that it is about."""
    parts: dict[str, list[str]] = {}
    for part in impact.parts:
        for key in part.keys:
            parts.setdefault(str(key), []).append(part.part)
    lines = [f"because of {key}" for key in impact.topology]
    of_all = {str(key) for key in impact.topology}
    lines += [f"because of {text} ({', '.join(of)})" for text, of in parts.items() if text not in of_all]
    if len(lines) > MOST_KEYS:
        lines[MOST_KEYS - 1 :] = [f"and of {len(lines) - MOST_KEYS + 1} more keys"]
    return lines


def remarks(impact: Impact) -> list[str]:
    """Reasons, what becomes of the compile cache, and notes; each once, with the parts that it is about."""
    found: dict[str, list[str]] = {}
    for part in impact.parts:
        for remark in _remarks_of(part):
            found.setdefault(remark, []).append(part.part)
    return [f"{', '.join(of)}: {remark}" for remark, of in found.items()]


def _remarks_of(part: PartImpact) -> list[str]:
    found: list[str] = []
    if part.reason is not None:
        found.append(f"{part.reason}{_differences(part.paths)}")
    if part.cache is not None and part.cache.start is not Start.WARM and part.cache.why:
        found.append(part.cache.why)
    return [*found, *part.notes]


def _differences(paths: Sequence[str]) -> str:
    if not paths:
        return ""
    more = f" and {len(paths) - MOST_PATHS} more" if len(paths) > MOST_PATHS else ""
    return f"; the templates differ at {', '.join(paths[:MOST_PATHS])}{more}"


def _joined_reasons(impact: Impact) -> str:
    reasons = dict.fromkeys(part.reason for part in impact.parts if part.reason is not None)
    return "; ".join(reasons or impact.unknown)


def outage_line(impact: Impact) -> str:
    """Whether something is out meanwhile, how long and why."""
    outage = impact.outage
    if outage is not None:
        return f"outage, for {how_long(outage)}: {outage.why}"
    happens = {part.happens for part in impact.parts}
    if Happening.UNKNOWN in happens:
        return "whether there is an outage is not known"
    return "no outage of what stays" if Happening.DELETED in happens else "no outage"
