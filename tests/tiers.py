"""The tiers of the tests: `make test` runs the fast one, `make test-all` what is marked `slow`."""

import pytest


def fast_first(count, cases):
    """Cases of a parametrised test: so many in the fast tier, the others in the slow one."""
    return fast_where(range(count), cases)


def fast_where(places, cases):
    """Cases of a parametrised test: those at these places in the fast tier, the others in the slow one."""
    return [case if at in places else slow(case) for at, case in enumerate(cases)]


def slow(case):
    """A case, or the tuple of its arguments, in the slow tier."""
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.slow])
    return (
        pytest.param(*case, marks=pytest.mark.slow)
        if isinstance(case, tuple)
        else pytest.param(case, marks=pytest.mark.slow)
    )
