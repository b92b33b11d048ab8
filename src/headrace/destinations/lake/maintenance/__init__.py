"""Maintenance of tables, whatever their format: when it happens, and which files are worth writing anew."""
