"""The case registry: one module for each family, each with its ENTRIES."""
