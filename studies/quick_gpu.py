"""The quick path on a CUDA device with every timer that works there: a first look, not a measurement."""

from __future__ import annotations

import sys
import traceback

import torch

import kernelmark
from kernelmark.harness import SessionOptions

x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
for timer in sys.argv[1:] or ["device_events", "cupti"]:
    print("==", timer)
    try:
        found = kernelmark.compare(
            {
                "mine": lambda x: torch.softmax(x, -1),
                "torch": lambda x: torch.softmax(x, -1),
                "add": kernelmark.Implementation(run=lambda x: x + x, noncomparable_reason="another op"),
            },
            inputs=(x,),
            reference=lambda x: torch.softmax(x, -1),
            verification=kernelmark.verify.Exact(kernelmark.verify.Normalised(2e-2))
            if hasattr(kernelmark, "verify")
            else None,
            options=SessionOptions(timer=timer),
        )
        print(found)
    except Exception:
        traceback.print_exc()
