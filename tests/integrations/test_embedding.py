"""The surface that engines build on: its version, its signatures, the NumPy route, and the page that tells of it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from flashspec import Domain, OneHot, Padded, Sampling, Status, Stream, embedding, get_backend  # noqa: E402
from flashspec.embedding import sample_row, verify_rows  # noqa: E402
from flashspec.errors import CapabilityError, ContractError  # noqa: E402
from flashspec.integrations import tensors  # noqa: E402

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "embed.md"
NUMPY = get_backend("numpy")
VOCAB = 37
HEAT = Sampling.of(1, temperature=0.7)

SURFACE: dict[Any, str] = {
    embedding.require: "(major, minor=0)",
    embedding.sample_row: "(backend, logits, sampling, stream, index=0)",
    embedding.verify_rows: "(backend, target, drafts, sampling, stream, *, drawn=(), method='token')",
    tensors.coins: "(uniform)",
    tensors.exclusive: "(ends)",
    tensors.judge: "(backend, target, draft, tokens, randomness, method='token')",
    tensors.logits_of: "(probabilities)",
    tensors.padded: "(tokens, ends, longest)",
    tensors.sampling_bits: "(uniform)",
    tensors.uniforms: "(accept, final)",
    tensors.unshifted: "(tokens, layout, longest)",
    tensors.with_bonus_rows: "(draft_ends)",
}
"""Of version 1.0. A line may be added with a minor version, and changed with a major one."""


def test_the_surface_has_the_signatures_of_its_version() -> None:
    """Without annotations, which say no more than the documentation."""
    assert embedding.VERSION == (1, 0)
    for function, wanted in SURFACE.items():
        bare = [p.replace(annotation=inspect.Parameter.empty) for p in inspect.signature(function).parameters.values()]
        assert str(inspect.Signature(bare)) == wanted, function


def test_another_version_is_refused() -> None:
    """Older minor versions are served."""
    embedding.require(1)
    for version in ((0, 0), (2, 0), (1, 1)):
        with pytest.raises(CapabilityError, match=r"this is 1\.0; allowed: 1\.0 to 1\.0"):
            embedding.require(*version)


class Llama:
    """As much of ``llama_cpp.Llama`` as the page uses: logits of a table that knows the last two tokens."""

    def __init__(self, seed: int, room: int = 80) -> None:
        self.table = np.random.default_rng(seed).normal(0, 2.5, (VOCAB, VOCAB, VOCAB)).astype(np.float32)
        self.scores = np.full((room, VOCAB), np.nan, np.float32)
        self.held = np.zeros(room, np.int64)
        self.n_tokens = 0

    def eval(self, tokens: list[int]) -> None:
        for token in tokens:
            self.held[self.n_tokens] = token
            before = self.held[self.n_tokens - 1] if self.n_tokens else 0
            self.scores[self.n_tokens] = self.table[before, token]
            self.n_tokens += 1

    def __call__(self, tokens: list[int]) -> np.ndarray:
        self.n_tokens = 0
        self.eval(list(tokens))
        return self.scores[: len(tokens)]


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Names of the page after all of its Python blocks were run, in order."""
    names: dict[str, Any] = {}
    torch.manual_seed(1)
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    return names


def test_the_blocks_of_the_page_run(page: dict[str, Any]) -> None:
    """Shapes and verdicts at the end are those that the page promises."""
    assert page["emitted"].shape == (2, 4)
    assert page["accepted"].equal((page["emitted"] >= 0).sum(1) - 1)
    assert not page["status"].any()
    assert page["verdict"].tokens.shape == (2, 4)


def test_the_llama_route_has_the_text_of_plain_decoding(page: dict[str, Any]) -> None:
    """Drafts of any kind, right or wrong, change nothing but the number of rounds."""
    plain, drafted, model = [1, 2, 3], [1, 2, 3], Llama(4)
    model.eval(plain[:-1])
    while len(plain) < 40:
        plain += page["llama_round"](model, plain, [], 9)
    model.n_tokens, rounds = 0, 0
    model.eval(drafted[:-1])
    while len(drafted) < 40:
        right = plain[len(drafted) : len(drafted) + 2]
        drafted += page["llama_round"](model, drafted, [*right, 5][: 1 + rounds % 3], 9)
        rounds += 1
    assert drafted[:40] == plain[:40]
    assert rounds < 30


def test_the_mlx_route_emits_what_the_backend_does(page: dict[str, Any]) -> None:
    """Sampled drafts of a model like the target are mostly accepted, and the law is the backend's business."""
    target, draft, text, rounds = Llama(4), Llama(4), [1, 2], 0
    draft.table += 0.1
    while len(text) < 42:
        text += page["mlx_round"](target, draft, text, 3, 7)
        rounds += 1
    assert rounds <= 12


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rows_are_judged_as_by_the_backend(dtype: str) -> None:
    """One request at any dtype; a NumPy array is read in place and left alone."""
    generator = np.random.default_rng(5)
    rows = generator.normal(0, 2, (40, 4, VOCAB)).astype(dtype)
    for i in range(40):
        drafts = generator.integers(0, VOCAB, 3)
        stream = Stream.of([i], [17])
        kept = rows[i].copy()
        got = verify_rows(NUMPY, rows[i], drafts, HEAT, stream, method="block")
        found = NUMPY.verify(rows[i : i + 1], drafts[None], OneHot(), Padded(), HEAT, stream, "block")
        assert got.tokens == tuple(t for t in found.tokens[0].tolist() if t >= 0)
        assert got.accepted == found.num_accepted[0] == len(got.tokens) - 1
        assert len(got.logprobs) == len(got.tokens)
        assert np.array_equal(rows[i], kept)


def test_other_backends_get_a_copy() -> None:
    """The same tokens from torch."""
    rows = np.random.default_rng(6).normal(0, 2, (3, VOCAB)).astype(np.float32)
    stream = Stream.of([3], [17])
    answers = []
    for backend in (NUMPY, get_backend("torch")):
        token, record = sample_row(backend, rows[0], HEAT, stream)
        answers.append((token, verify_rows(backend, rows[:2], [token], HEAT, stream, drawn=[record]).tokens))
    assert answers[0] == answers[1]
    law = NUMPY.sample(rows[:1], HEAT, stream.draw(Domain.DRAFT, 0))
    assert answers[0][0] == law.tokens[0]


def test_what_would_be_copied_or_does_not_fit_is_refused() -> None:
    """Strided rows, wrong shapes, integers, other numbers of rows or records; a row of NaN ends the round."""
    rows, stream = np.zeros((3, VOCAB), np.float32), Stream.of([1], [5])
    wrong: list[tuple[Any, list[int], dict[str, Any], str]] = [
        (np.zeros((VOCAB, 3), np.float32).T, [1, 2], {}, r"target is not C-contiguous \(strides"),
        (np.zeros((3, 2 * VOCAB), np.float32)[:, ::2], [1, 2], {}, "not C-contiguous"),
        (rows[0], [], {}, r"target is \(37,\) float32; allowed: a NumPy array \[K \+ 1, V\]"),
        (rows.astype(np.int64), [1, 2], {}, "of floats"),
        (rows.tolist(), [1, 2], {}, "target is list"),
        (rows, [1], {}, "3 rows for 1 drafts"),
        (rows, [1, 2], {"drawn": [sample_row(NUMPY, rows[0], HEAT, stream)[1]]}, "1 records of 2 drafts"),
    ]
    for target, drafts, options, words in wrong:
        with pytest.raises(ContractError, match=words):
            verify_rows(NUMPY, target, drafts, HEAT, stream, **options)
    spoiled = rows.copy()
    spoiled[1] = np.nan
    spoiled[0, 4] = 90
    got = verify_rows(NUMPY, spoiled, [4, 2], HEAT, stream)
    assert (got.tokens, got.accepted, got.status) == ((4,), 1, Status.NONFINITE)
    assert sample_row(NUMPY, spoiled[1], HEAT, stream)[0] == -1


def test_the_operator_is_one() -> None:
    """``opcheck`` of torch: schema, fake shapes, no aliases; one-hot drafts are those without a law."""
    import flashspec.integrations.ops  # noqa: F401

    torch.manual_seed(2)
    p, q = torch.rand(2, 3, 9).softmax(-1), torch.rand(2, 2, 9).softmax(-1)
    given = (p, q, torch.tensor([[1, 2], [3, -1]]), torch.rand(2, 2), torch.rand(2))
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.flashspec.judge.default, (*given, "block"), test_utils=tests)
    tokens, accepted, status = torch.ops.flashspec.judge(given[0], None, *given[2:])
    assert accepted.equal((tokens >= 0).sum(1) - 1)
    assert not status.any()
