"""The folder of what torch.compile compiles for one program."""

import os

from kernelwright.compiler.inductor_cache import VARIABLE, inductor_cache, using_inductor_cache


def test_a_program_has_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("1\n")
    other.write_text("2\n")
    assert inductor_cache(str(one)) == inductor_cache(f"{one}:Model") != inductor_cache(str(other))


def test_torch_uses_it_within_the_block(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    cache = inductor_cache("package.module")
    for before in ("/somewhere", None):
        monkeypatch.setenv(VARIABLE, before) if before else monkeypatch.delenv(VARIABLE, raising=False)
        with using_inductor_cache(cache):
            assert os.environ[VARIABLE] == str(cache)
        assert os.environ.get(VARIABLE) == before
