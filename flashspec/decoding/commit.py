"""The one path by which emitted tokens become output, with drafts or without.

EOS, stop strings and the budget cut a step here and nowhere else, so that both ways of decoding
end alike. Cutting after the first stopping token keeps the law exact: it is a stopping time
(verification rule E13).
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from flashspec.decoding.logprobs import TokenLogprobs
from flashspec.decoding.request import FinishReason, Request
from flashspec.decoding.text import Decode, Detokenizer, find_stop, held_back


@attrs.frozen
class Output:
    """What a request has committed so far."""

    token_ids: tuple[int, ...] = ()
    detokenizer: Detokenizer = Detokenizer()
    shown: int = 0
    """Characters of the text already handed out."""
    finish_reason: FinishReason | None = None
    cut: int | None = None
    """Where a stop string begins in the text."""
    origins: tuple[str, ...] = ()
    """See ``Result``; one a token if ``commit`` was told."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """See ``Result``."""

    @property
    def text(self) -> str:
        """The text so far, cut before a stop string."""
        return self.detokenizer.text[: self.cut]


def _ending(output: Output, before: int, request: Request) -> tuple[FinishReason | None, int | None]:
    """Why generation ends after the last committed token, and where its text is cut."""
    tokens = output.token_ids
    if tokens[-1] in request.eos_ids:
        return "eos", None
    if request.stop:
        place = find_stop(output.detokenizer.text, request.stop, before)
        if place is not None:
            return "stop", place
    if request.ends is not None and request.ends(tokens):
        return "stop", None
    return ("length", None) if len(tokens) >= request.max_new_tokens else (None, None)


def commit(
    output: Output,
    emitted: Sequence[int],
    request: Request,
    decode: Decode,
    *,
    origins: Sequence[str] = (),
    logprobs: Sequence[TokenLogprobs] = (),
) -> tuple[Output, int]:
    """Append emitted tokens until one ends the request; returns the output and how many were kept.

    What is said about the tokens (``origins``, ``logprobs``: one an emitted token, or nothing) is cut with them.
    """
    # implements: STP-2
    kept = 0
    for token in emitted:
        if output.finish_reason is not None:
            break
        before = len(output.detokenizer.text)
        output = attrs.evolve(
            output,
            token_ids=(*output.token_ids, token),
            detokenizer=output.detokenizer.push(token, decode),
        )
        reason, cut = _ending(output, before, request)
        output = attrs.evolve(output, finish_reason=reason, cut=cut)
        kept += 1
    output = attrs.evolve(
        output, origins=(*output.origins, *origins[:kept]), logprobs=(*output.logprobs, *logprobs[:kept])
    )
    return output, kept


def finish(output: Output, decode: Decode) -> Output:
    """Decode what is still held back when a request ends (not after a stop string)."""
    if output.cut is not None:
        return output
    return attrs.evolve(output, detokenizer=output.detokenizer.flush(decode))


def show(output: Output, request: Request) -> tuple[Output, str]:
    """Hand out the text that is certain by now."""
    text = output.text
    hold = held_back(text, request.stop) if output.finish_reason is None and request.stop else 0
    upto = max(output.shown, len(text) - hold)
    return attrs.evolve(output, shown=upto), text[output.shown : upto]
