"""Both backends read the same Philox4x32-10 numbers as the spec."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashspec import rng
from flashspec.contract import Backend, Domain, OneHot, Padded, Sampling, Stream, Uniforms
from flashspec_spec import philox as spec
from flashspec_torch._philox import philox, philox_block

ANSWERS = [
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
WORD = st.integers(0, 2**32 - 1)


@pytest.mark.clause("RNG-1")
@pytest.mark.parametrize(("counter", "key", "answer"), ANSWERS)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, ...], answer: tuple[int, ...]) -> None:
    """The published blocks come out of all three implementations (Salmon et al. 2011)."""
    c0, c1, c2, c3 = counter
    assert philox_block((c0, c1, c2, c3), (key[0], key[1])) == answer
    t0, t1, t2, t3 = (torch.tensor([c]) for c in counter)
    words = philox((t0, t1, t2, t3), (torch.tensor([key[0]]), torch.tensor([key[1]])))
    assert tuple(int(w) for w in words) == answer
    hosted = rng.philox((c0, c1, c2, c3), (key[0], key[1]))
    assert tuple(int(w) for w in hosted) == answer


@pytest.mark.clause("RNG-1")
@settings(derandomize=True, deadline=None, max_examples=50)
@given(counter=st.tuples(WORD, WORD, WORD, WORD), key=st.tuples(WORD, WORD))
def test_every_block_is_the_specs(counter: tuple[int, int, int, int], key: tuple[int, int]) -> None:
    """Tensors and Python integers give the spec's words for any counter and key."""
    wanted = tuple(spec.philox4x32(counter, key))
    assert philox_block(counter, key) == wanted
    c0, c1, c2, c3 = (torch.tensor(c) for c in counter)
    assert tuple(int(w) for w in philox((c0, c1, c2, c3), (torch.tensor(key[0]), torch.tensor(key[1])))) == wanted


@pytest.mark.clause("RNG-2", "RNG-3")
@pytest.mark.parametrize("carried", [False, True], ids=["host", "carried"])
def test_a_stream_is_its_numbers(backend: Backend, carried: bool) -> None:
    """A stream gives the verdict of the explicit integers that the spec derives from it."""
    batch, longest, vocab = 3, 3, 50
    seeds, positions, names = [2**64 - 1, 5, 2**63], [7, 2**32 - 1, 0], [1, 0, 2**32 - 1]
    made = np.random.default_rng(3).normal(size=(batch, longest + 1, vocab))
    rows = backend.asarray(made, "float32")
    drafts = backend.asarray(made[:, :longest].argmax(-1), "int64")
    stream = Stream.of(seeds, positions, names)
    if carried:
        fields = (stream.seed, "uint64"), (stream.position, "uint32"), (stream.sequence, "uint32")
        seed, position, sequence = (backend.asarray(v, d) for v, d in fields)
        stream = Stream(seed, position, sequence)
    sampling = Sampling.of(batch, temperature=0.7)
    got = backend.verify(rows, drafts, OneHot(), Padded(), sampling, stream)
    accepted = backend.to_numpy(got.num_accepted)
    names_of = list(zip(seeds, positions, names, strict=True))
    coins = [[spec.coin(*key, Domain.ACCEPT, j) for j in range(longest)] for key in names_of]
    domain = [Domain.BONUS if n == longest else Domain.RESIDUAL for n in accepted]
    bits = [[spec.bits(*key, d, j) for j in range(longest + 1)] for key, d in zip(names_of, domain, strict=True)]
    uniforms = Uniforms(
        backend.asarray(np.array(bits, np.uint64), "uint64"),
        backend.asarray(np.array(coins, np.uint32), "uint32"),
    )
    again = backend.verify(rows, drafts, OneHot(), Padded(), sampling, uniforms)
    assert backend.to_numpy(got.tokens).tolist() == backend.to_numpy(again.tokens).tolist()
