"""Rules about labels and annotations of the operator's beside the stack's own.

The stack's own always win (`stack.labels`), so a key of theirs would be dropped in silence, and a selector over one
would find one role, the endpoint picker or nothing. Such keys are refused whatever their value is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stack import labels
from stack.config.shape import written
from stack.rules.rule import Finding, Rule, Setting, error, rule
from stack.scalars import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HASH: Final = "pod-template-hash"
_OF_EVERY_OBJECT: Final = frozenset(labels.common_labels("release", "component"))
_OF_ONE_ROLE: Final = frozenset({labels.COMPONENT, labels.ROLE, labels.ENTRY})
_OF_THE_EPP: Final = frozenset({labels.EPP_WITH_POOL, labels.EPP_WITHOUT_POOL})
"""The EPP's Service selects by one of them and the release: with it a role Pod would be asked to pick endpoints."""
_OURS: Final = "serving-stack.dev/"
_OF_THE_ENGINE: Final = "pulumi.com/"


def keep_what_selectors_use(setting: Setting) -> Iterator[Finding]:
    """Labels and annotations of role Pods, and the host name in nodePlacement mode."""
    matched = setting.config.router.model_servers.match_labels
    taken = {*_OF_EVERY_OBJECT, *_OF_ONE_ROLE, *_OF_THE_EPP, *matched, *setting.recipe.labels, _HASH}
    for role in ROLES:
        overrides, place = setting.config.modelserver.pod_overrides.of(role), ("modelserver", "podOverrides", role)
        for key, value in overrides.labels.items():
            if key in taken or key.startswith(_OURS):
                yield error(
                    written((*place, "labels", key)),
                    value,
                    "is set by the stack, and selectors, endpoint picker or dashboards rely on it",
                    fix="Remove it, or use a label of your own",
                )
        yield from _annotate((*place, "annotations"), overrides.annotations, {labels.ACTIVE_PORTS})
        if setting.is_placed and "kubernetes.io/hostname" in overrides.node_selector:
            yield error(
                written((*place, "nodeSelector", "kubernetes.io/hostname")),
                overrides.node_selector["kubernetes.io/hostname"],
                "is set by modelserver.nodePlacement",
                fix="Remove it",
            )


def select_every_role_and_nothing_else(setting: Setting) -> Iterator[Finding]:
    """Labels of the pool's selector that role Pods have with values of their own."""
    for key, value in setting.config.router.model_servers.match_labels.items():
        why, fix = _why_it_selects_wrongly(key), "Remove it, or use a label of your own"
        own = setting.recipe.labels.get(key, value)
        if why is None and own != value:
            why = f"recipe {setting.recipe.name} labels its Pods {own}, and they cannot have both"
            fix = f"Write {own}, or use a label of your own"
        if why is not None:
            yield error(written(("router", "modelServers", "matchLabels", key)), value, why, fix=fix)


def _why_it_selects_wrongly(key: str) -> str | None:
    if key == labels.INSTANCE:
        return "is always the release, so that foreign Pods do not join"
    if key in _OF_ONE_ROLE:
        return "has another value for each role, so the pool would hold one of them or none"
    if key in _OF_EVERY_OBJECT:
        return "is on the endpoint picker's Pods as well, so the pool would hold those too, or none"
    if key in _OF_THE_EPP:
        return "is what the endpoint picker's Service selects by, so it would ask role Pods to pick"
    if key == _HASH or key.startswith(_OURS):
        return "has values that Kubernetes or the stack makes, so the pool would lose its Pods"
    return None


def leave_ours_to_scrape_objects(setting: Setting) -> Iterator[Finding]:
    """Labels of scrape objects that every object of the stack has already."""
    for key, value in setting.config.monitoring.labels.items():
        if key in _OF_EVERY_OBJECT or key.startswith(_OURS):
            yield error(
                written(("monitoring", "labels", key)),
                value,
                "is on every object of the stack, with a value of its own",
                fix="Remove it, and let the operator select by another label",
            )


def leave_ours_to_the_gateway(setting: Setting) -> Iterator[Finding]:
    """Annotations of the Gateway by which the engine is told how to treat it."""
    yield from _annotate(("gateway", "annotations"), setting.config.gateway.annotations, set())


def _annotate(place: tuple[str, ...], given: Mapping[str, str], taken: set[str]) -> Iterator[Finding]:
    for key, value in given.items():
        if key in taken or key.startswith((_OF_THE_ENGINE, _OURS)):
            yield error(written((*place, key)), value, "is set by the stack", fix="Remove it")


RULES: tuple[Rule, ...] = (
    rule(keep_what_selectors_use, "modelserver", "router", "recipe"),
    rule(select_every_role_and_nothing_else, "router", "recipe"),
    rule(leave_ours_to_scrape_objects, "monitoring"),
    rule(leave_ours_to_the_gateway, "gateway"),
)
