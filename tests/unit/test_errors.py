"""The classes of errors, as those see them who catch them."""

from __future__ import annotations

import pytest

import kernelmark


def test_an_error_of_use_is_a_value_error_as_users_of_python_expect() -> None:
    with pytest.raises(ValueError, match="funcs"):
        kernelmark.bench({})
