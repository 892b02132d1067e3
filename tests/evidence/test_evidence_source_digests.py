"""What changes the digest of a source, and what does not."""

import pytest

from kernelwright.evidence.source_digests import (
    PACKAGE,
    combined_digest,
    import_closure,
    normalize_python,
    source_digest,
)

FUNCTION = '''
def softmax(x, dim):
    """Doc."""
    largest = x.max(dim)  # why
    shifted = x - largest
    powers = [value.exp() for value in shifted]

    def total(items):
        result = 0
        for item in items:
            result += item
        return result, powers

    return total(powers)
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("largest", "row_max"),
        ("powers", "exp_x"),
        ("value", "v"),
        ("result", "acc"),
        ("total", "sum_of"),
        ("# why", "# because"),
        ('"""Doc."""', '"""Other words."""'),
    ],
)
def test_names_of_local_variables_comments_and_docstrings_do_not_count(old, new):
    changed = FUNCTION.replace(old, new)
    assert changed != FUNCTION
    assert normalize_python(changed) == normalize_python(FUNCTION)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x - largest", "largest - x"),
        ("value.exp()", "value.exp2()"),
        ("result = 0", "result = 1"),
        ("(x, dim)", "(x, axis)"),
        ("x - largest", "x - shifted"),
        ("def softmax", "def hardmax"),
        ("return result, powers", "return powers, result"),
    ],
)
def test_arithmetic_parameters_and_what_a_module_offers_count(old, new):
    changed = FUNCTION.replace(old, new).replace("max(dim)", "max(axis)" if "axis" in new else "max(dim)")
    assert normalize_python(changed) != normalize_python(FUNCTION)


def test_two_locals_that_trade_places_are_another_program():
    one = "def f(x):\n    a = x.sin()\n    b = x.cos()\n    return a / b\n"
    assert normalize_python(one) == normalize_python(one.replace("a", "p").replace("pef", "def").replace("p", "q"))
    assert normalize_python(one) != normalize_python(one.replace("a / b", "b / a"))


def test_a_parameter_that_hides_a_local_is_not_another_local():
    text = "def f():\n    a = 1\n    b = 2\n    def g(a):\n        c = 3\n        return {}\n    return g\n"
    assert normalize_python(text.format("b")) != normalize_python(text.format("c"))


def test_globals_stay_what_they_are():
    one = "def f(x):\n    global held\n    held = x\n"
    assert normalize_python(one) != normalize_python(one.replace("held", "kept"))
    assert normalize_python("def f():\n    import math as m\n    return m\n") != normalize_python(
        "def f():\n    import cmath as m\n    return m\n"
    )


def test_one_definition_of_a_module():
    text = "A = 1\nclass C:\n    def f(self):\n        return A\n    def g(self):\n        return 2\n"
    assert normalize_python(text, "C.f") == normalize_python(text.replace("return 2", "return 3"), "C.f")
    assert normalize_python(text, "C") != normalize_python(text.replace("return 2", "return 3"), "C")
    with pytest.raises(KeyError):
        normalize_python(text, "C.h")


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def test_cpp_by_its_tokens_and_its_header(tmp_path):
    one = write(tmp_path, "a.cpp", "// kw: entry f\n// a remark\nint f() { return 1; }\n")
    other = write(tmp_path, "b.cpp", "// kw: entry f\nint f() {\n  return 1; /* one */ }\n")
    changed = write(tmp_path, "c.cpp", "// kw: entry g\nint f() { return 1; }\n")
    assert source_digest(one) == source_digest(other) != source_digest(changed)


def test_json_by_its_content(tmp_path):
    one = write(tmp_path, "a.json", '{"a": 1, "url": "https://x/*y*/"}')
    other = write(tmp_path, "b.json", '{\n  "url": "https://x/*y*/",\n  "a": 1\n}\n')
    changed = write(tmp_path, "c.json", '{"a": 1, "url": "https://z/*y*/"}')
    assert source_digest(one) == source_digest(other) != source_digest(changed)


def test_where_a_module_lies_does_not_count(tmp_path):
    one = write(tmp_path, "a.py", "from kernelwright.verification.transport.client import Line\n")
    other = write(tmp_path, "b.py", "from kernelwright.verification.client import Line\n")
    assert combined_digest([one]) == combined_digest([other])
    assert combined_digest([one]) != combined_digest(
        [write(tmp_path, "c.py", "from kernelwright.verification.transport.client import Other\n")]
    )


def test_a_closure_follows_imports_inside_functions_and_holds_data():
    closure = import_closure("kernelwright.diagnosis.why", leave_out=("report/",))
    assert {PACKAGE / "diagnosis" / "compiled.py", PACKAGE / "machines" / "specs.json"} <= set(closure)
    assert not any("report" in path.parts for path in closure)
