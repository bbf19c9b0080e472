"""Other people's implementations, each adapted to the inputs of one of our ops.

An adapter is a function that returns a callable, or an ``Unavailable`` with the reason. It imports its library when
it is called, so that collecting and running without the library works.
"""
