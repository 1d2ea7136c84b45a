"""``flashspec train-draft``: the target writes, the draft learns to guess it, the folder gets draft, card and curve."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flashspec.hf.heads.files import WEIGHTS, put, read_weights, save, unpack, write_whole
from flashspec.hf.heads.kinds import trained
from flashspec.hf.loading import Loaded, load
from flashspec.training import checkpoint
from flashspec.training.checkpoint import Progressed
from flashspec.training.course import Course, prepare, score, total
from flashspec.training.data import Corpus, Progress, gather
from flashspec.training.options import Options
from flashspec.training.prompts import SOURCES

LATER = 0.8
"""Weight of each further guess of a chain in the loss, relative to the one before it."""
WARM, LEAST = 0.05, 0.05
"""Share of the steps in which the rate rises, and where it ends, relative to the largest."""


def run(options: Options, progress: Progress, target: Loaded | None = None) -> dict[str, Any]:
    """Train to the end and write the draft; returns its card. Called again after a stop it goes on.

    Raises:
        ContractError: options that fit neither the target nor the folder.
        FlashSpecError: a target that cannot be had.
        OSError: the disk is full; free some and run again, it goes on from the last checkpoint.
        KeyboardInterrupt: after the checkpoint was written.
    """
    if target is None:
        say = lambda stage: progress(stage, 0, 0)  # noqa: E731  # the loader tells stages only
        target = load(options.target, dtype=options.dtype, device=options.device, threads=options.threads, progress=say)
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    corpus = gather(options, target, progress)
    course = prepare(options, target, corpus)
    learned, held = corpus.split()
    done = _train(options, course, learned, held, folder, progress)
    return _finish(options, course, held, folder, done, len(learned.kinds))


def _train(
    options: Options, course: Course, learned: Corpus, held: Corpus, folder: Path, progress: Progress
) -> Progressed:
    optimiser = torch.optim.AdamW(course.module.parameters(), lr=options.rate, betas=(0.9, 0.95), weight_decay=0.01)
    facts = {**options.facts, "target": course.config["target"]["sha256"]}
    done = checkpoint.read(folder, course.module, optimiser, facts)
    begin = time.perf_counter() - done.seconds
    if not done.curve:
        done = Progressed(0, (_point(course, held, options, 0),))
    try:
        while done.step < options.steps:
            loss = _step(options, course, optimiser, learned, done.step)
            progress(f"training, loss {loss:.3f}", done.step + 1, options.steps)
            curve = done.curve
            if (done.step + 1) % options.every == 0 or done.step + 1 == options.steps:
                curve = (*curve, _point(course, held, options, done.step + 1))
            done = Progressed(done.step + 1, curve, time.perf_counter() - begin)
            if curve[-1]["step"] == done.step:
                checkpoint.write(folder, course.module, optimiser, done, facts)
    except KeyboardInterrupt:
        checkpoint.write(folder, course.module, optimiser, done, facts)
        raise
    return done


def _step(options: Options, course: Course, optimiser: torch.optim.AdamW, learned: Corpus, step: int) -> float:
    """One step of the optimiser on the batch that belongs to it."""
    count = len(learned.kinds)
    places = np.arange(step * options.batch, (step + 1) * options.batch)
    orders = {int(e): np.random.default_rng((options.seed, int(e))).permutation(count) for e in set(places // count)}
    batch = learned.of(np.array([orders[int(p // count)][p % count] for p in places]))
    for group in optimiser.param_groups:
        group["lr"] = options.rate * pace(step, options.steps)
    course.module.train()
    lesson = course.lesson(batch)
    with torch.autocast(lesson.tokens.device.type, torch.bfloat16, enabled=lesson.tokens.device.type == "cuda"):
        found = score(course, lesson, course.student(lesson))
    weights = LATER ** torch.arange(len(found.loss), device=found.loss.device)
    loss = (weights * found.loss / found.places.clamp(min=1)).sum() / weights.sum()
    optimiser.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(course.module.parameters(), 1.0)
    optimiser.step()
    return float(loss.detach())


def pace(step: int, steps: int) -> float:
    """The learning rate over the largest: up in a straight line, down along a cosine."""
    warm = max(1, int(WARM * steps))
    if step < warm:
        return (step + 1) / warm
    share = (step - warm) / max(1, steps - warm)
    return LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * share))


@torch.no_grad()
def evaluate(course: Course, held: Corpus, batch: int) -> dict[str, Any]:
    """Loss and acceptance on text that was not learned, in all and by kind."""
    course.module.eval()
    found = {}
    for kind in dict.fromkeys(held.kinds):
        mine = held.of(np.array([k == kind for k in held.kinds]))
        scores = []
        for start in range(0, len(mine.kinds), batch):
            lesson = course.lesson(mine.of(np.arange(start, min(start + batch, len(mine.kinds)))))
            scores.append(score(course, lesson, course.student(lesson)))
        found[kind] = scores
    return {"all": total([s for scores in found.values() for s in scores]), **{k: total(s) for k, s in found.items()}}


def _point(course: Course, held: Corpus, options: Options, step: int) -> dict[str, Any]:
    return {"step": step, "held_out": evaluate(course, held, options.batch)}


def _finish(
    options: Options, course: Course, held: Corpus, folder: Path, done: Progressed, count: int
) -> dict[str, Any]:
    """Write the draft, and measure it as it will be read back."""
    weights = trained(course.module)
    stored = dict(weights)
    if course.config["reduced"] or options.kind == "model":
        ids = course.ids.cpu()
        stored["d2t"] = (ids - torch.arange(len(ids))).to(torch.int32)
    save(folder, course.config, stored, options.store)
    again = unpack(read_weights(folder, (WEIGHTS,), {}))
    put(course.module, {name: again[name] for name in weights}, folder)
    card = {
        "kind": options.kind,
        "target": course.config["target"],
        "licence": "Apache-2.0 (weights of the draft)",
        "data": options.data,
        "data_sources": SOURCES if options.data.startswith("self") else options.data,
        "data_licence": options.licence or "own prompts: Apache-2.0; library sources: PSF; answers: the target's own",
        "sequences": count,
        "steps": done.step,
        "seconds": done.seconds,
        "device": str(course.ids.device),
        "parameters": sum(w.numel() for w in weights.values()),
        "bytes": (folder / WEIGHTS).stat().st_size,
        "stored": options.store,
        "before": done.curve[0]["held_out"],
        "after": done.curve[-1]["held_out"],
        "as_stored": evaluate(course, held, options.batch),
        "options": options.facts,
    }
    write_whole(folder / "card.json", (json.dumps(card, indent=2) + "\n").encode())
    write_whole(folder / "curve.json", (json.dumps(list(done.curve), indent=2) + "\n").encode())
    write_whole(folder / "README.md", text_of(card).encode())
    return card


def text_of(card: Mapping[str, Any]) -> str:
    """The card for people."""
    lines = [
        f"# {card['kind']} draft for {card['target']['name']}",
        "",
        f"Trained by `flashspec train-draft` on {card['sequences']} sequences ({card['data']}), {card['steps']} steps.",
        f"Data: {card['data_sources']}. Licence of the data: {card['data_licence']}.",
        f"Licence: {card['licence']}. Target: SHA-256 of its fingerprint {card['target']['sha256']}.",
        f"{card['parameters']:,} parameters, stored as {card['stored']}, {card['bytes']:,} bytes.",
        "",
        "Acceptance on held-out text, as stored:",
        "",
        "| kind | first token, T = 0 | first token, T = 1 | accepted of a chain, T = 0 |",
        "|---|---|---|---|",
    ]
    for kind, row in card["as_stored"].items():
        chain = f"{row['accepted_length'][-1]:.2f} of {len(row['accepted_length'])}"
        lines.append(f"| {kind} | {row['accepted_greedy']:.3f} | {row['accepted_sampled']:.3f} | {chain} |")
    return "\n".join(lines) + "\n"
