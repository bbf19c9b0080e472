"""Products of matrices as loops: recognised, cut into blocks, packed, and multiplied in registers."""
