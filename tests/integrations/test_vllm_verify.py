"""Both runners' adapters on the recorded engine: rows, slots and parameters in, tokens of the right law out."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from flashspec.integrations.vllm import plugin

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("engine")
VOCAB, MANY = 11, 2000
LEVEL = 1e-3
Law = npt.NDArray[np.float64]


@pytest.fixture(autouse=True)
def _installed(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier is in place, on the backend that any machine has."""
    monkeypatch.setenv("FLASHSPEC_VLLM", "verifier")
    monkeypatch.setenv("FLASHSPEC_VLLM_BACKEND", "torch")
    plugin.register()
    torch.manual_seed(5)


def logits(rows: int) -> Any:
    """Rows of one request's step, the same for every request."""
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(3)) * 2


def law(row: Any, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> Law:
    """The plain sampler of the engine: temperature, min-p, top-k, top-p."""
    p = np.exp(row.double().numpy() / temperature)
    p = np.where(p < min_p * p.max(), 0, p)
    order = np.argsort(-p)
    p[order[top_k:]] = 0 if top_k else p[order[top_k:]]
    before = np.cumsum((p / p.sum())[order]) - (p / p.sum())[order]
    p[order[before >= top_p]] = 0
    return np.asarray(p / p.sum())


def agrees(tokens: Any, wanted: Law) -> bool:
    """A chi-squared test at level LEVEL; a token without probability is never there."""
    found = np.bincount(tokens.numpy(), minlength=VOCAB)
    live = wanted > 0
    return not found[~live].any() and bool(stats.chisquare(found[live], wanted[live] * len(tokens)).pvalue > LEVEL)


def rules(**held: Any) -> Any:
    """The engine's processors, some with requests."""
    known: Any = importlib.import_module("vllm.v1.sample.logits_processor.builtin")
    least, bias = known.MinPLogitsProcessor({}, None, False), known.LogitBiasLogitsProcessor({}, None, False)
    short = known.MinTokensLogitsProcessor({}, None, False)
    if "min_p" in held:
        least.min_p_count, least.min_p = 1, held["min_p"][:, None]
    bias.biases = held.get("biases", {})
    return SimpleNamespace(argmax_invariant=[least], non_argmax_invariant=[short, bias])


def params(batch: int, temperature: Any = None, **given: Any) -> Any:
    """What the V1 runner tells a sampler."""
    of: Any = importlib.import_module("vllm.v1.sample.metadata").SamplingMetadata
    heat = None if temperature is None else torch.as_tensor(temperature, dtype=torch.float32).expand(batch).clone()
    values = {
        "temperature": heat, "all_greedy": heat is None, "all_random": False, "top_p": None, "top_k": None,
        "generators": {}, "max_num_logprobs": None, "no_penalties": True, "prompt_token_ids": None,
        "frequency_penalties": None, "presence_penalties": None, "repetition_penalties": None,
        "output_token_ids": [], "allowed_token_ids_mask": None, "bad_words_token_ids": {}, "logitsprocs": rules(),
    }  # fmt: skip
    return of(**{**values, **given})


def step(counts: list[int], drafts: list[int]) -> Any:
    """What the V1 runner tells about the drafts of a step."""
    of: Any = importlib.import_module("vllm.v1.spec_decode.metadata").SpecDecodeMetadata
    ends = np.cumsum(np.array(counts) + 1)
    near = [int(e - n - 1 + j) for e, n in zip(ends, counts, strict=True) for j in range(n)]
    return of(
        torch.tensor(drafts, dtype=torch.int32), counts, torch.tensor(np.cumsum(counts)).int(),
        torch.tensor(ends).int(), torch.tensor(near, dtype=torch.int32), torch.tensor(ends - 1).int(), None,
    )  # fmt: skip


def forward_v1(metadata: Any, rows: Any, given: Any, draft_probs: Any = None) -> Any:
    """The output of the V1 runner's sampler."""
    module: Any = importlib.import_module("vllm.v1.sample.rejection_sampler")
    sampler = module.RejectionSampler(importlib.import_module("vllm.v1.sample.sampler").Sampler())
    return sampler.forward(metadata, draft_probs, rows, given)


def test_v1_greedy_rows_of_every_length_come_out_in_place() -> None:
    """Two, no and three drafts: the accepted ones, one more token, and -1 behind it."""
    rows = torch.zeros(8, VOCAB)
    best = [4, 2, 5, 7, 1, 3, 9, 8]
    rows[range(8), best] = 1.0
    found = forward_v1(step([2, 0, 3], [4, 6, 1, 3, 9]), rows, params(3)).sampled_token_ids
    assert found.dtype == torch.int32
    assert found.tolist() == [[4, 2, -1, -1], [7, -1, -1, -1], [1, 3, 9, 8]]


@pytest.mark.clause("LAW-1", "TMP-1")
@pytest.mark.parametrize("temperature", [0.7, 1.3])
@pytest.mark.parametrize("drafted", ["onehot", "probabilities"])
def test_v1_tokens_follow_the_tempered_law(temperature: float, drafted: str) -> None:
    """The first token of many requests with one draft each, whether or not the draft comes with its law."""
    rows, q = logits(2), torch.softmax(logits(4)[3:] * 0.8, -1)
    drafts = torch.multinomial(q, MANY, replacement=True)[0] if drafted == "probabilities" else torch.full((MANY,), 3)
    probabilities = q.repeat(MANY, 1) if drafted == "probabilities" else None
    metadata = step([1] * MANY, drafts.tolist())
    found = forward_v1(metadata, rows.repeat(MANY, 1), params(MANY, temperature), probabilities).sampled_token_ids
    assert agrees(found[:, 0], law(rows[0], temperature))
    second = found[:, 1][found[:, 1] >= 0]
    assert agrees(second, law(rows[1], temperature))


@pytest.mark.parametrize(
    "given", [{"top_k": 4}, {"top_p": 0.8}, {"min_p": 0.1}, {"top_k": 6, "top_p": 0.9}, {"min_p": 0.2, "top_p": 0.7}]
)
def test_v1_filters_are_those_of_the_plain_sampler(given: dict[str, Any]) -> None:
    """Each alone, and min-p before top-p as in the engine; half of the requests are greedy."""
    rows, one = logits(2), torch.ones(MANY)
    heat = torch.where(torch.arange(MANY) % 2 == 0, 1.3, 0.0)
    held = {"min_p": one * given["min_p"]} if "min_p" in given else {}
    more = {
        "top_k": torch.full((MANY,), given["top_k"], dtype=torch.int32) if "top_k" in given else None,
        "top_p": one * given["top_p"] if "top_p" in given else None,
        "logitsprocs": rules(**held),
    }
    found = forward_v1(step([1] * MANY, [3] * MANY), rows.repeat(MANY, 1), params(MANY, heat, **more)).sampled_token_ids
    assert agrees(found[::2, 0], law(rows[0], 1.3, **given))
    assert set(found[1::2, 0].tolist()) == {int(rows[0].argmax())}


def test_v1_biases_reach_the_rows_of_drafts_and_of_the_bonus() -> None:
    """The engine adds them to bonus rows only; the caller's logits stay as they are."""
    rows = torch.zeros(4, VOCAB)
    kept = rows.clone()
    given = params(2, logitsprocs=rules(biases={1: {6: 9.0}}))
    found = forward_v1(step([1, 1], [0, 6]), rows, given).sampled_token_ids
    assert found.tolist() == [[0, 0], [6, 6]]
    assert torch.equal(rows, kept)


def test_v1_a_seed_repeats_its_tokens_whatever_the_neighbours() -> None:
    """Its generator serves its own places only."""
    rows = logits(3)

    def first(seed: int, neighbours: int) -> list[int]:
        made = {neighbours: torch.Generator().manual_seed(seed)}
        given = params(neighbours + 1, 1.3, generators=made)
        metadata = step([*[2] * neighbours, 2], [3, 3] * (neighbours + 1))
        return [int(t) for t in forward_v1(metadata, rows.repeat(neighbours + 1, 1), given).sampled_token_ids[-1]]

    assert [first(7, 0), first(7, 3)] == [first(7, 1)] * 2
    assert len({tuple(first(seed, 0)) for seed in range(30)}) > 3


def test_v1_a_row_without_a_law_gives_token_0() -> None:
    """As the engine's own kernels; neighbours are not touched."""
    rows = torch.zeros(4, VOCAB)
    rows[0] = torch.nan
    rows[2:, 5] = 9.0
    found = forward_v1(step([1, 1], [2, 5]), rows, params(2, [0.7, 0.0])).sampled_token_ids
    assert found.tolist() == [[0, -1], [5, 5]]


def test_v1_log_probabilities_are_asked_for_as_the_engine_asks() -> None:
    """Raw rows of drafts and bonus, and the tokens; processed ones are the engine's own affair."""
    metadata, rows, given = step([1], [2]), logits(2), params(1, max_num_logprobs=3)
    count, near, last, tokens = forward_v1(metadata, rows, given).logprobs_tensors
    assert (count, tokens.shape) == (3, (1, 2))
    assert torch.equal(torch.cat([near, last]), rows)
    module: Any = importlib.import_module("vllm.v1.sample.rejection_sampler")
    sampler = module.RejectionSampler(None)
    sampler.is_processed_logprobs_mode = True
    assert sampler.forward(metadata, None, rows, given) == "the engine's own"


def both(values: Any) -> Any:
    """A vector by slot, on the device and on the host."""
    made = torch.as_tensor(values)
    return SimpleNamespace(gpu=made, np=made.numpy())


def states(**given: Any) -> Any:
    """The newer runner's parameters by slot."""
    slots = len(given["temperature"])
    of: Any = importlib.import_module("vllm.v1.worker.gpu.sample.states").SamplingStates
    made = of(slots, VOCAB)
    made.temperature = both(torch.as_tensor(given["temperature"], dtype=torch.float32))
    made.top_k = both(torch.as_tensor(given.get("top_k", [VOCAB] * slots), dtype=torch.int32))
    made.top_p = both(torch.as_tensor(given.get("top_p", [1.0] * slots), dtype=torch.float32))
    made.min_p = both(torch.as_tensor(given.get("min_p", [0.0] * slots), dtype=torch.float32))
    made.seeds = both(torch.arange(slots) * 7919 + given.get("seed", 1))
    return made


def verify_v2(
    made: Any, slots: list[int], counts: list[int], rows: Any, drafts: list[int], draft_logits: Any = None, **more: Any
) -> tuple[list[list[int]], Any]:
    """Tokens of each request, and what the sampler handed back."""
    base = "vllm.v1.worker.gpu"
    size, none = len(made.temperature.np), np.zeros(len(made.temperature.np), bool)
    bias: Any = importlib.import_module(f"{base}.sample.logit_bias").LogitBiasState(more.get("biased", none))
    bad: Any = importlib.import_module(f"{base}.sample.bad_words").BadWordsState(SimpleNamespace(np=none * 0))
    budget: Any = importlib.import_module(f"{base}.sample.thinking_budget").ThinkingBudgetState(none)
    own: Any = importlib.import_module(f"{base}.sample.sampler").Sampler(made, [bias, bad], budget)
    module: Any = importlib.import_module(f"{base}.spec_decode.rejection_sampler")
    judge = module.RejectionSampler(own, SimpleNamespace(num_speculative_tokens=more.get("longest", 2)), None)
    judge.use_block_verification = more.get("block", False)
    place, owner, local = np.array(slots), np.repeat(slots, np.array(counts) + 1), []
    for count in counts:
        local += list(range(count + 1))
    assert max(slots) < size
    drafted = torch.tensor(drafts)
    ends = torch.tensor([0, *np.cumsum(np.array(counts) + 1)]).int()
    found = judge._verify(
        rows, draft_logits, drafted, torch.tensor(local) + 40, ends, torch.tensor(slots).int(), place,
        torch.tensor(owner).int(), torch.tensor(local).int(), None, drafted,
    )  # fmt: skip
    tokens, numbers = found[1].tolist(), found[2].tolist()
    return [row[:n] for row, n in zip(tokens, numbers, strict=True)], found


@pytest.mark.parametrize("counts", [[2, 0, 1], [2, 2, 2]])
def test_v2_greedy_rows_of_every_length_come_out_in_place(counts: list[int]) -> None:
    """Drafts stand one row behind; ragged and uniform steps; slots in another order than the batch."""
    rows = torch.zeros(sum(counts) + 3, VOCAB)
    best = list(range(len(rows)))
    rows[best, best] = 1.0
    drafted = [99, *best[:-1]]
    ends = np.cumsum(np.array(counts) + 1)
    for begin in (0, *ends[:-1]):
        drafted[begin] = 10
    found, (handed, tokens, numbers) = verify_v2(states(temperature=[0.0] * 4), [3, 0, 2], counts, rows, drafted)
    assert found == [best[e - n - 1 : e] for e, n in zip(ends.tolist(), counts, strict=True)]
    assert handed is rows
    assert (tokens.shape, tokens.dtype, numbers.dtype) == ((3, 3), torch.int64, torch.int32)


@pytest.mark.clause("LAW-1", "TMP-1")
@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("drafted", ["onehot", "logits"])
@pytest.mark.parametrize("given", [{}, {"top_k": 4}, {"min_p": 0.2, "top_p": 0.7}])
def test_v2_tokens_follow_the_law_of_their_slot(drafted: str, block: bool, given: dict[str, Any]) -> None:
    """Every second slot has another temperature; drafts come from the draft's law at the slot's temperature."""
    rows, near = logits(2), logits(3)[2]
    heat = torch.where(torch.arange(MANY) % 2 == 0, 0.7, 1.3)
    made = states(temperature=heat, **{name: [value] * MANY for name, value in given.items()})
    slots = torch.arange(MANY).flip(0)
    q = torch.softmax(near / heat[slots][:, None], -1)
    drafts = torch.multinomial(q, 1)[:, 0] if drafted == "logits" else torch.full((MANY,), 3)
    flat = torch.stack([torch.zeros_like(drafts), drafts], 1).flatten().tolist()
    table = near.repeat(MANY, 1, 1) if drafted == "logits" else None
    found, _ = verify_v2(made, slots.tolist(), [1] * MANY, rows.repeat(MANY, 1), flat, table, longest=1, block=block)
    first = torch.tensor([row[0] for row in found])
    for temperature in (0.7, 1.3):
        mine = heat[slots] == torch.tensor(temperature)
        assert agrees(first[mine], law(rows[0], temperature, **given))


def test_v2_processors_of_the_engine_act_before_the_verifier() -> None:
    """Where a request of the batch uses one; else the logits are read as they are."""
    rows, drafts = torch.zeros(4, VOCAB), [10, 3, 10, 4]
    rows[:, 5] = 1.0
    made = states(temperature=[0.0, 0.0, 0.7])
    plain, _ = verify_v2(made, [0, 1], [1, 1], rows, drafts, longest=1)
    other, _ = verify_v2(made, [0, 1], [1, 1], rows, drafts, longest=1, biased=np.array([False, False, True]))
    biased, _ = verify_v2(made, [0, 1], [1, 1], rows, drafts, longest=1, biased=np.array([True, False, False]))
    assert plain == other == [[5], [5]]
    assert biased == [[0], [0]]


def test_v2_a_slots_seed_repeats_its_tokens_in_any_batch() -> None:
    """Seed and position decide, not the place in the batch."""
    rows = logits(3)
    made = states(temperature=[1.3] * 6)
    alone, _ = verify_v2(made, [4], [2], rows, [0, 3, 3])
    among, _ = verify_v2(made, [1, 5, 4, 0], [2] * 4, rows.repeat(4, 1), [0, 3, 3] * 4)
    assert among[2] == alone[0]
    others = [verify_v2(states(temperature=[1.3], seed=s), [0], [2], rows, [0, 3, 3])[0][0] for s in range(30)]
    assert len({tuple(tokens) for tokens in others}) > 3


def test_v2_a_row_without_a_law_gives_token_0() -> None:
    """And the count that the engine needs, 1."""
    rows = torch.full((2, VOCAB), torch.nan)
    assert verify_v2(states(temperature=[0.7]), [0], [1], rows, [9, 2], longest=1)[0] == [[0]]
