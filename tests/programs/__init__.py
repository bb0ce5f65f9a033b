"""Programs that tests start, or that a developer starts by hand."""
