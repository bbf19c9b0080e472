import kernelmark.verify
from workloads import numerics


def test_every_public_name_is_there_and_listed():
    for name in kernelmark.verify.__all__:
        assert getattr(kernelmark.verify, name) is not None
    assert set(dir(kernelmark.verify)) >= set(kernelmark.verify.__all__)


def test_functions_are_not_hidden_by_modules():
    for name in ("poison", "check_outputs", "run_controls"):
        assert callable(getattr(kernelmark.verify, name))


def test_the_op_library_declares_with_the_same_objects():
    assert {"Custom", "Exact", "Normalised", "Partial", "Reduction"} < set(numerics.__all__)
    for name in numerics.__all__:
        assert getattr(numerics, name) is getattr(kernelmark.verify, name)
