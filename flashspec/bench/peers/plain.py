"""The token rule as a plain torch function from logits: eager, and compiled by ``torch.compile``.

It keeps no full row of probabilities: normalisers of all rows, then one row a request, drawn by an
exponential race. The normalisers of the draft's rows are given, as the draft side has them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import attrs
import torch

from flashspec.bench.case import Case
from flashspec.bench.contender import PEER, Prepared
from flashspec.bench.inputs import Inputs
from flashspec.bench.peers import tensors

MANY = 1024
"""Programs at most; torch's own limit is 8, and a shape or a proposal more than that would be refused."""
METHODS, PROPOSALS, FILTERS = ("token", "sample"), ("onehot", "dense"), ("top_k", "top_p", "min_p")


def token_rule(
    target: torch.Tensor,
    heat: torch.Tensor,
    drafts: torch.Tensor,
    near: torch.Tensor | None,
    masses: torch.Tensor | None,
    filters: str,
) -> torch.Tensor:
    """Tokens ``[B, K + 1]`` int64, padded with -1.

    ``target [B, K + 1, V]`` raw logits, ``heat [B, 1, 1]`` float32 temperatures, ``drafts [B, K]``; for dense
    drafts ``near [B, K, V]`` raw logits and ``masses [B, K]`` their log-normalisers after filters.
    """
    batch, count = drafts.shape
    requests = torch.arange(batch, device=target.device)
    wide = tensors.cut(target.float() / heat, filters)
    mass = wide.logsumexp(-1)
    chance = wide[:, :count].gather(-1, drafts[..., None])[..., 0] - mass[:, :count]
    if near is not None and masses is not None:
        chance = chance - (near.gather(-1, drafts[..., None])[..., 0].float() / heat[..., 0] - masses)
    coins = torch.rand(batch, count, device=target.device)
    accepted = (coins.log() < chance).long().cumprod(-1).sum(-1)
    law = (wide[requests, accepted] - mass[requests, accepted, None]).exp()
    if count:
        last = accepted.clamp(max=count - 1)
        if near is not None and masses is not None:
            row = tensors.cut(near[requests, last].float() / heat[:, 0], filters)
            q = (row - masses[requests, last, None]).exp()
        else:
            ids = torch.arange(target.shape[-1], device=target.device)
            q = (ids == drafts[requests, last, None]).float()
        law = (law - q * (accepted < count)[:, None]).clamp(min=0)
    race = -torch.rand_like(law).log()
    token = (law / race).argmax(-1)
    places = torch.arange(count + 1, device=target.device)
    out = torch.where(places < accepted[:, None], torch.nn.functional.pad(drafts, (0, 1)), -1)
    return torch.where(places == accepted[:, None], token[:, None], out)


@attrs.frozen
class Plain:
    """The function, as it is or compiled."""

    name: str
    rule: Callable[..., Any]
    kind: str = PEER
    capturable: bool = True
    most_batch: int | None = None

    @property
    def version(self) -> str:
        """That of torch."""
        return f"torch {torch.__version__}"

    def refusal(self, case: Case, device: str) -> str | None:
        """It has the token rule and plain sampling."""
        return tensors.outside(case, METHODS, PROPOSALS, FILTERS)

    def prepare(self, inputs: Inputs) -> Prepared:
        """Drafts from the draft's law under the same filters."""
        target, near = tensors.rows(inputs.target, inputs), tensors.rows(inputs.near, inputs)
        made, filters = tensors.drafted(inputs, near, inputs.case.filters), inputs.case.filters
        heat = torch.full((len(target), 1, 1), inputs.temperature, device=target.device)
        dense = made.law is not None
        masses = tensors.normalisers(near, inputs.temperature, filters) if dense else None
        given = (target, heat, made.ids, near if dense else None, masses, filters)
        return Prepared(lambda: self.rule(*given), lambda found: found.cpu().numpy())


def eager() -> Plain:
    """As it is."""
    return Plain("torch-eager", token_rule)


def compiled() -> Plain:
    """Compiled for each shape by itself, which is its best setting."""
    return Plain("torch-compiled", _compiled("static", dynamic=False))


def dynamic() -> Plain:
    """Compiled for all shapes at once, which is quicker to measure and slower to run."""
    return Plain("torch-dynamic", _compiled("dynamic", dynamic=True))


def _compiled(name: str, *, dynamic: bool) -> Callable[..., Any]:
    """The function compiled, as a copy: torch keeps its programs by code, and one may not use the other's."""
    code = token_rule.__code__.replace(co_name=f"token_rule_{name}")
    made = torch.compile(FunctionType(code, token_rule.__globals__), dynamic=dynamic, fullgraph=True)
    limits: Any = torch._dynamo.config

    def call(*given: Any) -> Any:
        with limits.patch(recompile_limit=MANY, accumulated_recompile_limit=MANY):
            return made(*given)

    return call
