"""What every section of the configuration has in common: frozen, no unknown settings, no rejected value in an error."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Section"]


class Section(BaseModel):
    """A group of settings. pydantic would quote a rejected value, which may be a secret: that is off."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
