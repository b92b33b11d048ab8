"""Rows of the example tables, and what holds them."""

from __future__ import annotations

from decimal import Decimal

from .site import Values

__all__ = ["line", "order", "visit"]


def order(key: int, name: str | None = "a", note: object = "note") -> Values:
    return {"id": key, "name": name, "note": note}


def line(of: str, number: int, amount: str) -> Values:
    return {"number": number, "order": of, "amount": Decimal(amount)}


def visit(page: str | None, seconds: int | None) -> Values:
    return {"page": page, "seconds": seconds}
