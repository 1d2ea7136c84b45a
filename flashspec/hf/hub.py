"""Asking the model hub once, so that a missing network is an error at once and not after many retries."""

from __future__ import annotations

from collections.abc import Callable

from flashspec.errors import ModelError
from flashspec.hf.convert import first_line

SECONDS = 10.0
"""How long the hub may take to answer whether it knows a model."""

Ask = Callable[[str], None]
"""Raises unless the hub answers that it has the model."""


def ask_hub(name: str) -> None:
    """One request to the hub for what it knows about a model."""
    from huggingface_hub import HfApi

    HfApi().model_info(name, timeout=SECONDS)


def hub_reachable(name: str, ask: Ask = ask_hub) -> bool:
    """Whether the hub can be asked for the files of ``name``; if not, only its local cache is left.

    Raises:
        ModelError: the hub answers that there is no such model, or none for this user.
    """
    from huggingface_hub.errors import HfHubHTTPError

    try:
        ask(name)
    except HfHubHTTPError as error:
        if error.response.status_code in (401, 403, 404):
            raise ModelError(
                f"the hub does not give {name} ({first_line(error)}); check the name, or log in if it is gated"
            ) from error
        return False
    except Exception:  # connection errors come from whichever HTTP client the hub's package uses
        return False
    return True
