"""What every drafter must keep to: checks of the promises in ``flashspec.drafts.protocol``."""
