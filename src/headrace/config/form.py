"""The form that a setting's text must have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler

__all__ = ["SPARK_NAME", "Form"]


@dataclass(frozen=True, slots=True)
class Form:
    """Text that matches the pattern. Of other text `words` say what it must be: pydantic would quote the pattern."""

    pattern: str
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return AfterValidator(self._checked).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> Any:
        return {**handler(schema), "pattern": self.pattern}

    def _checked(self, text: str | None) -> str | None:
        if text is not None and not re.fullmatch(self.pattern, text):
            raise ValueError(self.words)
        return text


SPARK_NAME = Form(r"^[A-Za-z_][A-Za-z0-9_]*$", "must be of A-Z, a-z, 0-9 and _, and not begin with a digit")
"""What Spark takes for a name without quotes."""
