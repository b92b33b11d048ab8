from __future__ import annotations

import sys

import pytest

from headrace.config.spark import SparkConfig
from headrace.spark.settings import spark_master, spark_settings


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[1,3]"),
        ("local[2]", "local[2,3]"),
        ("local[*]", "local[*,3]"),
        ("local[2,7]", "local[2,7]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
        ("yarn", "yarn"),
    ],
)
def test_tasks_are_retried_with_a_local_master_too(master: str, expected: str) -> None:
    assert spark_master(SparkConfig(master=master, task_max_failures=3)) == expected


def test_the_history_of_finished_work_is_short_unless_the_ui_shows_it() -> None:
    retained = {name for name in spark_settings(SparkConfig(), "/nowhere") if ".retained" in name}
    assert retained >= {"spark.ui.retainedJobs", "spark.ui.retainedStages", "spark.sql.ui.retainedExecutions"}
    shown = spark_settings(SparkConfig(conf={"spark.ui.enabled": "true"}), "/nowhere")
    assert not [name for name in shown if ".retained" in name]


def test_what_the_user_sets_wins() -> None:
    settings = spark_settings(SparkConfig(conf={"spark.ui.enabled": "true", "spark.pyspark.python": "py"}), "/nowhere")
    assert (settings["spark.ui.enabled"], settings["spark.pyspark.python"]) == ("true", "py")
    assert settings["spark.pyspark.driver.python"] == sys.executable


def test_java_options_of_the_user_follow_ours() -> None:
    config = SparkConfig(short_lived=True, conf={"spark.driver.extraJavaOptions": "-Dmine=1"})
    options = spark_settings(config, "/nowhere")["spark.driver.extraJavaOptions"].split()
    assert options[-2:] == ["-XX:TieredStopAtLevel=1", "-Dmine=1"]
    assert "-XX:TieredStopAtLevel=1" not in spark_settings(SparkConfig(), "/nowhere")["spark.driver.extraJavaOptions"]


def test_loopback_is_for_local_masters_only() -> None:
    assert spark_settings(SparkConfig(master="local[1]"), "/nowhere")["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in spark_settings(SparkConfig(master="yarn"), "/nowhere")


def test_packages_are_given_by_coordinates() -> None:
    settings = spark_settings(SparkConfig(packages=("a:b:1", "c:d:2")), "/nowhere")
    assert settings["spark.jars.packages"] == "a:b:1,c:d:2"
    assert "spark.jars.packages" not in spark_settings(SparkConfig(), "/nowhere")
