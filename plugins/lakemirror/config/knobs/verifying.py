"""How much is checked before and after a version is published."""

from __future__ import annotations

from lakemirror.config.quantities import Count, Fraction
from lakemirror.config.section import Section, knob


class VerifyKnobs(Section, defer_build=True):
    """How much is checked before and after a version is published."""

    p: Fraction = knob(
        0.02,
        "The share of n objects that L0 samples: clamp(ceil(n·p), k_min, k_max).",
        requirement="M10 §6.2, M17 §11",
        unit="fraction",
        ge=0,
        le=1,
    )
    k_min: Count = knob(
        100,
        "The smallest sample of L0 (all objects, if there are fewer).",
        requirement="M10 §6.2, M17 §11",
        unit="objects",
        ge=0,
    )
    k_max: Count = knob(
        2000,
        "The largest sample of L0.",
        requirement="M10 §6.2, M17 §11",
        unit="objects",
        ge=1,
    )
    enable_L0_quick_publish: bool = knob(  # noqa: N815 - the name is part of the file format
        True,
        "Publish when the sampled checks of L0 pass. `false` (wait for L1) is not in this version and is refused.",
        requirement="M10 §6.2, M17 §11",
    )
    enable_L1_async_audit: bool = knob(  # noqa: N815 - the name is part of the file format
        True,
        "Check all manifests and sampled hashes in the background after publishing; `false`: only on demand.",
        requirement="M10 §6.2, M17 §11",
        takes_effect="planned",
    )
