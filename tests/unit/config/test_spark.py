from __future__ import annotations

import pytest
from pydantic import ValidationError

from headrace.config.spark import SparkConfig


def test_the_defaults_need_no_cluster() -> None:
    config = SparkConfig()
    assert (config.master, config.packages, config.task_max_failures, config.short_lived) == ("local[*]", (), 4, False)


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"packages": ["iceberg"]}, "group:artifact:version"),
        ({"packages": ["a:b:c,d:e:f"]}, "group:artifact:version"),
        ({"conf": {"spark.master": "yarn"}}, "has a field of its own: master"),
        ({"conf": {"spark.driver.memory": "4g"}}, "has a field of its own: driver_memory"),
        ({"conf": {"spark.sql.session.timeZone": "CET"}}, "UTC everywhere"),
        ({"conf": {"sql.shuffle.partitions": "4"}}, "must begin with 'spark.'"),
        ({"driver_memory": "2 GB"}, "driver_memory"),
        ({"task_max_failures": 0}, "greater than or equal to 1"),
        ({"masters": "local"}, "masters"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_remedy(settings: dict[str, object], remedy: str) -> None:
    with pytest.raises(ValidationError, match="1 validation error") as raised:
        SparkConfig.model_validate(settings)
    assert remedy in str(raised.value)


def test_further_settings_are_not_shown() -> None:
    config = SparkConfig(conf={"spark.hadoop.fs.s3a.secret.key": "hush"}, packages=("org.apache:a_2.13:1.0-rc1",))
    assert "hush" not in repr(config)
