"""The validator: one module per level, each giving values; nothing here prints or decides an exit code."""

from kernelmark.manifest.levels.finding import Finding, Level, LevelResult, Severity

__all__ = ["Finding", "Level", "LevelResult", "Severity"]
