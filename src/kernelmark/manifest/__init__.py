"""The manifest: which ops a library has, what they take and give, and which calls real models make of them.

Reads and checks YAML and gives calls as values. Imports no framework and writes nothing.
"""

from kernelmark.manifest.library import LibraryConfig, find_library
from kernelmark.manifest.op import Effects, Manifest, OpSpec, TensorSpec, WorkCount, WorkloadCall
from kernelmark.manifest.reading import load_manifest, read_manifest

__all__ = [
    "Effects",
    "LibraryConfig",
    "Manifest",
    "OpSpec",
    "TensorSpec",
    "WorkCount",
    "WorkloadCall",
    "find_library",
    "load_manifest",
    "read_manifest",
]
