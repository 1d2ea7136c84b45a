"""Training drafts for a target on its own text: ``flashspec train-draft``."""
