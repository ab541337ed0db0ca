"""Make docs/gallery from the runs stored in docs/results: a page and a picture of each, and an index (``make gallery``)."""

import sys
from pathlib import Path

from roofline.errors import InputError, MissingError
from roofline.records import read
from roofline.reports.figure import write_image
from roofline.reports.html import page
from roofline.reports.view import View, view_of_runs

DOCS = Path(__file__).parent
RESULTS = DOCS / "results"
GALLERY = DOCS / "gallery"


def main() -> int:
    """Write the gallery; exit code 3 where no run is stored, or no browser draws the pictures."""
    files = sorted(RESULTS.glob("**/*.jsonl"))
    if not files:
        sys.stderr.write(f"no stored runs: {RESULTS} has no .jsonl file, so there is nothing to show\n")
        return 3
    GALLERY.mkdir(exist_ok=True)
    parts = [
        "# Gallery",
        "",
        "Made by `make gallery` from the runs in docs/results. Each page is one file of 5 MB that opens from disk;",
        "the repository keeps the pictures.",
        "",
    ]
    for path in files:
        try:
            shown = view_of_runs([read(path)])
            name = "-".join(path.relative_to(RESULTS).with_suffix("").parts)
            write_image(shown, GALLERY / f"{name}.png")
        except (InputError, MissingError) as error:
            sys.stderr.write(f"{error}\n")
            return error.exit_code
        (GALLERY / f"{name}.html").write_text(page(shown), encoding="utf-8")
        parts += entry(name, path, shown)
    (GALLERY / "README.md").write_text("\n".join(parts), encoding="utf-8")
    sys.stdout.write(f"wrote {len(files)} pages, pictures and an index to {GALLERY}\n")
    return 0


def entry(name: str, path: Path, shown: View) -> list[str]:
    """Return the lines of the index on one run."""
    source = shown.sources[0]
    stored = path.relative_to(RESULTS.parent)
    return [
        f"## {name} ({source.device})",
        "",
        f"[Run](../{stored}). The page, {name}.html, is written beside this index by `make gallery`, or anywhere by",
        f"`roofline report docs/{stored} -o {name}.html`.",
        "",
        f"![Roofline of {name}]({name}.png)",
        "",
        *(f"- {sentence}" for sentence in shown.summary),
        "",
    ]


if __name__ == "__main__":
    sys.exit(main())
