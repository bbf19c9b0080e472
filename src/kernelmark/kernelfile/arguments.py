"""What ``solve`` is given: its signature from the source, its scalars from the command line."""

from __future__ import annotations

from typing import Any

from kernelmark.errors import UsageError
from kernelmark.kernelfile.request import Request
from kernelmark.kernelfile.signature import Signature, parse_signature

__all__ = ["scalars_of", "signature_of"]


def signature_of(request: Request) -> Signature:
    """Parse the signature of the request's source."""
    source = request.solution.read_text(encoding="utf-8", errors="replace")
    return parse_signature(source, str(request.solution), plain_c=request.solution.suffix == ".c")


def scalars_of(request: Request, signature: Signature) -> dict[str, Any]:
    """Read the scalars of ``solve`` from the command line's values.

    Raises:
        UsageError: one is missing, of another type, or out of range, or a buffer is given a value.
    """
    for each in signature.pointers:
        if each.name in request.values:
            raise UsageError(
                f"--{each.name}={request.values[each.name]}: {each.name} is a buffer of solve(); what it holds is"
                f" drawn from --seed, or given by shapes() of {request.ref.name}"
            )
    missing = [each.name for each in signature.scalars if each.name not in request.values]
    if missing:
        raise UsageError(
            f"solve() takes {', '.join(missing)}, which the command line does not give: add"
            f" {' '.join(f'--{name}=VALUE' for name in missing)}"
        )
    return {each.name: each.type.parse(request.values[each.name], each.name) for each in signature.scalars}
