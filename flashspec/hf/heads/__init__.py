"""Trained drafts: heads on the target's hidden states, small models, and how their files are read."""
