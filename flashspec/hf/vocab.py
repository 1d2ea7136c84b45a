"""Whether a draft model speaks the target's language: same ids for the same tokens."""

from __future__ import annotations

from typing import Any

from flashspec.errors import CapabilityError


def check_vocab(target: Any, draft: Any, target_width: int, draft_width: int, name: str) -> None:
    """Refuse a draft model whose token ids do not mean what the target's mean.

    ``target`` and ``draft`` are tokenizers or None (then only widths are compared).

    Raises:
        CapabilityError: different widths of logits, or an id that stands for another string.
    """
    if target_width != draft_width:
        relation = "smaller" if draft_width < target_width else "larger"
        raise CapabilityError(
            f"the draft {name} has {draft_width} token ids, the target {target_width}: a {relation} vocabulary; "
            "use a draft model of the target's family"
        )
    if target is None or draft is None:
        return
    ours, theirs = target.get_vocab(), draft.get_vocab()
    if ours == theirs:
        return
    by_id = {i: token for token, i in ours.items()}
    other = {i: token for token, i in theirs.items()}
    for i in sorted(set(by_id) | set(other)):
        if by_id.get(i) != other.get(i):
            raise CapabilityError(
                f"the draft {name} has another tokenizer: id {i} is {other.get(i)!r} there and {by_id.get(i)!r} "
                "in the target; use a draft model with the target's tokenizer"
            )
