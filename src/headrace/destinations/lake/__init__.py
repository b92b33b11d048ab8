"""Tables made of Parquet files and deletion vectors, written by tasks and committed by the driver.

What all formats of such tables share: `destination` does the work, a format brings its `contract.LakeCatalog` and
`contract.LakeTable`, its plans and its upkeep. Schemas are in Iceberg's words whatever the format.
"""
