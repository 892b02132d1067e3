"""Words of ours that no engineer of the field would guess stay out of source, messages and documentation, and every
public name is documented. `python tests/test_vocabulary.py [FOLDER...]` lists what is left."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "kernelwright"
SAMPLES = PACKAGE / "redteam" / "samples"
RETIRED = {
    "anybody": "name the process, the caller, the code",
    "arm arms": "variant",
    "asked asks asker asking": "request, call, check, require",
    "beside besides": "next to, compared with, in addition to",
    "born bear": "fork, start",
    "cage caged encage uncaged": "isolation",
    "calm": "quiet, exclusive",
    "climb climbs climbed": "run the ladder; increase",
    "crew": "worker pool",
    "dealt": "distributed",
    "deed": "action, function",
    "dishonest honest honestly": "cheat, legitimate; correct",
    "endless": "unbounded",
    "everybody everyone": "all variants, all callers",
    "fenced": "guarded by a redzone",
    "foreseen": "predicted",
    "gave": "returned",
    "glance": "snapshot; quick timing",
    "hasty": "quick",
    "hear hears heard": "receive, read",
    "house": "package",
    "letter letters": "status, message; characters",
    "liar liars lie lies lying": "is stored, is located, is laid out; false time",
    "likeliest": "most promising",
    "manner manners": "options, mode",
    "melt melts": "merge",
    "mend mends mended mending": "fix",
    "misfit misfits": "unsupported",
    "neighbour neighbours neighbouring": "adjacent; other process on the machine",
    "nobody": "nothing, no caller",
    "nursery nurseries": "fork server",
    "people person persons": "user",
    "room rooms": "package; space, width",
    "said unsaid says": "returned, reported, states",
    "seam seams": "boundary",
    "settle settles settled": "synchronize, warm up, decide",
    "slab slabs": "k-tile",
    "somebody someone": "the user, another process",
    "spoilt": "invalid",
    "stranger strangers": "untrusted code",
    "surroundings": "process hooks",
    "sweep sweeps swept sweeping": "pass over the row; kill descendants",
    "tell tells telling told": "report, send, publish",
    "torn": "split",
    "whoever whom": "the caller",
}
_WORDS = {word: hint for words, hint in RETIRED.items() for word in words.split()}
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SUFFIXES = {".py", ".j2", ".cu", ".cuh", ".cpp", ".h", ".md"}


def retired_words(text: str) -> Iterator[tuple[int, str]]:
    """Line and word, identifiers split into their parts."""
    for number, line in enumerate(text.splitlines(), 1):
        for word in re.findall(r"[a-z]+", _CAMEL.sub(" ", line.replace("__ARM_FEATURE", "")).lower()):
            if word in _WORDS:
                yield number, word


def documents() -> list[Path]:
    """Source, templates, device code and documentation; of the samples of the corpus, what they say of themselves."""
    found = [path for path in PACKAGE.rglob("*") if path.suffix in _SUFFIXES]
    return [*found, *(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def text_of(path: Path) -> str:
    text = path.read_text("utf-8")
    return text[:1500].partition("\n\n")[0] if path.is_relative_to(SAMPLES) else text


def undocumented(path: Path) -> Iterator[tuple[int, str]]:
    """Public functions and classes without a docstring."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in tree.body:
        public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        if public and not ast.get_docstring(node):
            yield node.lineno, node.name


def test_no_retired_word():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word} (say {_WORDS[word]})"
        for path in documents()
        for line, word in retired_words(text_of(path))
    ]
    assert not found, "\n".join(found[:50])


def test_every_public_name_is_documented():
    modules = [path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(SAMPLES)]
    found = [f"{path.relative_to(ROOT)}:{line}: {name}" for path in modules for line, name in undocumented(path)]
    assert not found, "\n".join(found[:50])


if __name__ == "__main__":
    folders = [Path(one).resolve() for one in sys.argv[1:]] or [ROOT]
    for path in documents():
        if any(path.is_relative_to(folder) for folder in folders):
            for line, word in retired_words(text_of(path)):
                print(f"{path.relative_to(ROOT)}:{line}: {word} (say {_WORDS[word]})")
            if path.suffix == ".py" and not path.is_relative_to(SAMPLES):
                for line, name in undocumented(path):
                    print(f"{path.relative_to(ROOT)}:{line}: {name} has no docstring")
