"""``--logit-bias ID=VALUE`` in numbers."""

from __future__ import annotations

from collections.abc import Sequence

from flashspec.cli.faults import UsageError


def biases(words: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """Ids and what is added to their logits.

    Raises:
        UsageError: something that is not ``ID=VALUE``.
    """
    made = []
    for word in words:
        token, _, value = word.partition("=")
        try:
            made.append((int(token), float(value)))
        except ValueError as error:
            raise UsageError(f"--logit-bias {word} is not ID=VALUE, such as 198=-2.5 (-inf forbids)") from error
    return tuple(made)
