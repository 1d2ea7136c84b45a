"""The contract between FlashSpec and a backend: the file to read first.

A backend turns raw logits into tokens. It has two operations, :meth:`Backend.sample` and
:meth:`Backend.verify`, and states in :class:`Capabilities` what it can do. Arrays are the
backend's own; everything else that crosses the border is a frozen value defined here.

Shapes: ``B`` requests, ``K`` the largest draft length of the call, ``V`` the vocabulary, ``R``
target rows. Request ``b`` has ``n_b`` target rows, ``n_b - 1`` of which judge drafts; row ``j``
judges draft ``j`` and the row after the last draft yields the bonus token. All positions count
from 0. ``p`` is a target law, ``q`` a draft law.

The rules themselves are the clauses of ``flashspec_spec``; ``flashspec-conformance`` tests them.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.errors import ContractError

Array: TypeAlias = Any
"""An array of the backend's own kind. The core passes it on and never looks inside."""

Floats: TypeAlias = npt.ArrayLike

TILE = 1024
"""Tokens in one tile of the inverse CDF (clause SMP-3). A constant of the spec, not a tuning knob."""

NO_TOKEN = -1
"""No draft at this position (in), or nothing emitted at this position (out)."""


class Domain(enum.IntEnum):
    """What a random number is for: the last word of its Philox counter (clause RNG-3)."""

    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3
    BONUS = 4
    COUPLE = 5
    SELECT = 6


class Status(enum.IntFlag):
    """What went wrong with a request, as bits of ``Verdict.status`` (clauses STS-1 to STS-4)."""

    OK = 0
    NONFINITE = 1
    """A needed target row holds NaN or +inf, at an allowed token or not. Only the tokens accepted before it are
    emitted."""
    EMPTY_ROW = 2
    """A needed target row has no token of positive probability. As for ``NONFINITE``."""
    RESIDUAL_FALLBACK = 4
    """Rejected, but the residual had no mass (rounding): the token was drawn from the target."""
    DRAFT_OUT_OF_RANGE = 8
    """A draft id outside ``[-1, V)``. It was read as "no draft here"."""
    INVALID_PROPOSAL = 16
    """q gives the drafted token no probability, or is not a law: judged as a one-hot draft."""


def _vector(values: Any, dtype: type[np.generic], name: str) -> Array:
    """Own a host vector as a read-only copy; leave a backend's array as it is."""
    if not isinstance(values, np.ndarray | list | tuple | int | float | np.generic):
        return values
    try:
        given = np.asarray(values, np.float64)
        array: npt.NDArray[Any] = np.array(values, dtype=dtype)
    except (OverflowError, TypeError, ValueError) as error:
        raise ContractError(f"{name} is {values!r}; allowed: numbers that fit {np.dtype(dtype)} ({error})") from error
    if array.dtype.kind == "i" and not np.array_equal(given, array):
        raise ContractError(f"{name} is {values!r}; allowed: integers")
    if array.ndim != 1:
        raise ContractError(
            f"{name} has shape {array.shape}; allowed: one value per request, shape (B,). "
            f"Use Sampling.of(B, {name}=...) to repeat one value."
        )
    array.setflags(write=False)
    return array


def _temperature(values: Any) -> Array:
    return _vector(values, np.float64, "temperature")


def _top_k(values: Any) -> Array:
    return _vector(values, np.int64, "top_k")


def _top_p(values: Any) -> Array:
    return _vector(values, np.float64, "top_p")


def _min_p(values: Any) -> Array:
    return _vector(values, np.float64, "min_p")


def _check(values: Array, good: Any, name: str, allowed: str) -> None:
    """Refuse a host vector in which some value is not allowed; device vectors pass."""
    if isinstance(values, np.ndarray) and not bool(np.all(good(values))):
        bad = values[~good(values)][0]
        raise ContractError(f"{name} is {bad}; allowed: {allowed}")


@attrs.frozen(eq=False)
class Sampling:
    """How each request turns logits into a law: temperature first, then filters (clauses TMP, FLT).

    Fields are ``[B]`` vectors: host values (checked here, kept as read-only NumPy arrays) or the
    backend's own arrays (kept as they are, not checked).

    Raises:
        ContractError: a negative, NaN or infinite temperature; ``top_k < 0``; ``top_p`` outside
            ``(0, 1]``; ``min_p`` outside ``[0, 1]``; vectors of different lengths.
    """

    temperature: Array = attrs.field(converter=_temperature)
    """``>= 0``; 0 is greedy: the lowest-id argmax of the raw logits."""
    top_k: Array = attrs.field(converter=_top_k)
    """Keep the k largest logits; 0 keeps all."""
    top_p: Array = attrs.field(converter=_top_p)
    """Keep the smallest prefix, in order (-logit, id), of mass ``>= top_p``; 1 keeps all."""
    min_p: Array = attrs.field(converter=_min_p)
    """Keep tokens of at least ``min_p`` times the largest probability; 0 keeps all."""
    allowed: Array | None = None
    """Packed bitmask ``[rows, ceil(V / 32)]`` int32, bit ``v % 32`` of word ``v // 32``, or None."""

    def __attrs_post_init__(self) -> None:
        t = self.temperature
        _check(t, lambda x: np.isfinite(x) & (x >= 0), "temperature", "a finite number >= 0 (0 = greedy)")
        _check(self.top_k, lambda x: x >= 0, "top_k", "an integer >= 0 (0 = off)")
        _check(self.top_p, lambda x: (x > 0) & (x <= 1), "top_p", "a number in (0, 1] (1 = off)")
        _check(self.min_p, lambda x: (x >= 0) & (x <= 1), "min_p", "a number in [0, 1] (0 = off)")
        lengths = {int(x.shape[0]) for x in (t, self.top_k, self.top_p, self.min_p)}
        if len(lengths) != 1:
            raise ContractError(f"sampling vectors have lengths {sorted(lengths)}; allowed: one length, B")

    @property
    def batch(self) -> int:
        """Number of requests, B."""
        return int(self.temperature.shape[0])

    @classmethod
    def of(
        cls,
        batch: int,
        *,
        temperature: float | Sequence[float] = 1.0,
        top_k: int | Sequence[int] = 0,
        top_p: float | Sequence[float] = 1.0,
        min_p: float | Sequence[float] = 0.0,
        allowed: Array | None = None,
    ) -> Sampling:
        """Sampling for ``batch`` requests; a single number is repeated for each of them."""

        def repeat(value: Any) -> Any:
            return [value] * batch if np.ndim(value) == 0 else value

        return cls(repeat(temperature), repeat(top_k), repeat(top_p), repeat(min_p), allowed)


@attrs.frozen(eq=False)
class RowStats:
    """What describes a row's law besides its logits (clause SMX-2): keep (max, mass), never one log-sum-exp.

    The kept tokens are those not after ``(cut_logit, cut_id)`` in the order (-logit, id); every
    filter of :class:`Sampling` keeps such a prefix. Where several pairs keep the same tokens of
    positive probability, any of them will do. With ``w(v) = exp((logit(v) - max) / T)`` the law
    is ``w(v) / mass`` on the kept tokens.
    """

    max: Array
    """``[B, K]``: the largest logit of the row."""
    mass: Array
    """``[B, K]``: sum of ``w`` over the kept tokens."""
    cut_logit: Array
    """``[B, K]``: logit of the last kept token, or less."""
    cut_id: Array
    """``[B, K]``: id of the last kept token among those with that logit."""


@attrs.frozen(eq=False)
class OneHot:
    """Drafts that were not sampled (n-gram, suffix, greedy): each q is a point mass on its draft."""


@attrs.frozen(eq=False)
class Sparse:
    """Drafts sampled from laws with few tokens. The listed probabilities of a row sum to 1."""

    ids: Array
    """``[B, K, S]`` integers in ``[0, V)``, none twice in a row; -1 marks an unused place."""
    logprobs: Array
    """``[B, K, S]`` natural logs of the probabilities; ignored at unused places."""


@attrs.frozen(eq=False)
class Dense:
    """Drafts sampled from rows of logits under the drafter's own sampling parameters.

    A request with temperature 0 here is greedy, so its drafts are judged as :class:`OneHot`.
    """

    logits: Array
    """``[B, K, V]`` raw draft logits."""
    sampling: Sampling
    """The parameters that the drafts were drawn with; ``allowed`` has one row per (b, j)."""
    stats: RowStats | None = None
    """What ``sample`` recorded while drawing; None lets ``verify`` compute it."""


KIND_ONEHOT, KIND_SPARSE, KIND_DENSE = 0, 1, 2


@attrs.frozen(eq=False)
class Mixed:
    """A batch whose requests have different kinds of proposal."""

    kind: Array
    """``[B]`` integers: ``KIND_ONEHOT``, ``KIND_SPARSE`` or ``KIND_DENSE``."""
    sparse: Sparse | None = None
    """Tables for the sparse requests; other requests' rows are not read."""
    dense: Dense | None = None
    """Tables for the dense requests; other requests' rows are not read."""


Proposal: TypeAlias = OneHot | Sparse | Dense | Mixed


@attrs.frozen(eq=False)
class Padded:
    """Target logits are ``[B, K + 1, V]``."""


@attrs.frozen(eq=False)
class Ragged:
    """Target logits are ``[R, V]``; request b owns rows ``cu_rows[b] : cu_rows[b + 1]``.

    A request may own no row: nothing is emitted for it.
    """

    cu_rows: Array
    """``[B + 1]`` integers from 0 to R, never decreasing, steps of at most K + 1."""


Layout: TypeAlias = Padded | Ragged


@attrs.frozen(eq=False)
class Uniforms:
    """Explicit random integers: for conformance, law extraction and engines with their own generator."""

    sampling: Array
    """uint64 bits. ``[B]`` for ``sample``; ``[B, K + 1]`` for ``verify``, where place j serves a draw at row j."""
    accept: Array | None = None
    """uint32 coins ``[B, K]`` for ``verify``; place j judges draft j. None for ``sample``, and for a ``verify``
    whose method flips no coins (``greedy``, ``path``)."""


@attrs.frozen(eq=False)
class Stream:
    """Counter-based randomness of each request (clauses RNG-1 to RNG-4): pure functions of these numbers.

    Place j of a round reads the Philox4x32-10 block of key ``seed`` and counter
    ``(j, position, sequence, domain)``: word 0 is an accept coin; word 0 (low) and word 1 (high)
    are a sampling uniform. A request's tokens do not depend on its neighbours in the batch. The
    method ``path`` names the token instead of the round: its row j reads place 0 of ``position + j``
    (mod 2**32), the number that plain sampling reads there.
    """

    seed: Array
    """``[B]`` uint64."""
    position: Array
    """``[B]`` uint32: tokens committed before this round, prompt included. It names the round."""
    sequence: Array
    """``[B]`` uint32: the request's own number, never its place in the batch."""

    @classmethod
    def of(cls, seed: Sequence[int], position: Sequence[int], sequence: Sequence[int] | None = None) -> Stream:
        """A host-side stream; ``sequence`` is 0 for every request unless given."""
        ids = [0] * len(seed) if sequence is None else list(sequence)
        try:
            return cls(np.array(list(seed), np.uint64), np.array(list(position), np.uint32), np.array(ids, np.uint32))
        except OverflowError as error:
            raise ContractError(
                f"seed {list(seed)}, position {list(position)}, sequence {ids}; allowed: seeds in [0, 2**64), the "
                "others in [0, 2**32)"
            ) from error

    def draw(self, domain: Domain, index: int = 0) -> Draw:
        """The numbers of one place of the round in one domain, for :meth:`Backend.sample`."""
        return Draw(self, domain, index)


@attrs.frozen(eq=False)
class Draw:
    """One draw per request from a :class:`Stream`."""

    stream: Stream
    domain: Domain
    index: int = 0


@attrs.frozen(eq=False)
class Sample:
    """What ``sample`` returns: tokens and the record of the law that they were really drawn from."""

    tokens: Array
    """``[B]`` integers; -1 where the row has no law (see ``status``)."""
    proposal: Dense
    """``logits [B, 1, V]``, the sampling and the statistics used: pass it to ``verify`` unchanged."""
    logprobs: Array
    """``[B]``: natural log of each token's probability under its law; 0 for greedy."""
    status: Array
    """``[B]`` integers, bits of :class:`Status`."""


@attrs.frozen(eq=False)
class Verdict:
    """What ``verify`` returns, on the device of the logits."""

    tokens: Array
    """``[B, K + 1]`` integers: accepted drafts, then one more token, then -1."""
    num_accepted: Array
    """``[B]``: length of the leading run of accepted drafts."""
    num_emitted: Array
    """``[B]``: ``num_accepted + 1``; ``num_accepted`` if the next row has no law; 0 if the request owns no row."""
    status: Array
    """``[B]`` integers, bits of :class:`Status`."""
    logprobs: Array
    """``[B, K + 1]``: natural log of each emitted token's probability under the target's law; 0 where nothing is
    emitted and for greedy requests."""


@attrs.frozen
class Capabilities:
    """What a backend declares. Undeclared is refused with ``CapabilityError``; declared is tested."""

    methods: frozenset[str]
    """Of ``greedy``, ``token``, ``block``, ``path``."""
    dtypes: frozenset[str]
    """Logits dtypes, of ``float16``, ``bfloat16``, ``float32``, ``float64``."""
    proposals: frozenset[str]
    """Of ``onehot``, ``sparse``, ``dense``. Two or more declare :class:`Mixed` of them too."""
    filters: frozenset[str]
    """Of ``top_k``, ``top_p``, ``min_p``, ``allowed``."""
    devices: frozenset[str]
    """Device types, ``cpu`` or ``cuda``."""
    arrays: str = "numpy"
    """Top-level module of its arrays' type: ``numpy``, ``torch``, ...; callers with others convert."""


@runtime_checkable
class Backend(Protocol):
    """A verifier. Pure: inputs are never changed, outputs never alias them, nothing is remembered."""

    @property
    def name(self) -> str:
        """The name in the registry."""

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can do."""

    def asarray(self, values: npt.NDArray[Any], dtype: str, device: str = "cpu") -> Array:
        """Copy a host array into the backend's own kind.

        ``dtype`` is a logits dtype, ``int32``, ``int64``, ``uint32`` or ``uint64``; a backend
        without unsigned integers may carry them in a signed type, as it documents.
        """

    def to_numpy(self, array: Array) -> npt.NDArray[Any]:
        """Copy an array of this backend to the host (bfloat16 becomes float32)."""

    def sample(self, logits: Array, sampling: Sampling, randomness: Draw | Uniforms) -> Sample:
        """Draw one token per row of ``logits [B, V]`` and record the law it came from.

        Raises:
            ContractError: shapes or dtypes that do not fit together.
            CapabilityError: a dtype, filter or device that is not declared.
        """

    def verify(
        self,
        target_logits: Array,
        draft_tokens: Array,
        proposal: Proposal,
        layout: Layout,
        sampling: Sampling,
        randomness: Stream | Uniforms,
        method: str = "token",
    ) -> Verdict:
        """Judge drafts against raw target logits and emit tokens that follow the target's law.

        ``draft_tokens`` is ``[B, K]`` integers; -1 ends a request's chain there. No host
        synchronisation. ``method`` is one of:

        - ``token``: each draft is accepted or rejected by itself (clauses ACC, RES).
        - ``block``: the longest acceptable prefix of the whole chain (clauses BLK). Emits at least
          as many tokens on average; reads every row that judges a draft.
        - ``path``: a token is drawn from each target row, and drafts are accepted while they equal
          it (clauses PTH). Reads no proposal; what comes out does not depend on the drafts.
        - ``greedy``: every request has temperature 0.

        Requests of temperature 0 are judged greedily under every method (clause GRD-1).

        Raises:
            ContractError: shapes or dtypes that do not fit together.
            CapabilityError: a method, dtype, filter, proposal or device that is not declared.
        """

    def concat(self, proposals: Sequence[Dense]) -> Dense:
        """Join the one-step proposals of consecutive ``sample`` calls along the draft axis."""
