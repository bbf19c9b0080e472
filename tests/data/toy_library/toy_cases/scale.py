import torch
from kernelmark import Entry
from kernelmark.verify import Exact


class ScaleWorkload:
    def __init__(self, call):
        self.call = call

    @classmethod
    def from_call(cls, call):
        return cls(call)

    def gen_inputs(self):
        return tuple(
            torch.randn(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in self.call.tensors.values()
        )

    def reference(self, x):
        return x * self.call.params["factor"]

    def verification(self):
        return Exact()


class AddWorkload(ScaleWorkload):
    def reference(self, x, y):
        return x + y


ENTRIES = {"ScaleOp": Entry(ScaleWorkload.from_call), "AddOp": Entry(AddWorkload.from_call)}
