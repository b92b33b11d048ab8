"""What a running pipeline tells the world: logs and metrics."""
