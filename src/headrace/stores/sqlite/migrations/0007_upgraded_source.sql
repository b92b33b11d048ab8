CREATE TABLE upgraded_source (
    pipeline_id     INTEGER NOT NULL,
    system_id       TEXT NOT NULL,
    first_system_id TEXT NOT NULL,
    checksum        INTEGER,
    PRIMARY KEY (pipeline_id, system_id)
) WITHOUT ROWID;
CREATE TRIGGER upgraded_source_inserted AFTER INSERT ON upgraded_source BEGIN
    UPDATE upgraded_source SET checksum = row_checksum(NEW.pipeline_id, NEW.system_id, NEW.first_system_id)
    WHERE pipeline_id = NEW.pipeline_id AND system_id = NEW.system_id;
END;
CREATE TRIGGER upgraded_source_updated AFTER UPDATE OF pipeline_id, system_id, first_system_id ON upgraded_source BEGIN
    UPDATE upgraded_source SET checksum = row_checksum(NEW.pipeline_id, NEW.system_id, NEW.first_system_id)
    WHERE pipeline_id = NEW.pipeline_id AND system_id = NEW.system_id;
END;
