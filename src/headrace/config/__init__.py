"""Settings: frozen values, checked when they are read, each field with its unit, default and reason."""
