"""Every setting gives under speculation what it gives in plain decoding, and the law that its definition says."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats as statistics

from flashspec import selectors
from flashspec.decoding import Engine, Request, generate, processed
from flashspec.decoding.processing import Edit, Forced, SuppressedAt, pack, window
from flashspec.decoding.toy import TableLM
from flashspec.errors import ContractError, NumericalError

Build = Callable[..., Engine]
VOCAB = 7
POOL = ("ngram", "suffix", "other", "target")
EXAMPLES: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 3.0},
    "repetition below 1": {"repetition_penalty": 0.3},
    "presence": {"presence_penalty": 1.1},
    "frequency": {"frequency_penalty": 0.4},
    "negative frequency": {"frequency_penalty": -0.2},
    "all penalties": {"repetition_penalty": 1.7, "presence_penalty": 0.5, "frequency_penalty": 0.3},
    "no repeated 2-gram": {"no_repeat_ngram": 2, "max_new_tokens": 12},
    "no repeated 3-gram": {"no_repeat_ngram": 3},
    "bias": {"logit_bias": {3: 2.0, 0: -1.5, 5: -math.inf}},
    "bad words": {"bad_words": ((4,), (1, 2), (2, 1, 3))},
    "allowed": {"allowed_ids": {0, 2, 3, 6}},
    "minimal length": {"min_new_tokens": 9, "eos_ids": {0, 4, 6}},
    "forced": {"processors": (SuppressedAt(0, (1, 2, 3)), Forced(5, 6), Forced(11, 2)), "bad_words": ((6,),)},
}


def ask(**fields: Any) -> Request:
    """A request for 20 tokens after a prompt that repeats itself."""
    return Request(**{"prompt_ids": (1, 2, 3, 1, 2), "max_new_tokens": 20, **fields})


def engine(build: Build, drafts: tuple[str, ...], seed: int = 5, method: str = "path") -> Engine:
    """Random arms over a toy target."""
    return build(TableLM.random(VOCAB, seed, order=1, scale=2.0), drafts, "random", method=method)


@pytest.mark.parametrize("fields", EXAMPLES.values(), ids=EXAMPLES)
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
def test_a_setting_gives_the_tokens_of_plain_decoding(build: Build, fields: dict[str, Any], temperature: float) -> None:
    """Greedy, and sampled by path, with drafts accepted on the way; and the setting changes the text."""
    accepted, changed = 0, False
    for seed in range(4):
        asked = ask(temperature=temperature, seed=seed, **fields)
        plain = generate(engine(build, (), seed), asked)
        drafted = generate(engine(build, POOL, seed), asked)
        assert drafted.token_ids == plain.token_ids
        accepted += drafted.stats.accepted
        without = ask(temperature=temperature, seed=seed, eos_ids=asked.eos_ids, max_new_tokens=asked.max_new_tokens)
        changed |= generate(engine(build, (), seed), without).token_ids != plain.token_ids
    assert accepted > 0
    assert changed


NUMBERS = st.floats(-2, 2, allow_nan=False).map(lambda x: round(x, 2))
IDS = st.integers(0, VOCAB - 1)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "repetition_penalty": st.sampled_from([0.8, 1.2, 2.0]),
        "presence_penalty": NUMBERS,
        "frequency_penalty": NUMBERS,
        "no_repeat_ngram": st.integers(3, 4),
        "logit_bias": st.dictionaries(IDS, NUMBERS, max_size=3),
        "bad_words": st.lists(st.lists(IDS, min_size=2, max_size=3), max_size=3),
        "allowed_ids": st.sets(IDS, min_size=4),
        "min_new_tokens": st.integers(0, 8),
        "eos_ids": st.sets(IDS, max_size=2),
        "stop": st.sampled_from([(), ("bc",), ("f", "ga")]),
        "top_k": st.integers(0, 4),
    },
)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fields=SETTINGS, temperature=st.sampled_from([0.0, 0.7, 1.3]), seed=st.integers(0, 99))
def test_any_settings_together_give_the_tokens_of_plain_decoding(
    build: Build, fields: dict[str, Any], temperature: float, seed: int
) -> None:
    """Also where they leave no token: both ways of decoding then end in the same error."""
    asked = ask(temperature=temperature, seed=seed, max_new_tokens=16, **fields)
    assert outcome(engine(build, POOL), asked) == outcome(engine(build, ()), asked)


def outcome(made: Engine, asked: Request) -> Any:
    """Tokens, text and ending, or the error."""
    try:
        result = generate(made, asked)
    except NumericalError as error:
        return str(error)
    return result.token_ids, result.text, result.finish_reason


def test_processing_every_row_with_the_committed_text_alone_is_seen(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant that forgets the drafts before a row gives other tokens for every setting that looks at the text."""

    def forgetful(processors: Any, states: Any, drafts: Any, vocab: int) -> Any:
        right = window(processors, states, drafts, vocab)
        return attrs.evolve(right, rows=(right.rows[0],) * len(right.rows))

    monkeypatch.setattr(processed, "window", forgetful)
    for name in sorted(set(EXAMPLES) - {"bias", "allowed"}):
        asked = [ask(prompt_ids=(3, 3), temperature=t, seed=s, **EXAMPLES[name]) for s in range(20) for t in (0.7, 1.3)]
        wrong = (outcome(engine(build, POOL, a.seed), a) != outcome(engine(build, (), a.seed), a) for a in asked)
        assert any(wrong), name


@pytest.mark.parametrize(("arm", "temperature", "top_p"), [("other/2", 0.7, 1.0), ("ngram/2", 1.3, 0.9)])
def test_the_token_rule_keeps_the_penalised_law(build: Build, arm: str, temperature: float, top_p: float) -> None:
    """Chi-square of two tokens against enumeration, 800 seeds a case; false-alarm rate 1e-4 per case."""
    target = TableLM.random(4, 8, scale=1.5)
    made = build(target, [arm.split("/")[0]], selectors.get("fixed", arm=arm), method="token")
    asked = ask(
        max_new_tokens=2, temperature=temperature, top_p=top_p, repetition_penalty=1.4, presence_penalty=0.6,
        frequency_penalty=0.5,
    )  # fmt: skip
    seen: Counter[tuple[int, ...]] = Counter(
        generate(made, attrs.evolve(asked, seed=seed)).token_ids for seed in range(800)
    )
    expected = penalised_law(target, asked)
    cells = sorted(expected)
    assert set(seen) <= set(cells)
    counts, law = np.array([seen[c] for c in cells]), np.array([expected[c] for c in cells])
    assert float(statistics.chisquare(counts, 800 * law / law.sum()).pvalue) > 1e-4
    unpenalised = penalised_law(target, ask(max_new_tokens=2, temperature=temperature, top_p=top_p))
    other = np.array([max(unpenalised.get(c, 0.0), 1e-9) for c in cells])
    assert float(statistics.chisquare(counts, 800 * other / other.sum()).pvalue) < 1e-8


def penalised_law(target: TableLM, asked: Request) -> dict[tuple[int, ...], float]:
    """Exact law of two tokens by the definitions of the penalties, written without our code."""
    laws: dict[tuple[int, ...], float] = {}
    for pair in itertools.product(range(target.vocab), repeat=2):
        weight = 1.0
        for i, token in enumerate(pair):
            text, new = (*asked.prompt_ids, *pair[:i]), pair[:i]
            logits = np.array(target.row(text), np.float64)
            for v in set(text):
                logits[v] *= asked.repetition_penalty if logits[v] < 0 else 1 / asked.repetition_penalty
            for v in set(new):
                logits[v] -= asked.presence_penalty + asked.frequency_penalty * new.count(v)
            p = np.exp((logits - logits.max()) / asked.temperature)
            p /= p.sum()
            order = np.argsort(-p, kind="stable")
            keep = order[np.cumsum(p[order]) - p[order] < asked.top_p]
            weight *= p[token] / p[keep].sum() if token in keep else 0.0
        if weight:
            laws[pair] = weight
    return laws


def test_bans_and_forced_tokens_hold(build: Build) -> None:
    """By their definitions, on sampled text with drafts."""
    text = generate(engine(build, POOL), ask(temperature=1.3, no_repeat_ngram=2, max_new_tokens=12)).token_ids
    pairs = list(itertools.pairwise((1, 2, 3, 1, 2, *text)))
    assert len(pairs) == len(set(pairs)) + 1  # the prompt itself repeats (1, 2)
    text = generate(engine(build, POOL), ask(temperature=1.3, **EXAMPLES["bad words"], max_new_tokens=60)).token_ids
    pairs = list(itertools.pairwise((2, *text)))
    assert 4 not in text
    assert (1, 2) not in pairs
    assert set(generate(engine(build, POOL), ask(temperature=1.3, allowed_ids={0, 6})).token_ids) <= {0, 6}
    text = generate(engine(build, POOL), ask(temperature=1.3, **EXAMPLES["forced"])).token_ids
    assert (text[5], text[11], text.count(6)) == (6, 2, 1)
    assert text[0] not in (1, 2, 3)


def test_no_token_left_is_a_named_error(build: Build) -> None:
    """The message has the status, the position and the settings; what was committed before stays."""
    with pytest.raises(NumericalError, match=r"position 5 \(EMPTY_ROW\).*\(Allowed, SuppressedAt\)"):
        generate(engine(build, POOL), ask(allowed_ids={3}, processors=(SuppressedAt(0, (3,)),)))
    with pytest.raises(NumericalError, match="position 9"):
        generate(engine(build, POOL), ask(allowed_ids={3}, processors=(SuppressedAt(4, (3,)),)))


@attrs.frozen
class Wild:
    """A processor of somebody's own that names what is not there."""

    made: Edit

    def start(self, prompt: Any) -> None:
        return None

    def advance(self, state: None, token: int) -> None:
        return None

    def edit(self, state: None, vocab: int) -> Edit:
        return self.made


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (Edit(np.array([7]), add=np.array([1.0])), "Wild names is 7; allowed: ids in"),
        (Edit(banned=np.array([-1])), "Wild names is -1"),
        (Edit(allowed=pack([1], 40)), r"mask of shape \(2,\); allowed: \(1,\)"),
    ],
)
def test_a_processor_of_your_own_is_refused_where_it_names_no_token(build: Build, edit: Edit, words: str) -> None:
    """With the class that did it."""
    with pytest.raises(ContractError, match=words):
        generate(engine(build, ()), ask(processors=(Wild(edit),)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"logit_bias": {7: 1.0}}, "logit_bias names id 7"),
        ({"bad_words": ((1, 9),)}, "bad_words names id 9"),
        ({"allowed_ids": {0, -1}}, "allowed_ids names id -1"),
        ({"eos_ids": {99}, "min_new_tokens": 2}, "eos_ids names id 99"),
        ({"logprobs": 8}, "logprobs is 8; allowed: at most the vocabulary, 7"),
    ],
)
def test_ids_outside_the_vocabulary_are_refused_before_any_work(
    build: Build, fields: dict[str, Any], words: str
) -> None:
    """With the setting's name."""
    broken = TableLM(VOCAB, lambda text: pytest.fail("the target was read"))
    with pytest.raises(ContractError, match=words):
        generate(build(broken, ()), ask(**fields))


@attrs.frozen
class Doubled:
    """A change of the whole row: finite logits doubled, the token after the last one forbidden."""

    seen: list[Any] = attrs.field(factory=list)

    def start(self, prompt: Any) -> int:
        return int(prompt[-1])

    def advance(self, state: int, token: int) -> int:
        return token

    def edit(self, state: int, vocab: int) -> Edit:
        def change(row: Any) -> Any:
            self.seen.append(row.copy())
            row *= 2
            row[(state + 1) % vocab] = -math.inf
            return row

        return Edit(change=change)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_change_of_the_whole_row_comes_after_what_is_forbidden(build: Build, temperature: float) -> None:
    """It sees minus infinity at earlier bans, gives the text of plain decoding, and nothing that it forbids comes."""
    own = Doubled()
    asked = ask(temperature=temperature, processors=(SuppressedAt(0, (6,)), own), bad_words=((4,), (1, 2)))
    drafted = generate(engine(build, POOL), asked)
    assert drafted.stats.accepted > 0
    assert all(row[4] == -math.inf for row in own.seen)
    assert any(np.isfinite(row[6]) for row in own.seen)
    text = (2, *drafted.token_ids)
    assert all(b != (a + 1) % VOCAB for a, b in itertools.pairwise(text))
    assert generate(engine(build, ()), asked).token_ids == drafted.token_ids


def test_a_change_is_not_asked_behind_a_draft_that_it_forbids() -> None:
    """Rows behind such a draft stay as they are, in each request of a batch by itself."""
    from flashspec.decoding.processing import change_rows, plan

    rows = [*window([Doubled()], (0,), (1, 3), VOCAB).rows, *window([Doubled()], (0,), (3, 4), VOCAB).rows]
    flat = np.ones((len(rows), VOCAB))
    change_rows(flat, plan(rows, VOCAB).stages[0].wholes, np.copy)
    assert [row.max() for row in flat] == [2, 1, 1, 2, 2, 1]
