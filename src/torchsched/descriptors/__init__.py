"""Schedules as YAML descriptors: what is read, looked up, checked and explained.

Nothing here imports torch or torch-mlir but the check of pass names; nothing here runs a step.
"""

from torchsched.descriptors.loader import load_schedule
from torchsched.descriptors.lookup import SHIPPED, Listed, find_schedule, list_schedules
from torchsched.descriptors.parameters import Parameter, Value
from torchsched.descriptors.schedule import Schedule
from torchsched.descriptors.steps import PassStep, Step, TransformFileStep, TransformStep

__all__ = [
    "SHIPPED",
    "Listed",
    "Parameter",
    "PassStep",
    "Schedule",
    "Step",
    "TransformFileStep",
    "TransformStep",
    "Value",
    "find_schedule",
    "list_schedules",
    "load_schedule",
]
