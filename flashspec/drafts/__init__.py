"""Drafters: everything that can propose tokens, behind one protocol."""

from flashspec.drafts.composite import Composite
from flashspec.drafts.follower import Follower
from flashspec.drafts.history import History
from flashspec.drafts.model import ModelDrafter
from flashspec.drafts.ngram import NGram
from flashspec.drafts.protocol import Draft, Drafter
from flashspec.drafts.scorer import Past, Scorer
from flashspec.drafts.suffix import Suffix

__all__ = ["Composite", "Draft", "Drafter", "Follower", "History", "ModelDrafter", "NGram", "Past", "Scorer", "Suffix"]
