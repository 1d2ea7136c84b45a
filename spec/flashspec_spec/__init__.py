"""What is true: the rules of FlashSpec as numbered clauses on executable, exact code.

Standard library only; rational arithmetic; never used at run time. Start with ``verify`` for one request,
``theorems`` for why it is lossless, ``clauses.all_clauses`` for the list of rules.
"""

from flashspec_spec.acceptance import acceptance_margin, acceptance_probability, accepts, leading_run, overlap
from flashspec_spec.block import accept_share, block_residual, covers, next_coverage, verify_block
from flashspec_spec.calls import Call, malformed, undeclared
from flashspec_spec.clauses import Clause, all_clauses, clause
from flashspec_spec.draws import NO_TOKEN, Outcome, greedy_choice
from flashspec_spec.exponential import exp_minus
from flashspec_spec.filters import allow, cut_margin, kept, kept_order, order, unpack
from flashspec_spec.judged import one_hot, proposal_margin, q_of
from flashspec_spec.judges import Judge, block_judge, block_rule, path_judge, path_rule, token_judge
from flashspec_spec.law import greedy_token, law, law_and_margin, weights
from flashspec_spec.layouts import padded_rows, ragged_rows, strided_row
from flashspec_spec.noise import Keys, Noise, cells, flip
from flashspec_spec.outcomes import in_support, pure, repeatable, well_formed
from flashspec_spec.path import path_integers, verify_path
from flashspec_spec.philox import Domain, bits, block, coin, philox4x32
from flashspec_spec.proposals import DenseRow, OneHotRow, ProposalRow, SparseRow, dense_row, reduced_row, sparse_row
from flashspec_spec.rejection import rejection_rule, repeated_rejection_rule
from flashspec_spec.residual import after_rejection, residual
from flashspec_spec.rounds import (
    Cut,
    Engine,
    Policy,
    chained_law,
    engine_of,
    one_round_law,
    round_error,
    tree_rounds_law,
)
from flashspec_spec.rows import Drawn, Row, row_law, sample
from flashspec_spec.sampling import TILE, edge_margin, inverse_cdf, tiled_inverse_cdf
from flashspec_spec.stats import RowStats, described_law, merged_mass, row_stats
from flashspec_spec.status import LawError, Status, read_draft
from flashspec_spec.stopping import choice_law, coin_choice_law, drafting_error
from flashspec_spec.theorems import (
    Model,
    Trial,
    demoted,
    emitted_law,
    expected_emitted,
    lossless,
    target_law,
    token_rule,
    total_variation,
)
from flashspec_spec.traversal import repeated_traversal_rule, traversal_judge, traversal_rule
from flashspec_spec.tree import Node, distinct, listed, merged, repeated, tree_error, tree_law, trees
from flashspec_spec.truncation import cut_law, cut_text
from flashspec_spec.uniforms import accept_uniform, sampling_uniform
from flashspec_spec.verify import METHODS, verify, verify_stream
from flashspec_spec.walk import walk_rule

__spec_version__ = "1.1"
SPEC_VERSION = __spec_version__

__all__ = [
    "METHODS",
    "NO_TOKEN",
    "SPEC_VERSION",
    "TILE",
    "Call",
    "Clause",
    "Cut",
    "DenseRow",
    "Domain",
    "Drawn",
    "Engine",
    "Judge",
    "Keys",
    "LawError",
    "Model",
    "Node",
    "Noise",
    "OneHotRow",
    "Outcome",
    "Policy",
    "ProposalRow",
    "Row",
    "RowStats",
    "SparseRow",
    "Status",
    "Trial",
    "__spec_version__",
    "accept_share",
    "accept_uniform",
    "acceptance_margin",
    "acceptance_probability",
    "accepts",
    "after_rejection",
    "all_clauses",
    "allow",
    "bits",
    "block",
    "block_judge",
    "block_residual",
    "block_rule",
    "cells",
    "chained_law",
    "choice_law",
    "clause",
    "coin",
    "coin_choice_law",
    "covers",
    "cut_law",
    "cut_margin",
    "cut_text",
    "demoted",
    "dense_row",
    "described_law",
    "distinct",
    "drafting_error",
    "edge_margin",
    "emitted_law",
    "engine_of",
    "exp_minus",
    "expected_emitted",
    "flip",
    "greedy_choice",
    "greedy_token",
    "in_support",
    "inverse_cdf",
    "kept",
    "kept_order",
    "law",
    "law_and_margin",
    "leading_run",
    "listed",
    "lossless",
    "malformed",
    "merged",
    "merged_mass",
    "next_coverage",
    "one_hot",
    "one_round_law",
    "order",
    "overlap",
    "padded_rows",
    "path_integers",
    "path_judge",
    "path_rule",
    "philox4x32",
    "proposal_margin",
    "pure",
    "q_of",
    "ragged_rows",
    "read_draft",
    "reduced_row",
    "rejection_rule",
    "repeatable",
    "repeated",
    "repeated_rejection_rule",
    "repeated_traversal_rule",
    "residual",
    "round_error",
    "row_law",
    "row_stats",
    "sample",
    "sampling_uniform",
    "sparse_row",
    "strided_row",
    "target_law",
    "tiled_inverse_cdf",
    "token_judge",
    "token_rule",
    "total_variation",
    "traversal_judge",
    "traversal_rule",
    "tree_error",
    "tree_law",
    "tree_rounds_law",
    "trees",
    "undeclared",
    "unpack",
    "verify",
    "verify_block",
    "verify_path",
    "verify_stream",
    "walk_rule",
    "weights",
    "well_formed",
]
