"""Convolutions as loops: recognised, cut by the phases of a transposed one, packed, and summed up in registers."""
