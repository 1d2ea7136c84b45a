"""What is true: the rules of FlashSpec as numbered clauses on executable, exact code.

Standard library only; rational arithmetic; never used at run time. Start with ``verify`` for one request,
``theorems`` for why it is lossless, ``clauses.all_clauses`` for the list of rules.
"""

from flashspec_spec.acceptance import acceptance_margin, acceptance_probability, accepts, leading_run
from flashspec_spec.calls import Call, malformed, undeclared
from flashspec_spec.clauses import Clause, all_clauses, clause
from flashspec_spec.draws import NO_TOKEN, Outcome, greedy_choice
from flashspec_spec.exponential import exp_minus
from flashspec_spec.filters import allow, cut_margin, kept, kept_order, order, unpack
from flashspec_spec.judged import one_hot, proposal_margin, q_of
from flashspec_spec.law import greedy_token, law, law_and_margin, weights
from flashspec_spec.layouts import padded_rows, ragged_rows, strided_row
from flashspec_spec.outcomes import in_support, pure, repeatable, well_formed
from flashspec_spec.philox import Domain, bits, block, coin, philox4x32
from flashspec_spec.proposals import DenseRow, OneHotRow, ProposalRow, SparseRow, dense_row, sparse_row
from flashspec_spec.residual import after_rejection, residual
from flashspec_spec.rows import Drawn, Row, row_law, sample
from flashspec_spec.sampling import TILE, edge_margin, inverse_cdf, tiled_inverse_cdf
from flashspec_spec.stats import RowStats, described_law, merged_mass, row_stats
from flashspec_spec.status import LawError, Status, read_draft
from flashspec_spec.theorems import (
    Model,
    Trial,
    emitted_law,
    lossless,
    target_law,
    token_rule,
    total_variation,
)
from flashspec_spec.uniforms import accept_uniform, sampling_uniform
from flashspec_spec.verify import verify, verify_stream

__spec_version__ = "1.0"
SPEC_VERSION = __spec_version__

__all__ = [
    "NO_TOKEN",
    "SPEC_VERSION",
    "TILE",
    "Call",
    "Clause",
    "DenseRow",
    "Domain",
    "Drawn",
    "LawError",
    "Model",
    "OneHotRow",
    "Outcome",
    "ProposalRow",
    "Row",
    "RowStats",
    "SparseRow",
    "Status",
    "Trial",
    "__spec_version__",
    "accept_uniform",
    "acceptance_margin",
    "acceptance_probability",
    "accepts",
    "after_rejection",
    "all_clauses",
    "allow",
    "bits",
    "block",
    "clause",
    "coin",
    "cut_margin",
    "dense_row",
    "described_law",
    "edge_margin",
    "emitted_law",
    "exp_minus",
    "greedy_choice",
    "greedy_token",
    "in_support",
    "inverse_cdf",
    "kept",
    "kept_order",
    "law",
    "law_and_margin",
    "leading_run",
    "lossless",
    "malformed",
    "merged_mass",
    "one_hot",
    "order",
    "padded_rows",
    "philox4x32",
    "proposal_margin",
    "pure",
    "q_of",
    "ragged_rows",
    "read_draft",
    "repeatable",
    "residual",
    "row_law",
    "row_stats",
    "sample",
    "sampling_uniform",
    "sparse_row",
    "strided_row",
    "target_law",
    "tiled_inverse_cdf",
    "token_rule",
    "total_variation",
    "undeclared",
    "unpack",
    "verify",
    "verify_stream",
    "weights",
    "well_formed",
]
