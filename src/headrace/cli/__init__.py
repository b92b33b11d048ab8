"""The `headrace` command: each subcommand a file, doing nothing that the packages below cannot do without it."""
