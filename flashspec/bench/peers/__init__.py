"""Verifiers of other projects as contenders of ``bench verify``: one adapter a file, loaded when asked for.

A peer is timed from raw target logits to tokens: what turns the target's logits into its own input counts.
What the draft side knows since it drafted (draft probabilities, their normalisers) is given and does not.
"""

from __future__ import annotations

import importlib

from flashspec.bench.contender import Contender
from flashspec.errors import BackendUnavailable, unknown_name

PEERS = {
    "torch-eager": ("plain", "eager"),
    "torch-compiled": ("plain", "compiled"),
    "torch-dynamic": ("plain", "dynamic"),
    "transformers": ("transformers", "peer"),
    "flashinfer": ("flashinfer", "peer"),
    "vllm-v1": ("vllm_v1", "peer"),
    "vllm-v2": ("vllm_v2", "peer"),
}
"""Name: module of this package and the function in it that makes the contender."""


def load(name: str) -> Contender:
    """The peer of a name.

    Raises:
        UnknownName: no such peer; the known ones are listed.
        BackendUnavailable: its package is missing, or not the one that the adapter was written for.
    """
    if name not in PEERS:
        raise unknown_name("peer", name, sorted(PEERS))
    module, maker = PEERS[name]
    try:
        made: Contender = vars(importlib.import_module(f"flashspec.bench.peers.{module}"))[maker]()
    except BackendUnavailable:
        raise
    except Exception as error:  # importing somebody's package may raise anything
        raise BackendUnavailable(f"peer {name} cannot be loaded: {type(error).__name__}: {error}") from error
    return made
