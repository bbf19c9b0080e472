"""This repository's own benchmarks."""
