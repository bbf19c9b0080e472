"""Inputs, reference and verification of each op of the library; what benchmarks and tests share."""
