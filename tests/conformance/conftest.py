"""Asserts in the public suites explain themselves, as those in test modules do."""

import pytest

pytest.register_assert_rewrite(
    "headrace.testing.store_suite",
    "headrace.testing.copy_store_suite",
    "headrace.testing.request_store_suite",
    "headrace.testing.destination_suite",
)
