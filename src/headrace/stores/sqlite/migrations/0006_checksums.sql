-- Each row has a checksum of its other columns, which is verified when a pipeline opens the store. SQLite itself has none.
-- Every connection brings the function row_checksum.

ALTER TABLE table_state ADD COLUMN checksum INTEGER;
UPDATE table_state SET checksum = row_checksum(pipeline_id, table_id, step, state, detail, entered_at);
CREATE TRIGGER table_state_inserted AFTER INSERT ON table_state BEGIN
    UPDATE table_state SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.step, NEW.state, NEW.detail, NEW.entered_at)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id AND step = NEW.step;
END;
CREATE TRIGGER table_state_updated AFTER UPDATE OF pipeline_id, table_id, step, state, detail, entered_at ON table_state BEGIN
    UPDATE table_state SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.step, NEW.state, NEW.detail, NEW.entered_at)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id AND step = NEW.step;
END;

ALTER TABLE table_schema ADD COLUMN checksum INTEGER;
UPDATE table_schema SET checksum = row_checksum(pipeline_id, table_id, snapshot_lsn, definition);
CREATE TRIGGER table_schema_inserted AFTER INSERT ON table_schema BEGIN
    UPDATE table_schema SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.snapshot_lsn, NEW.definition)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id AND snapshot_lsn = NEW.snapshot_lsn;
END;
CREATE TRIGGER table_schema_updated AFTER UPDATE OF pipeline_id, table_id, snapshot_lsn, definition ON table_schema BEGIN
    UPDATE table_schema SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.snapshot_lsn, NEW.definition)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id AND snapshot_lsn = NEW.snapshot_lsn;
END;

ALTER TABLE progress ADD COLUMN checksum INTEGER;
UPDATE progress SET checksum = row_checksum(pipeline_id, table_id, lsn);
CREATE TRIGGER progress_inserted AFTER INSERT ON progress BEGIN
    UPDATE progress SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.lsn)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id;
END;
CREATE TRIGGER progress_updated AFTER UPDATE OF pipeline_id, table_id, lsn ON progress BEGIN
    UPDATE progress SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.lsn)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id;
END;

ALTER TABLE destination_table ADD COLUMN checksum INTEGER;
UPDATE destination_table SET checksum = row_checksum(pipeline_id, table_id, destination_table_id, snapshot_lsn, previous_snapshot_lsn, status, mask);
CREATE TRIGGER destination_table_inserted AFTER INSERT ON destination_table BEGIN
    UPDATE destination_table SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.destination_table_id, NEW.snapshot_lsn, NEW.previous_snapshot_lsn, NEW.status, NEW.mask)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id;
END;
CREATE TRIGGER destination_table_updated AFTER UPDATE OF pipeline_id, table_id, destination_table_id, snapshot_lsn, previous_snapshot_lsn, status, mask ON destination_table BEGIN
    UPDATE destination_table SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.destination_table_id, NEW.snapshot_lsn, NEW.previous_snapshot_lsn, NEW.status, NEW.mask)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id;
END;

ALTER TABLE table_copy ADD COLUMN checksum INTEGER;
UPDATE table_copy SET checksum = row_checksum(pipeline_id, table_id, start_lsn, snapshot_lsn, one_snapshot, ranges);
CREATE TRIGGER table_copy_inserted AFTER INSERT ON table_copy BEGIN
    UPDATE table_copy SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.start_lsn, NEW.snapshot_lsn, NEW.one_snapshot, NEW.ranges)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id;
END;
CREATE TRIGGER table_copy_updated AFTER UPDATE OF pipeline_id, table_id, start_lsn, snapshot_lsn, one_snapshot, ranges ON table_copy BEGIN
    UPDATE table_copy SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.start_lsn, NEW.snapshot_lsn, NEW.one_snapshot, NEW.ranges)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id;
END;

ALTER TABLE copied_range ADD COLUMN checksum INTEGER;
UPDATE copied_range SET checksum = row_checksum(pipeline_id, table_id, position, bounds, snapshot, row_count);
CREATE TRIGGER copied_range_inserted AFTER INSERT ON copied_range BEGIN
    UPDATE copied_range SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.position, NEW.bounds, NEW.snapshot, NEW.row_count)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id AND position = NEW.position;
END;
CREATE TRIGGER copied_range_updated AFTER UPDATE OF pipeline_id, table_id, position, bounds, snapshot, row_count ON copied_range BEGIN
    UPDATE copied_range SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.position, NEW.bounds, NEW.snapshot, NEW.row_count)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id AND position = NEW.position;
END;

ALTER TABLE table_request ADD COLUMN checksum INTEGER;
UPDATE table_request SET checksum = row_checksum(pipeline_id, table_id, kind);
CREATE TRIGGER table_request_inserted AFTER INSERT ON table_request BEGIN
    UPDATE table_request SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.kind)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id;
END;
CREATE TRIGGER table_request_updated AFTER UPDATE OF pipeline_id, table_id, kind ON table_request BEGIN
    UPDATE table_request SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.kind)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id;
END;

ALTER TABLE acknowledged ADD COLUMN checksum INTEGER;
UPDATE acknowledged SET checksum = row_checksum(pipeline_id, table_id, lsn);
CREATE TRIGGER acknowledged_inserted AFTER INSERT ON acknowledged BEGIN
    UPDATE acknowledged SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.lsn)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id;
END;
CREATE TRIGGER acknowledged_updated AFTER UPDATE OF pipeline_id, table_id, lsn ON acknowledged BEGIN
    UPDATE acknowledged SET checksum = row_checksum(NEW.pipeline_id, NEW.table_id, NEW.lsn)
    WHERE pipeline_id = NEW.pipeline_id AND table_id = NEW.table_id;
END;
