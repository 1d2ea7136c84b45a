"""What is known of lookup drafts before the first step: hazards by match length.

Measured on greedy answers of SmolLM2-135M-Instruct in bfloat16 to 44 prompts of Spec-Bench (every
fourth one with an even question id; 5,493 tokens), apart from the prompts of ``flashspec bench``:
at every position, how often the first, second, ... token of a draft was right, given that those
before it were. Rounded, and smoothed where few drafts were that long.
"""

from __future__ import annotations

from flashspec.selectors.cht import Known

LOOKUPS: Known = {
    "ngram": (
        (0.28, 0.53, 0.68, 0.77, 0.79, 0.82),
        (0.54, 0.65, 0.74, 0.78, 0.80, 0.83, 0.85),
        (0.81, 0.86, 0.88, 0.90, 0.91, 0.92, 0.94, 0.94, 0.95, 0.96),
        (0.81, 0.86, 0.88, 0.90, 0.91, 0.92, 0.94, 0.94, 0.95, 0.96),
    ),
    "suffix": (
        (0.28, 0.53, 0.68, 0.77, 0.79, 0.82),
        (0.54, 0.65, 0.74, 0.78, 0.80, 0.83, 0.85),
        (0.71, 0.76, 0.78, 0.81, 0.82, 0.83, 0.85),
        (0.91, 0.92, 0.93, 0.93, 0.94, 0.95, 0.96, 0.97),
    ),
}
"""Rows: matches of 1, 2, 3 to 6, 7 and more tokens (``drafts.lookup.bucket``)."""
