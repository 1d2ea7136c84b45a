"""The decoding loop: pure steps, one commit path, any backend and any drafts."""

from flashspec.decoding.commit import Output, commit
from flashspec.decoding.cost import CostTable, measure
from flashspec.decoding.drafting import DraftLost
from flashspec.decoding.lm import CausalLM
from flashspec.decoding.loop import Generation, generate
from flashspec.decoding.request import ArmStats, Chunk, FinishReason, Request, Result, Stats
from flashspec.decoding.shared import Shared
from flashspec.decoding.state import Engine, Info, State
from flashspec.decoding.step import start, step

__all__ = [
    "ArmStats",
    "CausalLM",
    "Chunk",
    "CostTable",
    "DraftLost",
    "Engine",
    "FinishReason",
    "Generation",
    "Info",
    "Output",
    "Request",
    "Result",
    "Shared",
    "State",
    "Stats",
    "commit",
    "generate",
    "measure",
    "start",
    "step",
]
