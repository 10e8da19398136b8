"""For all tiers."""

from __future__ import annotations

from hypothesis import settings

# A busy machine makes single examples slow; how long anything takes is no test's business here.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
