"""What code is made for: architecture, vector features, threads and caches; found out here, or told.

Reads what :mod:`kernelmark.device` reads of a processor. It knows no schedule and makes no code: LLVM itself
compiles for the machine that it runs on, so a target that is not this machine serves looking up and explaining.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from kernelmark.device import CacheSizes
from kernelmark.device.cpu_caches import cpu_caches
from kernelmark.device.cpu_facts import available_cpus, cpu_flags, physical_cores
from kernelmark.errors import UnavailableError, UsageError
from kernelmark.text import suggestion
from torchsched.openmp import find_openmp

__all__ = ["Architecture", "Feature", "Target", "detect", "override", "require_here"]


class Architecture(StrEnum):
    """The processors that there are schedules for."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"


class Feature(StrEnum):
    """A family of vector instructions; a schedule may be kept for one."""

    AVX2 = "avx2"
    AVX512 = "avx512"
    AVX512_BF16 = "avx512_bf16"
    AMX = "amx"
    NEON = "neon"
    SVE = "sve"


@dataclass(frozen=True, slots=True)
class _Facts:
    architecture: Architecture
    flags: frozenset[str]
    """What the kernel must list, all of them."""
    vector_bits: int
    """Of its registers for ordinary arithmetic; 0 where it adds none of its own."""
    implies: tuple[Feature, ...] = ()


_FACTS: dict[Feature, _Facts] = {
    Feature.AVX2: _Facts(Architecture.X86_64, frozenset({"avx2", "fma"}), 256),
    # The family as every server processor since 2017 has it; the first accelerator card with avx512f alone
    # lacks what vectorised code takes for granted (masks on bytes, 256-bit forms).
    Feature.AVX512: _Facts(
        Architecture.X86_64,
        frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
        512,
        (Feature.AVX2,),
    ),
    Feature.AVX512_BF16: _Facts(
        Architecture.X86_64, frozenset({"avx512_bf16"}), 0, (Feature.AVX512, Feature.AVX2)
    ),
    Feature.AMX: _Facts(
        Architecture.X86_64,
        frozenset({"amx_tile", "amx_bf16", "amx_int8"}),
        0,
        (Feature.AVX512_BF16, Feature.AVX512, Feature.AVX2),
    ),
    Feature.NEON: _Facts(Architecture.AARCH64, frozenset({"asimd"}), 128),
    Feature.SVE: _Facts(Architecture.AARCH64, frozenset({"sve"}), 0, (Feature.NEON,)),
}
_PREFERENCE = (
    Feature.AMX,
    Feature.AVX512_BF16,
    Feature.AVX512,
    Feature.AVX2,
    Feature.SVE,
    Feature.NEON,
)
"""The order in which schedules are looked for: the most special first."""

_BASE_VECTOR_BITS = 128  # SSE2 and NEON: every processor of the two architectures has as much
_ARCHITECTURES = {
    "x86_64": Architecture.X86_64,
    "amd64": Architecture.X86_64,
    "x64": Architecture.X86_64,
    "aarch64": Architecture.AARCH64,
    "arm64": Architecture.AARCH64,
}
"""What systems call their architecture, in lower case."""


@dataclass(frozen=True, slots=True)
class Target:
    """What code is made for."""

    name: str
    """An :class:`Architecture`, or what this system calls another one."""
    features: frozenset[Feature] = frozenset()
    threads: int = 1
    """How many threads the code may use; it uses one where there is no OpenMP runtime."""
    vector_bits: int = _BASE_VECTOR_BITS
    caches: CacheSizes = field(default_factory=lambda: CacheSizes(by_level={}, last_level=0))
    openmp: str | None = None
    """The OpenMP runtime to load; ``None`` where there is none."""
    cores: int = 0
    """How many cores this process may use; 0 where nobody has looked."""

    @property
    def parallel(self) -> bool:
        """Whether the code is made for several threads."""
        return self.threads > 1 and self.openmp is not None

    @property
    def code_threads(self) -> int:
        """How many threads the code does use."""
        return self.threads if self.parallel else 1

    @property
    def preference(self) -> tuple[Feature, ...]:
        """The features, the most special first."""
        return tuple(each for each in _PREFERENCE if each in self.features)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of a time must know: why the schedule is a slower one than there is for this architecture."""
        said: list[str] = []
        if self.threads > 1 and self.openmp is None:
            said.append(f"one thread rather than {self.threads}: {find_openmp().detail}")
        elif self.cores == 1 and self.threads == 1:
            said.append("one thread: this process may use one core")
        elif self.cores > 1 and self.threads == 1:
            said.append(f"one thread, as was asked for, of {self.cores} cores")
        if self.name == Architecture.X86_64 and Feature.AVX512 not in self.features:
            said.append(f"vectors of {self.vector_bits} bits rather than 512: the target is without avx512")
        return tuple(said)

    def __str__(self) -> str:
        features = "+".join(self.preference) or "no vector features known"
        threads = f"{self.code_threads} thread{'s' if self.code_threads > 1 else ''}"
        return f"{self.name} {features}, vectors of {self.vector_bits} bits, {threads}"


def detect(*, threads: int | None = None, machine: str | None = None, root: Path = Path("/")) -> Target:
    """Find out what this machine is.

    Args:
        threads: How many threads the code may use; by default ``OMP_NUM_THREADS``, else one a core.
        machine: What the system calls its architecture.
        root: Where the system's tables begin; another one is for tests.
    """
    reported = (machine or platform.machine()).lower()
    architecture = _ARCHITECTURES.get(reported)
    flags = cpu_flags(root)
    features = frozenset(
        feature
        for feature, facts in _FACTS.items()
        if facts.architecture == architecture and _has(feature, facts, flags)
    )
    cpus = available_cpus()
    found = find_openmp()
    return Target(
        name=architecture.value if architecture else reported,
        features=features,
        threads=_require_threads(threads) or _default_threads(cpus, root),
        vector_bits=_vector_bits(features, root),
        caches=cpu_caches(cpus, root=root),
        openmp=found.detail if found else None,
        cores=physical_cores(cpus, root),
    )


def override(
    target: Target, *, name: str | None = None, feature: str | None = None, threads: int | None = None
) -> Target:
    """Give ``target`` with what is asked for in place of what was found.

    Args:
        target: What was found.
        name: Another architecture; it has no features but the one that ``feature`` names.
        feature: The only feature, with what it implies; ``none`` for the architecture alone.
        threads: How many threads the code may use.

    Raises:
        UsageError: a name that there is none of, or a feature of another architecture.
    """
    if name is not None and name != target.name:
        architecture = _named_architecture(name)
        target = replace(target, name=architecture.value, features=frozenset(), vector_bits=_BASE_VECTOR_BITS)
    if feature is not None:
        features = _with_implied(feature, target.name)
        target = replace(target, features=features, vector_bits=_widest(features))
    if threads is not None:
        target = replace(target, threads=_require_threads(threads) or 1)
    return target


def require_here(target: Target, here: Target | None = None) -> None:
    """Refuse to make code that this machine cannot run.

    Raises:
        UnavailableError: another architecture, or a feature that this processor lacks.
    """
    here = here or detect()
    if target.name != here.name:
        raise UnavailableError(
            f"target {target.name}: this machine is {here.name}; its schedules can be listed and explained"
            " here, and run there"
        )
    if missing := [each for each in target.preference if each not in here.features]:
        had = ", ".join(here.preference) or "none"
        raise UnavailableError(
            f"feature {missing[0]}: this processor does not have it; it has {had}. Leave --feature out to use those"
        )


def _has(feature: Feature, facts: _Facts, flags: frozenset[str]) -> bool:
    # NEON is part of the architecture: it is there also where the system lists nothing (macOS)
    if feature is Feature.NEON:
        return True
    needed = facts.flags.union(*(_FACTS[each].flags for each in facts.implies if each is not Feature.NEON))
    return needed <= flags


def _vector_bits(features: Iterable[Feature], root: Path) -> int:
    features = frozenset(features)
    if Feature.SVE in features:
        try:
            text = (root / "proc/sys/abi/sve_default_vector_length").read_text(encoding="ascii").strip()
        except OSError:
            text = ""
        if text.isdecimal() and int(text) >= _BASE_VECTOR_BITS // 8:
            return 8 * int(text)
    return _widest(features)


def _widest(features: Iterable[Feature]) -> int:
    return max((_FACTS[each].vector_bits for each in features), default=0) or _BASE_VECTOR_BITS


def _default_threads(cpus: tuple[int, ...], root: Path) -> int:
    told = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(told) if told.isdecimal() and int(told) > 0 else physical_cores(cpus, root)


def _require_threads(threads: int | None) -> int | None:
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise UsageError(f"threads={threads!r}: give a whole number of at least 1")
    return threads


def _named_architecture(name: str) -> Architecture:
    found = _ARCHITECTURES.get(name.lower())
    if found is None:
        hint = suggestion(name, list(Architecture), there_are="targets")
        raise UsageError(f"target {name!r} is not known; {hint}")
    return found


def _with_implied(text: str, architecture: str) -> frozenset[Feature]:
    if text.lower() == "none":
        return frozenset()
    feature = _named_feature(text)
    facts = _FACTS[feature]
    if facts.architecture != architecture:
        known = [each for each in _PREFERENCE if _FACTS[each].architecture == architecture]
        hint = suggestion(text, known, there_are=f"features of {architecture}")
        raise UsageError(
            f"feature {text!r} belongs to {facts.architecture}, and the target is {architecture}; {hint}"
        )
    return frozenset((feature, *facts.implies))


def _named_feature(text: str) -> Feature:
    """Read a feature's name, or that of one of a family's instruction sets: ``avx512f`` is ``avx512``."""
    name = text.lower().replace("-", "_")
    for feature in _PREFERENCE:  # the special ones first: avx512_bf16 is no other avx512
        if name == feature or name in {each.replace("-", "_") for each in _FACTS[feature].flags}:
            return feature
    if name == "avx512bf16":
        return Feature.AVX512_BF16
    for family in (Feature.AVX512, Feature.AMX, Feature.SVE):
        if name.startswith(family):
            return family
    hint = suggestion(text, [*_PREFERENCE, "none"], there_are="features")
    raise UsageError(f"feature {text!r} is not known; {hint}")
