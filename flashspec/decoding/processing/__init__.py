"""What changes the target's logits before they are sampled: penalties, biases, bans and grammars.

A processor is a pure function of the text before a row. Under speculation row ``j`` is processed with
the text that includes drafts ``0..j-1``, so the law of each token is the one that plain decoding has.
"""

from flashspec.decoding.processing.bans import Allowed, Bias, Forced, MinNewTokens, NoRepeatNGram, SuppressedAt
from flashspec.decoding.processing.grammar import Constrained, Grammar
from flashspec.decoding.processing.penalties import Penalties
from flashspec.decoding.processing.protocol import Edit, Processor, pack
from flashspec.decoding.processing.window import (
    Changes,
    Plan,
    Row,
    States,
    Whole,
    Window,
    begin,
    change_rows,
    plan,
    settle,
    window,
)

__all__ = [
    "Allowed",
    "Bias",
    "Changes",
    "Constrained",
    "Edit",
    "Forced",
    "Grammar",
    "MinNewTokens",
    "NoRepeatNGram",
    "Penalties",
    "Plan",
    "Processor",
    "Row",
    "States",
    "SuppressedAt",
    "Whole",
    "Window",
    "begin",
    "change_rows",
    "pack",
    "plan",
    "settle",
    "window",
]
