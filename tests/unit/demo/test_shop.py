"""How large a shop is."""

from __future__ import annotations

import pytest

from headrace.demo.shop import Shop


@pytest.mark.parametrize("rows", [1_000, 5_000, 200_000, 1_234_567])
def test_a_shop_has_about_as_many_rows_as_asked(rows: int) -> None:
    shop = Shop.of_size(rows)
    assert shop.rows == pytest.approx(rows, rel=0.01)
    assert min(shop.customers, shop.products, shop.orders, shop.order_items, shop.events) >= 10
