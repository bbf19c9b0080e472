"""Compiles PyTorch models for the CPU by way of MLIR: import, schedule, lower, run.

Names load when first used, and torch and torch-mlir only inside the functions that need them.
"""
