"""What models cost: as a project states it, or as the list that litellm brings along has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skillforge.errors import ConfigError

SELF_HOSTED = {"ollama", "ollama_chat", "lm_studio", "llamafile"}
"""Providers that are programs on one's own machine, and so cost nothing per token."""


def stated_prices(name: str, prices: Mapping[str, float]) -> tuple[float, float]:
    """Return USD per prompt and per completion token from prices per million tokens.

    Raises:
        ConfigError: One is missing, or no number of at least 0.
    """
    values = []
    for key in ("input_per_million", "output_per_million"):
        value = prices.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            raise ConfigError(
                f"[prices] of model {name!r}: {key} is {value!r}; expected USD per million "
                "tokens, a number of at least 0 (0 for an endpoint that costs nothing)."
            )
        values.append(float(value) / 1e6)
    return values[0], values[1]


def listed_prices(
    listed: Mapping[str, Mapping[str, Any]], name: str, provider: str
) -> tuple[float, float]:
    """Return the highest USD per prompt and per completion token that a list has for a model.

    A model may cost more above some length; the highest rate keeps the bound a bound.

    Args:
        listed: litellm's list, by name of the model.
        name: The litellm model name.
        provider: Its provider.

    Raises:
        ConfigError: The list does not say.
    """
    if provider in SELF_HOSTED:
        return 0.0, 0.0
    bare = name.removeprefix(f"{provider}/")
    for key in (name, bare):
        entry = listed.get(key)
        if entry and entry.get("litellm_provider") == provider:
            rates = [_highest(entry, f"{side}_cost_per_token") for side in ("input", "output")]
            if None not in rates:
                return rates[0] or 0.0, rates[1] or 0.0
    raise ConfigError(
        f"model {name!r}: its price is unknown, so no budget could hold. State it in "
        f'skillforge.toml: [prices."{name}"] input_per_million = USD, output_per_million = USD '
        "(0 for an endpoint that costs nothing)."
    )


def _highest(entry: Mapping[str, Any], key: str) -> float | None:
    """Return the highest standard rate under a key and its ``_above_…`` variants."""
    rates = [
        value
        for name, value in entry.items()
        if (name == key or (name.startswith(f"{key}_above_") and name.endswith("_tokens")))
        and isinstance(value, int | float)
    ]
    return max(rates) if key in entry and rates else None
