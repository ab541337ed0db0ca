"""What the README shows is what the program prints."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))

from table import table  # noqa: E402


def test_the_tables_of_the_readme_are_those_of_the_golden_output() -> None:
    golden = (ROOT / "tests" / "golden" / "analyze-n2048-d64.txt").read_text().splitlines()
    readme = (ROOT / "README.md").read_text().splitlines()
    start = readme.index("    $ roofline analyze --n 2048 --d 64")
    end = next(i for i in range(start, len(readme)) if readme[i].startswith("A second table"))
    shown = [line.removeprefix("    ") for line in readme[start + 1 : end] if line.strip()]
    assert len(shown) > 15
    assert [line for line in shown if line not in golden] == []


@pytest.mark.parametrize(
    ("run", "rows"), [("default-with-peers.jsonl", 27), ("full-with-peers.jsonl", 106)], ids=["default", "full"]
)
def test_the_tables_of_the_h200_are_those_of_the_stored_runs(run: str, rows: int) -> None:
    lines = table(ROOT / "docs" / "results" / "h200" / run)
    assert len(lines) == rows + 2
    assert "\n".join(["", *lines, ""]) in (ROOT / "README.md").read_text()


def test_the_two_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"    make {target}" in readme
        assert f"\n{target}: " in makefile


def test_no_placeholder_is_left() -> None:
    assert "@@" not in (ROOT / "README.md").read_text()
