"""Checks before a start: is this server fit to be a source, and what to do if not. Small and independent."""

from .contract import Check, Finding, Severity, Target
from .run import ALL_CHECKS, run_checks

__all__ = ["ALL_CHECKS", "Check", "Finding", "Severity", "Target", "run_checks"]
