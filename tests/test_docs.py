"""Docs that list what the code lists must list the same."""

import re
from pathlib import Path

from kernelwright.core.verdict import REJECTIONS

ROOT = Path(__file__).resolve().parents[1]


def test_every_rejection_code_is_documented():
    listed = re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs" / "verdicts.md").read_text(), re.MULTILINE)
    assert tuple(listed) == REJECTIONS


def test_every_link_between_docs_leads_somewhere():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_make_target_is_explained():
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)[0].split())
    assert targets == set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
