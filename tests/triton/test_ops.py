"""The operators give what the backend gives, and say the right shapes and dtypes to a compiler."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flashspec.contract import Backend, Domain, OneHot, Padded, Sampling, Stream

BATCH, LONGEST, VOCAB = 3, 2, 70


def inputs(device: str) -> dict[str, Any]:
    """Tensors of a call."""
    torch.manual_seed(3)
    rows = 2 * torch.randn(BATCH, LONGEST + 1, VOCAB, device=device)
    numbers = (torch.arange(BATCH, device=device) + n for n in (1, 2, 3))
    heat = torch.tensor([0.7, 1.3, 0.0], dtype=torch.float64, device=device)
    named = dict(zip(("seed", "position", "sequence"), numbers, strict=True))
    return {"logits": rows, "drafts": rows[:, :-1].argmax(-1), **named, "temperature": heat}


@pytest.mark.parametrize("method", ["token", "block", "path"])
def test_the_operator_is_the_backend(backend: Backend, device: str, method: str) -> None:
    """The same tensors from both, with a filter."""
    from flashspec_triton import ops

    given = inputs(device)
    top_k = torch.full((BATCH,), 9, device=device)
    got = ops.verify(**given, method=method, top_k=top_k)
    off = Sampling.of(BATCH)
    own = Sampling(given["temperature"], top_k, off.top_p, off.min_p)
    stream = Stream(given["seed"], given["position"], given["sequence"])
    want = backend.verify(given["logits"], given["drafts"], OneHot(), Padded(), own, stream, method)
    wanted = (want.tokens, want.num_accepted, want.num_emitted, want.status, want.logprobs)
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


@pytest.mark.clause("PUR-1")
def test_operators_keep_the_rules_of_the_library(device: str) -> None:
    """Schemas, fakes and dispatch pass torch's own check, which calls each operator."""
    from flashspec_triton import ops

    given = inputs(device)
    utils = ("test_schema", "test_faketensor")
    torch.library.opcheck(ops.verify, (), given, test_utils=utils)
    logits, drafts = given.pop("logits"), given.pop("drafts")
    assert drafts.shape == (BATCH, LONGEST)
    torch.library.opcheck(ops.sample, (logits[:, 0].contiguous(),), given, test_utils=utils)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_compiled_program_calls_the_operator() -> None:
    """Traced as one graph, without a break, it gives what the operator gives."""
    from flashspec_triton import ops

    given = inputs("cuda")

    def step(position: torch.Tensor) -> torch.Tensor:
        tokens: torch.Tensor = ops.verify(**{**given, "position": position + 1})[0]
        return tokens * 2

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(given["position"]), step(given["position"]))
    assert int(Domain.DRAFT) == 1
