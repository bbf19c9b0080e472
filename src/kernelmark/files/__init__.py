"""Files: YAML with the line of each field, strict loading, atomic writing.

The YAML half needs PyYAML and pydantic, and is imported by its own modules' names.
"""

from kernelmark.files.replacing import draft, replace

__all__ = ["draft", "replace"]
