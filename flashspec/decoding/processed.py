"""What stands between the target's forward and the backend's verdict, for one request or a batch of them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from flashspec.contract import Array, Backend, Sampling
from flashspec.decoding.logprobs import TokenLogprobs, of_law
from flashspec.decoding.processing import States, Window, plan, window
from flashspec.decoding.request import Request
from flashspec.decoding.rows import Rows


@attrs.frozen(eq=False)
class Asked:
    """One request in a round."""

    request: Request
    settings: States
    """The states of its processors before the round."""
    drafts: tuple[int, ...]


@attrs.frozen(eq=False)
class Processed:
    """Logits that are ready to be judged. Rows of the requests follow each other, ``K_b + 1`` for each."""

    raw: Array
    """As the target gave them; void unless some request asks for raw log-probabilities."""
    logits: Array
    """After the processors, in the shape that was given."""
    allowed: Array | None
    """For ``Sampling.allowed``."""
    windows: tuple[Window, ...]


def process(backend: Backend, rows: Rows, asked: Sequence[Asked], logits: Array, vocab: int) -> Processed:
    """Apply every request's processors to its own rows of ``logits [..., V]``.

    Raises:
        ContractError: a processor that names an id outside the vocabulary.
    """
    windows = tuple(window(a.request.active, a.settings, a.drafts, vocab) for a in asked)
    done = plan([row for w in windows for row in w.rows], vocab)
    keep = any(a.request.logprobs is not None and a.request.logprobs_of == "raw" for a in asked)
    edited = rows.edit(logits, done.stages, keep=keep) if done.stages else logits
    allowed = None if done.allowed is None else backend.asarray(done.allowed, "int32", rows.device)
    return Processed(logits, edited, allowed, windows)


def describe(
    backend: Backend, rows: Rows, request: Request, found: Processed, first: int, tokens: Sequence[int]
) -> tuple[TokenLogprobs, ...]:
    """Log-probabilities of a request's emitted tokens, whose rows begin at ``first``; nothing unless asked for."""
    if request.logprobs is None:
        return ()
    raw = request.logprobs_of == "raw"
    logits = found.raw if raw else found.logits
    part = logits.reshape(-1, logits.shape[-1])[first : first + len(tokens)]
    if raw:
        sampling = Sampling.of(len(tokens))
    else:
        sampling = Sampling.of(
            len(tokens),
            temperature=request.temperature,
            top_k=request.top_k,
            top_p=request.top_p,
            min_p=request.min_p,
            allowed=None if found.allowed is None else found.allowed[first : first + len(tokens)],
        )
    return of_law(backend, rows, part, sampling, tokens, request.logprobs)
