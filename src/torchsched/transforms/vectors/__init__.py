"""Structured operations as loops over vectors: read into nests, grouped, planned and written again.

``accesses``, ``nests``, ``grouping`` and ``plans`` are numbers only and decide; ``reading`` and ``bodies`` look at
MLIR; the others write it, from the outside in: ``kernels`` (threads and rows), ``tiles`` (the loops of one stage),
``lanes`` (what an iteration computes), ``loads``, ``functions`` and ``combining``.
"""
