"""What is known of lookup drafts before the first step: hazards by match length.

Measured with ``flashspec bench hazards`` on greedy answers of SmolLM2-135M-Instruct in bfloat16 to 44
prompts of Spec-Bench (5,359 tokens), which are not those of ``flashspec bench decode``: at every
position, how often the first, second, ... token of a draft was right, given that those before it
were. The counts are in ``docs/benchmarks/2026-11-29-lookup-hazards.json``; here they are rounded, and
smoothed where few drafts were that long.
"""

from __future__ import annotations

from flashspec.selectors.cht import Known

LOOKUPS: Known = {
    "ngram": (
        (0.27, 0.55, 0.68, 0.74, 0.80, 0.82),
        (0.55, 0.66, 0.72, 0.78, 0.80, 0.82, 0.84),
        (0.81, 0.86, 0.89, 0.91, 0.92, 0.93, 0.95, 0.95, 0.96, 0.97),
        (0.81, 0.86, 0.89, 0.91, 0.92, 0.93, 0.95, 0.95, 0.96, 0.97),
    ),
    "suffix": (
        (0.28, 0.55, 0.69, 0.74, 0.80, 0.82),
        (0.54, 0.66, 0.72, 0.78, 0.80, 0.82, 0.84),
        (0.70, 0.75, 0.77, 0.79, 0.81, 0.82, 0.85),
        (0.92, 0.93, 0.95, 0.95, 0.96, 0.97),
    ),
}
"""Rows: matches of 1, 2, 3 to 6, 7 and more tokens (``drafts.lookup.bucket``)."""
