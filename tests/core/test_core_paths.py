from pathlib import Path

import pytest

from kernelwright.core.errors import UsageError
from kernelwright.core.paths import require_writable


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/proc/x.py", "its folder is not writable"),
        ("/proc/self/none/x.py", "no folder /proc/self/none"),
        ("/proc", "it is a folder"),
    ],
)
def test_where_no_file_can_be_the_option_is_named(path: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        require_writable(Path(path), "--out")
    assert caught.value.next == "choose a file in a writable folder: --out FILE"


def test_a_place_that_is_fine_stays_as_it_was(tmp_path: Path) -> None:
    require_writable(tmp_path / "x.py", "--out")
    assert not list(tmp_path.iterdir())
