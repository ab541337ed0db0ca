"""The command line: each command parses, makes one library call and hands the result to one renderer."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from roofline import __version__, analysis, options, profiles
from roofline.errors import InputError, MissingError, RooflineError
from roofline.options import Csv, Device, FlopName, Force, Given, Gpu, Json, Out, RoofName
from roofline.profiles.profile import Profile
from roofline.reports import output
from roofline.reports.encoding import fold_unknown

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="FLOPs and memory traffic of attention, predicted and measured, under your GPU's roofline.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"roofline {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback where something fails.")] = False,
) -> None:
    """Options before the command."""


@app.command()
@options.with_model_options
def analyze(
    given: Given,
    device: Device = "auto",
    gpu: Gpu = None,
    roof: RoofName = "datasheet",
    flop_convention: FlopName = "exact",
    plot: Annotated[bool, typer.Option("--plot", help="Draw the roofline too.", rich_help_panel="Output")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write the page too: one file.", rich_help_panel="Output")] = None,
    as_json: Json = False,
    as_csv: Csv = False,
    out: Out = None,
    force: Force = False,
) -> None:
    """Count FLOPs and bytes of attention in every form, or of a whole model, and say what binds each. Needs no GPU."""
    to, counted = output.target(as_json, as_csv, out, force), options.conventions(flop_convention, roof)
    profile, notes = _resolve(device, gpu, counted)
    if given["model"] is not None:
        options.refuse_with_model({"--plot": plot, "--flop-convention": flop_convention != "exact"})
        return _analyze_model(given, profile, counted, notes, to, _model_page(html, force))
    request, more = options.request(given, profile)
    results = analysis.analyze_all(request, profile, counted)
    document = analysis.document(results, profile, counted, [*notes, *more])
    from roofline.reports.terminal import render_analysis

    write_page = _page(html, force)
    output.write(document, output.analysis_rows, render_analysis, to)
    write_page(document)
    if plot:
        _plot(document, to)


@app.command()
@options.with_problem_options
def explain(
    given: Given,
    variant: Annotated[str, typer.Argument(help="naive, chunked, flash, split-kv, paged, mla or linear.")],
    device: Device = "auto",
    gpu: Gpu = None,
    roof: RoofName = "datasheet",
    flop_convention: FlopName = "exact",
    as_json: Json = False,
    as_csv: Csv = False,
    out: Out = None,
    force: Force = False,
) -> None:
    """Show every tensor's formula with the numbers put in, so that you can redo a count by hand."""
    if given["variants"] is not None:
        raise InputError("--variants contradicts the argument VARIANT, which names the variant to explain: leave it out")
    to, counted = output.target(as_json, as_csv, out, force), options.conventions(flop_convention, roof)
    profile, notes = _resolve(device, gpu, counted)
    from roofline.explain import explain_all, explanation_rows
    from roofline.reports.explanation import render_explanation

    with options.named("VARIANT", instead_of="--variants"):
        request, more = options.request({**given, "variants": variant}, profile)
        document = explain_all(request, profile, counted, [*notes, *more])
    output.write(document, explanation_rows, render_explanation, to)


@app.command()
@options.with_model_options
def sweep(
    given: Given,
    device: Device = "auto",
    gpu: Gpu = None,
    roof: RoofName = "datasheet",
    flop_convention: FlopName = "exact",
    as_json: Json = False,
    as_csv: Csv = False,
    out: Out = None,
    force: Force = False,
) -> None:
    """Analyze a grid: any size (--model: --n, --batch) takes 512,1k and ranges 1k:128k:x2 or 1k:8k:+1k. Rows are streamed."""
    from roofline.reports.stream import write_sweep
    from roofline.sweep import sweep as run

    to, counted = output.target(as_json, as_csv, out, force), options.conventions(flop_convention, roof)
    profile, notes = _resolve(device, gpu, counted)
    if given["model"] is not None:
        options.refuse_with_model({"--flop-convention": flop_convention != "exact"})
        return _sweep_model(given, profile, counted, notes, to)
    base, axes, more = options.request_axes(given, profile)
    for note in [*notes, *more]:
        output.print_note(note)
    write_sweep(run(base, axes, profile, counted), to)


@app.command()
def devices(
    name: Annotated[str | None, typer.Argument(help="Show one device, with the source of each value.")] = None,
    as_json: Json = False,
    as_csv: Csv = False,
    out: Out = None,
    force: Force = False,
) -> None:
    """List the device profiles, or the ceilings of one with their sources."""
    to = output.target(as_json, as_csv, out, force)
    from roofline.reports import catalogue

    names = profiles.names() if name is None else (name,)
    document = catalogue.document([profiles.resolve(each)[0] for each in names])
    output.write(document, catalogue.rows, catalogue.render_all if name is None else catalogue.render_one, to)


@app.command()
def models(as_json: Json = False, as_csv: Csv = False, out: Out = None, force: Force = False) -> None:
    """List the models that come with roofline, for `analyze --model NAME`."""
    to = output.target(as_json, as_csv, out, force)
    from roofline.models import load_model, shipped_models
    from roofline.reports import modellist

    document = modellist.document([load_model(name) for name in shipped_models()])
    output.write(document, modellist.rows, modellist.render, to)


@app.command()
@options.with_measure_options
def measure(
    given: Given,
    suite: Annotated[str | None, typer.Option("--suite", help="quick, default or full; problem options replace it.")] = None,
    peers: Annotated[str | None, typer.Option("--peers", help="all, or some of torch, fa3, flashinfer, flashmla, fla.")] = None,
    counters: Annotated[str, typer.Option("--counters", help="auto, ncu or off.")] = "auto",
    count_peers: Annotated[bool, typer.Option("--count-peers", help="Read the counters of peers too.")] = False,
    l2: Annotated[str, typer.Option("--l2", help="cold (inputs rotate) or warm.")] = "cold",
    resume: Annotated[Path | None, typer.Option("--resume", help="Go on with a run file.")] = None,
    gpu: Gpu = None,
    as_json: Json = False,
    as_csv: Csv = False,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="The run file, .jsonl.", rich_help_panel="Output")] = None,
    force: Force = False,
) -> None:
    """Run the kernels on this GPU: predicted beside measured, every point saved as it is made. Calibrates first if needed."""
    from roofline.measure.session import measure as run
    from roofline.reports import measuring, progress

    to = output.target(as_json, as_csv, None, force)
    wanted, notes = options.measure_options(given, suite, peers, counters, l2)
    chosen = dataclasses.replace(wanted, count_peers=count_peers, gpu=gpu, output=out, resume=resume, force=force)
    for note in notes:
        output.print_note(note)
    with progress.drawn() as listener:
        done = run(chosen, listener)
    records = [record.model_dump(mode="json") for record in done.records]
    output.write(
        measuring.run_document(str(done.path), records, list(done.notes)), measuring.run_rows, measuring.render_run, to
    )
    raise typer.Exit(130 if done.interrupted else 0)


@app.command()
def calibrate(gpu: Gpu = None, as_json: Json = False, as_csv: Csv = False, out: Out = None, force: Force = False) -> None:
    """Measure this GPU's own ceilings: memory, L2, matrix products, exponentials, launches; kept beside its data sheet."""
    from roofline.measure.calibrate import calibrate as run
    from roofline.reports import measuring

    to = output.target(as_json, as_csv, out, force)
    document = measuring.calibration_document(run(gpu, output.print_note))
    output.write(document, measuring.calibration_rows, measuring.render_calibration, to)


@app.command()
def doctor(gpu: Gpu = None, as_json: Json = False, as_csv: Csv = False, out: Out = None, force: Force = False) -> None:
    """Say what is here (GPU, driver, torch, triton, ncu, profile), what works, and what to do about what does not."""
    from roofline.measure.doctor import doctor as examine
    from roofline.reports import measuring

    to = output.target(as_json, as_csv, out, force)
    document = measuring.findings_document(examine(gpu))
    output.write(document, measuring.findings_rows, measuring.render_findings, to)


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="A run file.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Another run file.")],
    fail_on: Annotated[str | None, typer.Option("--fail-on", help="worse: exit code 1 if a point is worse or missing.")] = None,
    as_json: Json = False,
    as_csv: Csv = False,
    out: Out = None,
    force: Force = False,
) -> None:
    """Compare two runs point by point: better, worse, or cannot tell from the samples."""
    from roofline.compare import compare as judge
    from roofline.records import read
    from roofline.reports import measuring

    to, comparison = output.target(as_json, as_csv, out, force), judge(read(before), read(after))
    code = comparison.exit_code(fail_on)
    document = measuring.comparison_document(comparison, str(before), str(after))
    output.write(document, measuring.comparison_rows, measuring.render_comparison, to)
    raise typer.Exit(code)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run files of roofline measure; several share one report.")],
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a file: .html, .json, .csv or .txt.", rich_help_panel="Output")
    ] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Write the roofline as PNG.", rich_help_panel="Output")] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write the roofline as SVG.", rich_help_panel="Output")] = None,
    as_json: Json = False,
    as_csv: Csv = False,
    force: Force = False,
) -> None:
    """Show where the points of a run stand under the roof, as one HTML file (-o FILE.html) or in the terminal."""
    from roofline.records import read
    from roofline.reports.report import write_report

    write_report([read(run) for run in runs], as_json, as_csv, out, {"--png": png, "--svg": svg}, force)


@app.command()
def validate(
    runs: Annotated[list[Path], typer.Argument(help="Run files with counters.")],
    as_json: Json = False,
    as_csv: Csv = False,
    out: Out = None,
    force: Force = False,
) -> None:
    """Hold the predicted bytes of a run against its hardware counters."""
    to = output.target(as_json, as_csv, out, force)
    from roofline.records import read
    from roofline.reports.report import write_validation

    write_validation([read(run) for run in runs], to)


def _analyze_model(
    given: Given,
    profile: Profile,
    counted: analysis.Conventions,
    notes: list[str],
    to: output.Target,
    write_page: Callable[[dict[str, Any]], None],
) -> None:
    from roofline.models import analyze_model, document, load_model, rows
    from roofline.reports.model import render_model

    asked, more = options.model_request(given, profile)
    spec, (n,), (batch,) = load_model(asked.name), asked.lengths, asked.batches
    result = analyze_model(spec, profile, n, batch, roof=counted.roof, **asked.settings)
    shown = document(result, [*notes, *more])
    output.write(shown, rows, render_model, to)
    write_page(shown)


def _sweep_model(given: Given, profile: Profile, counted: analysis.Conventions, notes: list[str], to: output.Target) -> None:
    from roofline.models import load_model, sweep_model
    from roofline.reports.stream import write_model_sweep

    asked, more = options.model_request(given, profile, swept=True)
    spec = load_model(asked.name)
    for note in [*notes, *more, *spec.notes]:
        output.print_note(note)
    results = sweep_model(spec, profile, asked.lengths, asked.batches, roof=counted.roof, **asked.settings)
    write_model_sweep(results, to)


def _resolve(device: str, gpu: str | None, counted: analysis.Conventions) -> tuple[Profile, list[str]]:
    profile, note = profiles.resolve(device, gpu, roof=counted.roof)
    notes = [note] if note else []
    if counted.roof == "measured":
        if not profile.measured:
            raise MissingError(
                f"--roof measured: nothing was measured on {profile.name}; `roofline calibrate` measures this GPU"
            )
        if lacking := profile.not_measured():
            notes.append(f"not measured, taken from the data sheet: {', '.join(lacking)}")
    return profile, notes


def _page(path: Path | None, force: bool) -> Callable[[dict[str, Any]], None]:
    """Check ``--html`` before anything is printed, and return what writes it."""
    if path is None:
        return lambda document: None
    from roofline.reports.report import page_target, write_page
    from roofline.reports.view import view_of_document

    checked = page_target(path, "--html", force)
    return lambda document: write_page(view_of_document(document), checked)


def _model_page(path: Path | None, force: bool) -> Callable[[dict[str, Any]], None]:
    """The same for a whole model."""
    if path is None:
        return lambda document: None
    from roofline.reports.report import page_target, write_model_page

    checked = page_target(path, "--html", force)
    return lambda document: write_model_page(document, checked)


def _plot(document: dict[str, Any], to: output.Target) -> None:
    from roofline.reports.plot import draw

    with contextlib.redirect_stdout(sys.stderr if to.format != "table" else sys.stdout):
        draw(document)


def main() -> None:
    """Run the command line: one clear line and an exit code for every error, a traceback only with ``--debug``."""
    debug = "--debug" in sys.argv
    for stream in (sys.stdout, sys.stderr):
        fold_unknown(stream)
    try:
        if sys.stdout is None:
            raise RooflineError("there is no standard output to write to")
        code = app(standalone_mode=False) or 0
        sys.stdout.flush()
        sys.exit(code)
    except RooflineError as error:
        if debug:
            raise
        _fail(str(error), error.exit_code)
    except BrokenPipeError:  # the reader of a pipe has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except OSError as error:
        if debug:
            raise
        _fail(f"cannot write the output: {error.strerror or error}", 1)
    except Exception as error:
        if debug:
            raise
        # Typer's own usage errors carry a message and an exit code, whichever click they come from.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            if type(error).__name__ == "NoArgsIsHelpError":
                sys.stderr.write(f"{error.format_message()}\n")
                sys.exit(error.exit_code)
            _fail(error.format_message().replace("\n", " "), error.exit_code)
        if type(error).__name__ == "Abort":
            _fail("aborted", 1)
        _fail(f"{type(error).__name__}: {error} (a fault of roofline; --debug shows where)", 1)


def _fail(message: str, code: int) -> None:
    output.print_note(message)
    sys.exit(code)
