"""One graph over several devices or processes: see docs/scale.md."""
