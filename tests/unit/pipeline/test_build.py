from __future__ import annotations

import stat
from pathlib import Path

import pytest

from headrace.config.pipeline import PipelineConfig
from headrace.errors import ConfigError
from headrace.pipeline.build import prepare_directory


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    connection = {"host": "db", "name": "shop", "username": "u"}
    return PipelineConfig.model_validate(
        {"id": 1, "publication_name": "p", "pg_connection": connection, "data_dir": tmp_path / "data"}
    )


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_data_directory_that_is_ours_alone_is_closed(config: PipelineConfig) -> None:
    config.directory.mkdir(parents=True)
    config.data_dir.chmod(0o777)
    config.directory.chmod(0o755)
    prepare_directory(config)
    assert (mode(config.data_dir), mode(config.directory)) == (0o700, 0o700)


def test_a_data_directory_that_others_use_stays_open(config: PipelineConfig) -> None:
    (config.data_dir / "warehouse").mkdir(parents=True)
    config.data_dir.chmod(0o755)
    (config.data_dir / "warehouse").chmod(0o755)
    (config.data_dir / "dangling").symlink_to("nowhere")
    prepare_directory(config)
    assert (mode(config.data_dir), mode(config.data_dir / "warehouse")) == (0o755, 0o755)
    assert mode(config.directory) == 0o700


def test_a_pipeline_directory_that_others_can_write_to_is_refused(config: PipelineConfig) -> None:
    prepare_directory(config)
    (config.directory / "store.db").touch()
    config.directory.chmod(0o770)
    with pytest.raises(ConfigError, match="other users can write"):
        prepare_directory(config)
