"""The manifest: which ops a library has, what they take and give, and which calls real models make of them.

Reads and checks YAML and gives calls as values. Imports no framework and writes nothing.
"""

from kernelmark.manifest.call import Effects, RooflineSpec, TensorSpec, WorkCount, WorkloadCall
from kernelmark.manifest.config import LibraryConfig, find_library
from kernelmark.manifest.loader import load_manifest, read_manifest
from kernelmark.manifest.spec import Manifest, OpSpec

__all__ = [
    "Effects",
    "LibraryConfig",
    "Manifest",
    "OpSpec",
    "RooflineSpec",
    "TensorSpec",
    "WorkCount",
    "WorkloadCall",
    "find_library",
    "load_manifest",
    "read_manifest",
]
