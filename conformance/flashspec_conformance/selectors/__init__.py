"""What every selector must keep to: checks of the promises in ``flashspec.selectors.types``."""
