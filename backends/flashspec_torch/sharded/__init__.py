"""Verification and sampling where each rank holds a run of the vocabulary, and no rank all of it.

Calls are generators that yield what this rank tells all others (``flashspec.shards.Exchange``): ``shards.run`` makes
one with :func:`flashspec.shards.gathering` over a process group, ``shards.lockstep`` makes those of all ranks in one
process. How often they gather does not depend on values:

====================================  ==============================================
call                                  collectives
====================================  ==============================================
``greedy``                            1
``sample``, ``path``                  2
``token``, ``block``                  3
filters                               + 1, and + 2 to 8 for each of top-k and top-p
====================================  ==============================================

The filters' own are 2 for bfloat16, 3 for float16, 4 for float32 and 8 for float64 logits; a filter that the host
knows to be off costs none.
"""

from flashspec_torch.sharded._ranks import Ranks as Ranks
from flashspec_torch.sharded._ranks import ranks3 as ranks3
from flashspec_torch.sharded._sample import sample as sample
from flashspec_torch.sharded._verify import verify as verify

__all__ = ["Ranks", "ranks3", "sample", "verify"]
