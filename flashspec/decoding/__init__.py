"""The decoding loop: pure steps, one commit path, any backend and any drafts."""

from flashspec.decoding.commit import Output, commit
from flashspec.decoding.cost import CostTable, measure
from flashspec.decoding.lm import CausalLM
from flashspec.decoding.loop import Generation, generate
from flashspec.decoding.request import ArmStats, Chunk, FinishReason, Request, Result, Stats
from flashspec.decoding.step import Engine, Info, State, start, step

__all__ = [
    "ArmStats",
    "CausalLM",
    "Chunk",
    "CostTable",
    "Engine",
    "FinishReason",
    "Generation",
    "Info",
    "Output",
    "Request",
    "Result",
    "State",
    "Stats",
    "commit",
    "generate",
    "measure",
    "start",
    "step",
]
