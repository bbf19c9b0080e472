"""What a schedule's transform steps call: one module for each family of operations.

Each public function is ``function(module, *, target, **parameters) -> None``, rewrites the module in place, and
leaves alone what it does not match.
"""
