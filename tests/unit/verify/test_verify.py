import kernelmark.verify


def test_every_public_name_is_there_and_listed():
    for name in kernelmark.verify.__all__:
        assert getattr(kernelmark.verify, name) is not None
    assert dir(kernelmark.verify) == sorted(kernelmark.verify.__all__)


def test_functions_are_not_hidden_by_modules():
    for name in ("poison", "compare", "check_outputs", "run_controls"):
        assert callable(getattr(kernelmark.verify, name))
