"""Where a report goes: a page, images, tables, or the terminal. No file is overwritten unasked."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.errors import InputError, MissingError
from roofline.reports import output, summary, view
from roofline.reports.output import Target

if TYPE_CHECKING:
    from roofline.records import Run

IMAGES = {"--png": ".png", "--svg": ".svg"}


def page_target(path: Path, option: str, force: bool, suffixes: Sequence[str] = (".html", ".htm")) -> Path:
    """Return ``path``; raise ``InputError`` where it does not end as it should, is a folder, or would be overwritten."""
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{option} {path}: expected a name that ends in {suffixes[0]}")
    if path.is_dir():
        raise InputError(f"{option} {path}: is a folder")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: there is no folder {path.parent}")
    if path.exists() and not force:
        raise InputError(f"{option} {path}: exists already; --force overwrites it")
    return path


def write_page(shown: view.View, path: Path) -> None:
    """Write the page of ``shown``, whole or not at all."""
    from roofline.reports.html import page

    _write(page(shown), path)


def write_model_page(document: Mapping[str, Any], path: Path) -> None:
    """Write the page of a model's analysis, whole or not at all."""
    from roofline.reports.modelpage import model_page

    _write(model_page(document), path)


def _write(text: str, path: Path) -> None:
    with Target("table", path).open() as stream:
        stream.write(text)
    output.print_note(f"wrote {path}")


def write_report(
    runs: Sequence["Run"], as_json: bool, as_csv: bool, out: Path | None, images: dict[str, Path | None], force: bool
) -> None:
    """Write the report of ``runs``: a page where ``out`` ends in .html, else a table, JSON or CSV; images beside it."""
    wanted = {
        option: page_target(path, option, force, (IMAGES[option],)) for option, path in images.items() if path is not None
    }
    is_page = out is not None and out.suffix.lower() in (".html", ".htm") and not as_json and not as_csv
    to = None if is_page else output.target(as_json, as_csv, out, force, also=(".html",))
    if out is not None and is_page:
        page_target(out, "-o", force)
    shown = view.view_of_runs(runs)
    for source in shown.sources:
        for note in source.notes:
            output.print_note(note)
    if out is not None and to is None:
        write_page(shown, out)
    elif to is not None and (not wanted or as_json or as_csv or out is not None):
        document = view.to_dict(shown) if to.format != "table" else {}
        output.write(document, view.rows, lambda _, console: summary.render_view(shown, console), to)
    for path in wanted.values():
        from roofline.reports.figure import write_image

        write_image(shown, path)
        output.print_note(f"wrote {path}")


def write_validation(runs: Sequence["Run"], to: Target) -> None:
    """Write the errors of the predicted bytes; raise ``MissingError`` where no point was counted."""
    shown = view.view_of_runs(runs)
    if not any(row.estimate == "prediction" for row in shown.errors):
        raise MissingError(f"{shown.title}: no point has counted HBM bytes; expected a run of roofline measure with counters")
    document = summary.validation(shown)
    output.write(document, summary.validation_rows, lambda _, console: summary.render_validation(shown, console), to)
