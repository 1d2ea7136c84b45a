"""Faults that show only in arguments of another form, or in results that are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import (
    Dense,
    Ragged,
    Sample,
    Sampling,
    Sparse,
    Status,
    Uniforms,
    Verdict,
)
from flashspec.errors import ContractError
from flashspec_conformance.mutants.mutant import Mutant, hooks
from flashspec_conformance.mutants.outsider_proposals import tables
from flashspec_conformance.plain import views
from flashspec_conformance.plain.backend import Arguments, Plain


def _packed(array: Any) -> Any:
    """The first elements of the memory that a view looks into."""
    if array.flags.c_contiguous or array.base is None:
        return array
    return np.ascontiguousarray(array.base).reshape(-1)[: array.size].reshape(array.shape)


def _drafts_packed(arguments: Arguments) -> Arguments:
    return (arguments[0], _packed(arguments[1]), *arguments[2:])


def _masks_packed(arguments: Arguments) -> Arguments:
    sampling = arguments[4]
    if sampling.allowed is None:
        return arguments
    return (*arguments[:4], attrs.evolve(sampling, allowed=_packed(sampling.allowed)), arguments[5])


def _sparse_packed(sparse: Sparse) -> Sparse:
    return Sparse(_packed(sparse.ids), _packed(sparse.logprobs))


def _short_bounds(arguments: Arguments) -> Arguments:
    layout = arguments[3]
    if isinstance(layout, Ragged) and layout.cu_rows.dtype != np.int32:
        raise ContractError(f"cu_rows has dtype {layout.cu_rows.dtype}; allowed: int32")
    return arguments


@attrs.frozen(eq=False)
class Buffered(Plain):
    """Writes every verdict of a shape to the same memory."""

    held: dict[Any, Any] = attrs.field(factory=dict)

    def verify(self, *arguments: Any) -> Verdict:
        """The right verdict, until the next one."""
        verdict = super().verify(*arguments)
        kept: Verdict = self.held.setdefault(verdict.tokens.shape, verdict)
        for name in ("tokens", "num_accepted", "num_emitted", "status", "logprobs"):
            getattr(kept, name)[...] = getattr(verdict, name)
        return kept


@attrs.frozen(eq=False)
class Shell(Plain):
    """Alters what goes into and comes out of everything but ``verify``."""

    given: Callable[[Any], Any] = lambda logits: logits
    """Called with the logits of ``sample``."""
    sampled: Callable[[Sample, Sampling], Sample] = lambda sample, sampling: sample
    joined: Callable[[Dense, Sequence[Dense]], Dense] = lambda whole, parts: whole
    shared: bool = False
    """Arrays that need no conversion are not copied."""

    def asarray(self, values: npt.NDArray[Any], dtype: str, device: str = "cpu") -> npt.NDArray[Any]:
        """An array, perhaps the caller's."""
        own = super().asarray(values, dtype, device)
        return values if self.shared and values.dtype == own.dtype else own

    def to_numpy(self, array: Any) -> npt.NDArray[Any]:
        """A host array, perhaps the backend's own."""
        return array if self.shared else super().to_numpy(array)

    def sample(self, logits: Any, sampling: Sampling, randomness: Any) -> Sample:
        """An altered sample."""
        return self.sampled(super().sample(self.given(logits), sampling, randomness), sampling)

    def concat(self, proposals: Sequence[Dense]) -> Dense:
        """Altered joined proposals."""
        return self.joined(super().concat(proposals), proposals)


@attrs.frozen(eq=False)
class OtherDefault(Plain):
    """Has another default method."""

    def verify(self, *arguments: Any, **named: Any) -> Verdict:
        """A verdict by ``path`` unless a method is given."""
        default = {} if len(arguments) > 6 else {"method": "path"}
        return super().verify(*arguments, **{**default, **named})


@attrs.frozen(eq=False)
class Coined(Plain):
    """Wants coins under every method."""

    def verify(self, *arguments: Any) -> Verdict:
        """A verdict, if there are coins."""
        if isinstance(arguments[5], Uniforms) and arguments[5].accept is None and arguments[-1] == "greedy":
            raise ContractError("randomness.accept is None; allowed: coins [B, K]")
        return super().verify(*arguments)


@attrs.frozen(eq=False)
class Whole(Plain):
    """Takes a row as full where any bit of its mask is set, of a token or not."""

    def verify(self, *arguments: Any) -> Verdict:
        """The right verdict, but no row is empty that has a bit behind the vocabulary."""
        verdict, words = super().verify(*arguments), arguments[4].allowed
        junk = (
            words is not None
            and words.size
            and views.unpack(words, 32 * words.shape[1])[:, arguments[0].shape[-1] :].any()
        )
        return attrs.evolve(verdict, status=verdict.status & ~int(Status.EMPTY_ROW)) if junk else verdict


def _masks_by_step(whole: Dense, parts: Sequence[Dense]) -> Dense:
    if whole.sampling.allowed is None:
        return whole
    words = np.concatenate([np.asarray(p.sampling.allowed) for p in parts])
    return attrs.evolve(whole, sampling=attrs.evolve(whole.sampling, allowed=words))


def _shell(id: str, fault: str, *clauses: str, **changes: Any) -> Mutant:
    return Mutant(id, fault, Shell(name=id, **changes), clauses)


def _mask_shared(sample: Sample, sampling: Sampling) -> Sample:
    return attrs.evolve(sample, proposal=attrs.evolve(sample.proposal, sampling=sampling))


MUTANTS = (
    hooks("drafts_packed", "rows of drafts are taken to be K apart", "LAY-2", enter=_drafts_packed),
    hooks("masks_packed", "rows of masks are taken to be packed", "FLT-5", enter=_masks_packed),
    hooks("sparse_packed", "sparse rows are taken to be packed", "PRP-2", q_row=tables(_sparse_packed, Sparse)),
    hooks("bounds_of_32_bits", "64-bit row bounds are refused", "LAY-1", enter=_short_bounds),
    _shell("sampled_rows_packed", "sample takes the row stride to be V", "LAY-4", "PRP-7", given=_packed),
    Mutant("bits_behind_the_vocabulary", "any bit makes a row full", Whole(name="whole"), ("STS-2", "FLT-5")),
    Mutant("greedy_wants_coins", "greedy calls without coins are refused", Coined(name="coined"), ("GRD-1",)),
    Mutant("another_default", "the default method is path", OtherDefault(name="another_default"), ("CAP-1",)),
    _shell("masks_joined_by_step", "joined masks lie step by step", "PRP-7", joined=_masks_by_step),
    _shell(
        "one_step_not_copied", "one step is joined to itself", "PUR-1", joined=lambda w, p: p[0] if len(p) == 1 else w
    ),
    _shell("record_shares_mask", "the record's mask is the caller's", "PUR-1", "PRP-7", sampled=_mask_shared),
    _shell("arrays_shared", "arrays are not copied to and from the host", "PUR-1", shared=True),
    Mutant("static_outputs", "verdicts live until the next call", Buffered(name="static_outputs"), ("PUR-2",)),
)
