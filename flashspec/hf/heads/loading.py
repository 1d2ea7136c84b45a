"""``head:FOLDER``: a trained draft from its folder, ours or a published one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from flashspec.drafts import Drafter
from flashspec.drafts.shipped import shipped_folder
from flashspec.errors import ContractError, ModelError
from flashspec.hf.heads import published
from flashspec.hf.heads.files import CONFIG, EDITION, FORMAT, WEIGHTS, put, read_config, read_weights, unpack
from flashspec.hf.heads.identity import check_target, sizes
from flashspec.hf.heads.kinds import KINDS, Ground, drafter, eagle, ids_of, medusa, new_module
from flashspec.hf.heads.medusa import MedusaHeads


def head(context: Any, argument: str) -> Drafter:
    """The factory behind ``--draft head:FOLDER``; ``context`` is a ``PoolContext``.

    Raises:
        ContractError: no folder was named.
        ModelError: it holds no draft, or a damaged one.
        CapabilityError: a draft of another target or vocabulary.
    """
    if not argument:
        raise ContractError("draft head: needs a folder after the colon, one that flashspec train-draft wrote")
    target = context.target
    ground = Ground(target.model, context.lm, context.backend)
    return load(ground, Path(argument).expanduser(), f"head:{argument}", target.name)


def shipped(context: Any, argument: str) -> Drafter:
    """What ``--draft trained:NAME`` names: a draft that comes with FlashSpec for the target, a preset.

    Raises:
        UnknownName: the target has no draft of that name.
        ModelError: its files are damaged.
        CapabilityError: the target's weights are not those that it was trained for.
    """
    target = context.target
    ground = Ground(target.model, context.lm, context.backend)
    return load(ground, shipped_folder(target.name, argument), f"trained:{argument}", target.name)


def load(ground: Ground, folder: Path, name: str, target: str) -> Drafter:
    """The drafter in a folder, under a name, for a target of that name; see :func:`head`."""
    if not folder.is_dir():
        raise ModelError(f"{folder} is no folder; name one that flashspec train-draft wrote, or a published draft")
    config = read_config(folder)
    if config.get("format") != FORMAT:
        return _published(ground, folder, config, name, target)
    if config.get("edition") != EDITION or config.get("kind") not in KINDS:
        raise ModelError(
            f"{folder} is of edition {config.get('edition')}, kind {config.get('kind')!r}; known: edition {EDITION}, "
            f"{', '.join(KINDS)}; train it again"
        )
    check_target(config.get("target", {}), ground.model, target, str(folder))
    weights = unpack(read_weights(folder, (WEIGHTS,), config))
    shift = weights.pop("d2t", None)
    ids = None if shift is None else ids_of(shift)
    published.check_map(
        folder, ids, None, sizes(ground.model)["vocab_size"] if ids is None else len(ids), ground.lm.vocab
    )
    try:
        module = new_module(config["kind"], config, ground.model)
        put(module, weights, folder)
        return drafter(ground, name, config, module, ids)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{folder / CONFIG} does not describe a draft ({error}); train it again") from error


def _published(ground: Ground, folder: Path, config: Mapping[str, Any], name: str, target: str) -> Drafter:
    recorded = {"vocab_size": config["vocab_size"]} if "vocab_size" in config else {}
    hidden = config.get("target_hidden_size", config.get("hidden_size"))
    recorded |= {"hidden_size": hidden} if hidden else {}
    base = config.get("base_model_name_or_path")
    check_target({**recorded, **({"name": base} if base else {})}, ground.model, target, str(folder))
    found = published.read(folder, config, sizes(ground.model))
    if isinstance(found.module, MedusaHeads):
        return medusa(ground, name, found.module, found.taps, found.ids, found.heads)
    own = None if found.heads is None else found.heads[0]
    return eagle(ground, name, found.module, found.taps, found.ids, own, found.embedding)


def composite(context: Any, argument: str) -> Drafter:
    """The factory behind ``--draft composite:M:SPEC``: n-gram where at least M tokens match, else the draft SPEC.

    Raises:
        ContractError: not of that form.
    """
    from flashspec.drafts.composite import Composite
    from flashspec.hf.pool import drafter as build

    least, _, spec = argument.partition(":")
    if not least.isdecimal() or int(least) < 1 or not spec:
        raise ContractError(f"draft composite:{argument}; allowed: composite:M:DRAFT, as composite:3:head:FOLDER")
    other = build(attrs.evolve(context, draft_max=max(context.draft_max, 1)), spec)
    return Composite.of(f"composite:{argument}", int(least), other)
