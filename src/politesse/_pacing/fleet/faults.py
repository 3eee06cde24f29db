"""The errors for what others have put where only the fleet should: into its keys, and on its channels."""

from __future__ import annotations

from politesse._pacing.fleet.messages import ForeignKey
from politesse._text import described
from politesse.errors import ConfigurationError


def unusable_key(key: str, server: str, error: Exception) -> ConfigurationError:
    """Return the error for a key on which a script has failed."""
    is_foreign = isinstance(error, ForeignKey)
    remedy = "Remove it, or give the fleet another prefix" if is_foreign else "Its host is asked nothing"
    why = str(error) if is_foreign else described(error)
    fault = ConfigurationError(f"the key {key!r:.200} at {server} cannot be used: {why}. {remedy}")
    fault.__cause__ = error
    return fault


def strange_message(message: str, channel: str, server: str, error: ValueError) -> ConfigurationError:
    """Return the error for a message that is not for this process."""
    return ConfigurationError(
        f"something else publishes to the channel {channel!r:.100} at {server}: {message!r:.100} ({error}). It is "
        "ignored, as are all such messages. Give the fleet another prefix"
    )
