"""Errors of compilers, with the line of the user's that caused them."""

import pytest

from kernelwright.toolchain.compiler_errors import parse_compile_error

MACRO = """\
header.h:82:43: error: cannot convert 'int' to 'float'
{own}:3:10: note: in expansion of macro 'shuffle'
"""
SHUFFLE = "{own}:3: error: cannot convert 'int' to 'float' (in macro shuffle)"
TEMPLATE = """\
header.h: In instantiation of 'T update(T*)':
header.h:193:1:   required from 'T add(T*)'
{own}:4:18:   required from here
header.h:143:32: error: 4 or 8 bytes
header.h:143:32: note: this is false
header.h:144:14: error: casts away qualifiers
"""
CONSEQUENCE = """\
exports:1:1: error: 'k' was not declared
{own}:7:1: error: expected ';'
"""


@pytest.mark.parametrize(
    ("stderr", "lines", "place"),
    [
        (MACRO, [SHUFFLE], 3),
        (TEMPLATE, ["{own}:4: error: 4 or 8 bytes", "{own}:4: error: casts away qualifiers"], 4),
        (CONSEQUENCE, ["{own}:7:1: error: expected ';'"], 7),
        (MACRO + CONSEQUENCE, [SHUFFLE, "{own}:7:1: error: expected ';'"], 3),
    ],
)
def test_the_users_line_is_blamed(tmp_path, stderr, lines, place):
    own = str(tmp_path / "mine.cu")
    fault = parse_compile_error(stderr.format(own=own), own)
    assert fault.message.splitlines()[1:] == [line.format(own=own) for line in lines]
    assert fault.where == f"{own}:{place}"


def test_an_error_that_no_line_of_the_user_explains_is_shown_as_it_is(tmp_path):
    own = str(tmp_path / "mine.cu")
    fault = parse_compile_error("header.h:1:1: error: broken\n", own)
    assert (fault.message.splitlines()[1], fault.where) == ("header.h:1:1: error: broken", own)


def test_a_file_beside_the_source_is_the_users_as_well(tmp_path):
    beside = tmp_path / "beside.cuh"
    beside.write_text("int\n")
    fault = parse_compile_error(f"{beside}:1:4: error: expected ';'\n", str(tmp_path / "mine.cu"))
    assert fault.where == f"{beside}:1"


def test_a_compiler_that_only_crashed_is_quoted():
    fault = parse_compile_error("killed\n", "mine.cu")
    assert (fault.message.splitlines()[1], fault.where) == ("killed", "mine.cu")
