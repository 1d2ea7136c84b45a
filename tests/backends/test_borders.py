"""What a backend refuses, with which error, and what the message says."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.checks import check_sample, check_verify
from flashspec.contract import (
    Backend,
    Capabilities,
    Dense,
    Domain,
    Mixed,
    OneHot,
    Padded,
    Ragged,
    Sampling,
    Sparse,
    Stream,
    Uniforms,
)
from flashspec.errors import CapabilityError, ContractError

B, K, V = 2, 3, 40
EVERYTHING = Capabilities(
    methods=frozenset({"greedy", "token"}),
    dtypes=frozenset({"float32"}),
    proposals=frozenset({"onehot", "sparse", "dense"}),
    filters=frozenset({"top_k", "top_p", "min_p", "allowed"}),
    devices=frozenset({"cpu"}),
)
NOTHING = attrs.evolve(EVERYTHING, devices=frozenset())


def rows(*shape: int, dtype: str = "float32") -> Any:
    """Zeros as host logits."""
    return np.zeros(shape, dtype)


def good() -> dict[str, Any]:
    """The arguments of a call that passes."""
    return {
        "capabilities": EVERYTHING,
        "target_logits": rows(B, K + 1, V),
        "draft_tokens": np.zeros((B, K), np.int64),
        "proposal": OneHot(),
        "layout": Padded(),
        "sampling": Sampling.of(B, temperature=0.7),
        "randomness": Stream.of([1, 2], [3, 4]),
    }


def lone(kind: int, **tables: Any) -> Mixed:
    """A mixed proposal whose second request has a kind."""
    return Mixed(np.array([0, kind]), **tables)


SAMPLING = Sampling.of(B, temperature=0.7)
IDS, LOGS = np.zeros((B, K, 2), np.int64), rows(B, K, 2)
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"target_logits": rows(B, K, V)}, r"target_logits has shape \(2, 3, 40\); allowed: \(2, 4, 40\)"),
    ({"target_logits": rows(B, K + 1, 0)}, "V >= 1"),
    ({"target_logits": rows(B * (K + 1), V)}, "use Ragged"),
    ({"layout": Ragged(np.array([0, 4, 8]))}, "use Padded"),
    ({"layout": "padded"}, "Padded or Ragged"),
    ({"draft_tokens": np.zeros(B, np.int64)}, r"draft_tokens has shape \(2,\)"),
    ({"draft_tokens": rows(B, K)}, "draft_tokens has dtype float32"),
    ({"draft_tokens": [[0] * K] * B}, "draft_tokens is list"),
    ({"sampling": Sampling.of(B + 1)}, "sampling is for 3 requests; allowed: B = 2"),
    ({"sampling": Sampling.of(B, allowed=np.zeros((B, 2), np.int32))}, r"allowed: \(8, 2\)"),
    ({"sampling": Sampling.of(B, allowed=np.zeros((8, 2), np.int64))}, "dtype int64; allowed: int32"),
    ({"randomness": Stream.of([1], [2])}, r"randomness.seed has shape \(1,\)"),
    ({"randomness": Stream(np.array([1, 1]), np.array([0, -1]), np.array([0, 0]))}, "from -1 to 0"),
    ({"randomness": Stream(rows(B), np.array([0, 1]), np.array([0, 0]))}, "randomness.seed has dtype float32"),
    ({"randomness": Stream.of([1, 2], [3, 4]).draw(Domain.DRAFT)}, "Draw; allowed: Stream or Uniforms"),
    ({"randomness": Uniforms(np.zeros((B, K), np.uint64))}, r"randomness.sampling has shape \(2, 3\)"),
    ({"randomness": Uniforms(np.zeros((B, K + 1), np.uint64))}, "randomness.accept is None"),
    ({"randomness": Uniforms(np.zeros((B, K + 1), np.uint64), np.full((B, K), 2**32))}, "allowed: 0 to 4294967295"),
    ({"proposal": Sparse(IDS[:, :1], LOGS)}, "proposal.ids has shape"),
    ({"proposal": Sparse(IDS, LOGS[..., :1])}, "proposal.logprobs has shape"),
    ({"proposal": Sparse(IDS, IDS)}, "a float dtype"),
    ({"proposal": Dense(rows(B, K, V + 1), SAMPLING)}, "proposal.logits has shape"),
    ({"proposal": Dense(rows(B, K, V), Sampling.of(1))}, "proposal.sampling is for 1"),
    ({"proposal": lone(3)}, "proposal.kind holds values from 0 to 3; allowed: 0 to 2"),
    ({"proposal": lone(1)}, "proposal.sparse is None"),
    ({"proposal": lone(2, sparse=Sparse(IDS, LOGS))}, "proposal.dense is None"),
    ({"proposal": None}, "proposal is NoneType"),
    ({"method": "greedy"}, "temperature 0.7; allowed: 0 for every request"),
]


@pytest.mark.clause("CAP-2")
@pytest.mark.parametrize(("changed", "message"), REFUSED)
def test_malformed_verify_calls_are_refused(changed: dict[str, Any], message: str) -> None:
    """Each malformed argument alone is a ContractError that names it; without it the call passes."""
    check_verify(**good())
    with pytest.raises(ContractError, match=message):
        check_verify(**{**good(), **changed})


@pytest.mark.clause("CAP-2")
@pytest.mark.parametrize(
    ("cu_rows", "message"),
    [
        ([0, 4], r"cu_rows has shape \(2,\)"),
        ([1, 4, 8], "runs from 1 to 8; allowed: 0 to R = 8"),
        ([0, 4, 7], "runs from 0 to 7"),
        ([0, 5, 8], "step of cu_rows"),
        ([0, 9, 8], "step of cu_rows"),
    ],
)
def test_malformed_ragged_layouts_are_refused(cu_rows: list[int], message: str) -> None:
    """Row offsets run from 0 to R in steps of 0 to K + 1."""
    call = {**good(), "target_logits": rows(8, V)}
    check_verify(**{**call, "layout": Ragged(np.array([0, 4, 8]))})
    with pytest.raises(ContractError, match=message):
        check_verify(**{**call, "layout": Ragged(np.array(cu_rows))})


FULL = Dense(rows(B, K, V), SAMPLING)
UNDECLARED: list[tuple[dict[str, Any], Any, str]] = [
    ({"methods": frozenset({"greedy"})}, {}, "method 'token' is not declared; this backend declares: greedy"),
    ({"devices": frozenset({"cuda"})}, {}, "device 'cpu'"),
    ({"dtypes": frozenset({"float64"})}, {}, "dtype of target_logits 'float32'"),
    ({"filters": frozenset()}, {"sampling": Sampling.of(B, top_k=3)}, "filter 'top_k'"),
    ({"filters": frozenset({"top_k"})}, {"sampling": Sampling.of(B, top_p=[0.5, 1.0])}, "filter 'top_p'"),
    ({"filters": frozenset()}, {"sampling": Sampling.of(B, min_p=0.1)}, "filter 'min_p'"),
    ({"filters": frozenset()}, {"sampling": Sampling.of(B, allowed=np.zeros((8, 2), np.int32))}, "'allowed'"),
    ({"proposals": frozenset({"dense"})}, {}, "proposal 'onehot'"),
    ({"proposals": frozenset({"onehot"})}, {"proposal": FULL}, "proposal 'dense'"),
    ({"proposals": frozenset({"dense"})}, {"proposal": Sparse(IDS, LOGS)}, "proposal 'sparse'"),
    ({"proposals": frozenset({"dense"})}, {"proposal": lone(2, dense=FULL)}, "proposal 'mixed'"),
    ({}, {"proposal": Dense(rows(B, K, V, dtype="float64"), SAMPLING)}, "dtype of proposal.logits 'float64'"),
    ({}, {"method": "block"}, "method 'block' is not declared; this backend declares: greedy, token"),
]


@pytest.mark.clause("CAP-1")
@pytest.mark.parametrize(("declared", "changed", "message"), UNDECLARED)
def test_undeclared_things_are_refused(declared: dict[str, Any], changed: Any, message: str) -> None:
    """What capabilities do not hold is a CapabilityError that lists what they do hold."""
    capabilities = attrs.evolve(EVERYTHING, **declared)
    with pytest.raises(CapabilityError, match=message):
        check_verify(**{**good(), "capabilities": capabilities, **changed})


@pytest.mark.clause("CAP-1", "CAP-2")
def test_malformed_sample_calls_are_refused() -> None:
    """`sample` takes [B, V] logits, one sampling per row and a Draw or Uniforms [B]."""
    draw = Stream.of([1, 2], [3, 4]).draw(Domain.DRAFT)
    check_sample(EVERYTHING, rows(B, V), SAMPLING, draw)
    with pytest.raises(ContractError, match=r"logits has shape \(2, 1, 40\)"):
        check_sample(EVERYTHING, rows(B, 1, V), SAMPLING, draw)
    with pytest.raises(ContractError, match="Stream; allowed: Draw or Uniforms"):
        check_sample(EVERYTHING, rows(B, V), SAMPLING, Stream.of([1, 2], [3, 4]))  # type: ignore[arg-type]  # the point
    with pytest.raises(ContractError, match=r"randomness.sampling has shape \(3,\)"):
        check_sample(EVERYTHING, rows(B, V), SAMPLING, Uniforms(np.zeros(3, np.uint64)))
    with pytest.raises(CapabilityError, match="device 'cpu'"):
        check_sample(NOTHING, rows(B, V), SAMPLING, draw)


@pytest.mark.clause("CAP-1", "CAP-2")
def test_backends_check_their_borders(backend: Backend) -> None:
    """Both operations refuse foreign arrays, undeclared dtypes and misfit shapes."""
    call = {k: v for k, v in good().items() if k != "capabilities"}
    fine = {**call, "target_logits": backend.asarray(call["target_logits"], "float32")}
    assert tuple(backend.verify(**fine).tokens.shape) == (B, K + 1)
    draw = call["randomness"].draw(Domain.DRAFT)
    with pytest.raises(ContractError, match="list"):
        backend.verify(**{**call, "target_logits": [[0.0]]})
    with pytest.raises(CapabilityError, match="int64"):
        backend.sample(backend.asarray(np.zeros((B, V)), "int64"), SAMPLING, draw)
    with pytest.raises(ContractError, match="shape"):
        backend.sample(backend.asarray(np.zeros(V), "float32"), SAMPLING, draw)
    with pytest.raises(CapabilityError, match="float8"):
        backend.asarray(np.zeros(3), "float8")
    with pytest.raises(CapabilityError, match="xla"):
        backend.asarray(np.zeros(3), "float32", "xla")


@pytest.mark.clause("CAP-2")
def test_concat_refuses_misfits(backend: Backend) -> None:
    """Nothing to join, another V, dtype or other parameters are ContractErrors."""

    def step(vocab: int, temperature: float, dtype: str = "float32") -> Dense:
        logits = backend.asarray(np.zeros((1, 1, vocab)), dtype)
        return Dense(logits, Sampling.of(1, temperature=temperature))

    assert backend.concat([step(4, 0.7), step(4, 0.7)]).stats is None
    first = step(4, 0.7)
    for wrong in ([], [first, step(5, 0.7)], [first, step(4, 1.3)], [first, step(4, 0.7, "float16")]):
        with pytest.raises(ContractError, match="concat was given"):
            backend.concat(wrong)


@pytest.mark.parametrize("method", ["bloc", "tree", ""])
def test_an_unknown_method_is_named(backend: Backend, method: str) -> None:
    """The message has the name that was given and every name that is allowed."""
    call = {k: v for k, v in good().items() if k not in {"capabilities", "target_logits"}}
    logits = backend.asarray(rows(B, K + 1, V), "float32")
    with pytest.raises(CapabilityError, match=rf"{method!r} is unknown; allowed: block, greedy, path, token"):
        backend.verify(logits, method=method, **call)


def test_a_method_that_is_not_declared_is_named() -> None:
    """A known method of a backend without it is refused with what it declares."""
    with pytest.raises(CapabilityError, match="method 'block' is not declared; this backend declares: greedy, token"):
        check_verify(**good(), method="block")


@pytest.mark.parametrize("method", ["token", "block"])
def test_coins_may_be_missing_only_where_none_is_flipped(backend: Backend, method: str) -> None:
    """``path`` and ``greedy`` do without coins; the others say who may."""
    call = {k: v for k, v in good().items() if k not in {"capabilities", "target_logits"}}
    call["randomness"] = Uniforms(np.zeros((B, K + 1), np.uint64))
    logits = backend.asarray(rows(B, K + 1, V), "float32")
    with pytest.raises(ContractError, match=f"accept is None for method '{method}'.*None is allowed for greedy, path"):
        backend.verify(logits, method=method, **call)
    assert backend.to_numpy(backend.verify(logits, method="path", **call).num_emitted).tolist() == [4, 4]
