from __future__ import annotations

import inspect
import re

import pytest

from bsprof import errors
from bsprof.cli.exits import Exit, exit_status
from bsprof.errors import BsprofError, ProfileTooNew, UsageError

CLASSES = [
    c
    for c in vars(errors).values()
    if inspect.isclass(c) and issubclass(c, BsprofError) and c is not BsprofError
]


def test_an_error_tells_three_things():
    error = BsprofError("cannot do it", found="a wall", next_step="climb")
    assert str(error) == "cannot do it\nfound: a wall\nnext: climb"
    assert (error.doing, error.found, error.next_step) == ("cannot do it", "a wall", "climb")
    assert str(BsprofError("cannot")) == "cannot"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: c.__name__)
def test_the_tree_in_the_docstring_is_the_tree_and_has_its_exit_status(kind):
    text = errors.__doc__ or ""
    line = next(line for line in text.splitlines() if f"-- {kind.__name__}" in line)
    documented = re.search(r"(?:exit status )?(\d)\)", line)
    assert documented is not None
    assert exit_status(kind("x")) == int(documented[1])
    depth = line.index("--") // 4
    assert depth == len([c for c in kind.__mro__ if issubclass(c, BsprofError)]) - 1


def test_every_documented_error_exists():
    documented = re.findall(r"-- (\w+)", errors.__doc__ or "")
    assert sorted(documented) == sorted(c.__name__ for c in CLASSES)


def test_a_class_outside_the_table_is_a_bug_and_a_subclass_is_its_parent():
    class Special(UsageError):
        pass

    assert exit_status(BsprofError("x")) is Exit.INTERNAL
    assert exit_status(Special("x")) is Exit.USAGE
    assert exit_status(ProfileTooNew("x")) is Exit.INPUT
