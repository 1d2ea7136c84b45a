"""The ways of decoding that ``bench decode`` compares, all on the same loaded weights.

Each stamps the moment at which its first tokens are there, so that the time for reading the prompt
can be told from the rest. Ours includes turning tokens into text; transformers' does not.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from flashspec.bench.pairing import Answer
from flashspec.bench.prompts import Prompt
from flashspec.errors import ContractError

if TYPE_CHECKING:
    from flashspec.decoding import Request
    from flashspec.decoding.shared import Shared
    from flashspec.hf import Loaded, Speculator
    from flashspec.hf.ranks import Team

LOOKUP_TOKENS = 10
"""Draft length of transformers' prompt lookup, the value of its documentation's example."""

EOS_MODES = ("ignore", "mask", "stop")


@attrs.frozen
class Budget:
    """How long and by which law every system decodes."""

    max_new_tokens: int
    temperature: float
    eos: str
    """``ignore``: an end token is a token like any other, for everybody; ``mask``: it has
    probability 0; ``stop``: it ends the answer."""


@attrs.frozen(eq=False)
class Ours:
    """FlashSpec's loop, with drafts or (plain decoding) without."""

    name: str
    speculator: Speculator
    drafts: tuple[str, ...]
    selector: str | None
    budget: Budget
    shared: Shared | None = None
    """What the selector learned goes from answer to answer, from the warming up on; None: each begins anew."""

    def request(self, prompt: Prompt, seed: int) -> Request:
        """The prompt under the budget."""
        from flashspec.hf.loading import encode_prompt

        budget = self.budget
        ids = encode_prompt(self.speculator.target, prompt.text)
        ending: dict[str, Any] = {"eos_ids": frozenset()} if budget.eos == "ignore" else {}
        if budget.eos == "mask":
            ending["min_new_tokens"] = budget.max_new_tokens
        return self.speculator.default_request(
            ids, max_new_tokens=budget.max_new_tokens, temperature=budget.temperature, seed=seed, **ending
        )

    def answer(self, prompt: Prompt, seed: int) -> Answer:
        """Decode one prompt, noting when the first step was done."""
        generation = self.speculator.stream(self.request(prompt, seed), shared=self.shared)
        first = next(iter(generation))
        first_at = time.perf_counter()
        for _ in generation:
            pass
        result = generation.result
        if result is None:
            raise RuntimeError("a generation ended without a result")
        stats = result.stats
        return Answer(result.token_ids, len(first.token_ids), first_at, stats.steps, stats.drafted, stats.accepted)


@attrs.define(eq=False)
class Stopwatch:
    """A transformers streamer that notes when the first tokens come and how many steps there are."""

    first_tokens: int = 0
    first_at: float = 0.0
    steps: int = -1
    """-1 until the prompt has come, which transformers hands to a streamer first."""

    def put(self, value: Any) -> None:
        """Take the prompt, then each step's tokens."""
        self.steps += 1
        if self.steps == 1:
            self.first_tokens, self.first_at = int(value.numel()), time.perf_counter()

    def end(self) -> None:
        """Nothing to flush."""


@attrs.frozen(eq=False)
class Transformers:
    """``model.generate``, plain or with its prompt lookup."""

    name: str
    loaded: Loaded
    view: Any
    """The model under the generation config of this benchmark; it shares every weight."""
    drafts: tuple[str, ...]
    selector: None = None

    @classmethod
    def of(cls, name: str, loaded: Loaded, budget: Budget, lookup: int | None) -> Transformers:
        """Bind a model to the budget, with prompt lookup of ``lookup`` tokens or none."""
        view = copy.copy(loaded.model)
        view.generation_config = generation_config(loaded, budget, lookup)
        return cls(name, loaded, view, () if lookup is None else (f"prompt_lookup_num_tokens={lookup}",))

    def answer(self, prompt: Prompt, seed: int) -> Answer:
        """Decode one prompt, noting when the first step was done."""
        import torch

        from flashspec.hf.loading import encode_prompt

        ids = encode_prompt(self.loaded, prompt.text)
        inputs = torch.tensor([ids], device=self.view.device)
        watch = Stopwatch()
        torch.manual_seed(seed)
        output = self.view.generate(inputs, attention_mask=torch.ones_like(inputs), streamer=watch)
        tokens = tuple(int(t) for t in output[0, len(ids) :].tolist())
        # A last put may hold tokens beyond the budget, which generate cuts off afterwards.
        return Answer(tokens, min(watch.first_tokens, len(tokens)), watch.first_at, watch.steps)


def generation_config(loaded: Loaded, budget: Budget, lookup: int | None) -> Any:
    """What ``generate`` is told; nothing comes from the model's own generation config but EOS."""
    from transformers import GenerationConfig

    eos = loaded.model.generation_config.eos_token_id
    if eos is None:
        eos = loaded.tokenizer.eos_token_id
    sampling: dict[str, Any] = {"do_sample": False}
    if budget.temperature > 0:
        sampling = {"do_sample": True, "temperature": budget.temperature, "top_k": 0, "top_p": 1.0}
    return GenerationConfig(  # type: ignore[no-untyped-call]  # transformers does not type its __init__
        max_new_tokens=budget.max_new_tokens,
        min_new_tokens=budget.max_new_tokens if budget.eos == "mask" else None,
        eos_token_id=None if budget.eos == "ignore" else eos,
        pad_token_id=0,
        prompt_lookup_num_tokens=lookup,
        **sampling,
    )


def build(
    names: Sequence[str],
    loaded: Loaded,
    budget: Budget,
    drafts: Sequence[str],
    selectors: Sequence[str],
    stream: bool,
    options: dict[str, Any],
) -> list[Ours | Transformers]:
    """The named systems on one loaded model; ``options`` go to ``Speculator.build``.

    Each of several ``selectors`` is a system of its own, named by it. In a ``stream`` a selector's state goes from
    answer to answer.

    Raises:
        ContractError: an unknown or repeated system.
    """
    from flashspec.decoding.shared import Shared
    from flashspec.hf import Speculator
    from flashspec.selectors import DEFAULT

    check_names(names)
    built: list[Ours | Transformers] = []
    for name in names:
        if name == "plain":
            plain = Speculator.build(loaded, [], **options)
            built.append(Ours(name, plain, (), None, budget))
        elif name == "speculation":
            for selector in selectors or (DEFAULT,):
                full = Speculator.build(loaded, drafts, selector=selector, **options)
                own = selector if len(selectors) > 1 else name
                shared = Shared() if stream else None
                built.append(Ours(own, full, tuple(drafts), full.engine.selector.name, budget, shared))
        else:
            lookup = LOOKUP_TOKENS if name == "prompt-lookup" else None
            built.append(Transformers.of(name, loaded, budget, lookup))
    return built


def agreed(system: Ours | Transformers, team: Team) -> Ours | Transformers:
    """The system on one of several ranks, which choose and accept alike."""
    import torch

    from flashspec.hf.ranks import agree, alike

    if isinstance(system, Transformers):
        return system
    model = system.speculator.target.model
    with torch.no_grad():
        same = alike(model(torch.tensor([[1, 2, 3]], device=model.device)).logits[0], team)
    engine = agree(system.speculator.engine, team, same)
    return attrs.evolve(system, speculator=attrs.evolve(system.speculator, engine=engine))


NAMES = ("plain", "speculation", "transformers", "prompt-lookup")


def check_names(names: Sequence[str]) -> None:
    """Refuse an unknown, repeated or missing system.

    Raises:
        ContractError: as said.
    """
    allowed = f"allowed: {', '.join(NAMES)}, each once, with plain among them (it is the baseline)"
    for name in names:
        if name not in NAMES:
            raise ContractError(f"system is {name!r}; {allowed}")
    if len(set(names)) != len(names) or "plain" not in names:
        raise ContractError(f"systems are {', '.join(names) or 'none'}; {allowed}")
