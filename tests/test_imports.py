"""Which module may import which (DESIGN.md), and that starting the command line loads nothing slow."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "roofline"

# A later layer may import an earlier one, and the modules of one layer each other. ``masks`` stands between dtypes and problem.
LAYERS = (
    {"errors", "units"},
    {"dtypes"},
    {"masks"},
    {"problem", "cost"},
    {"profiles"},
    {"plan"},
    {"variants"},
    {"cache"},
    {"model"},
    {"models"},
    {"configurations"},
    {"analysis"},
    {"sweep", "explain"},
    {"fields"},
    {"records", "compare"},
)
CORE = [name for layer in LAYERS for name in layer]
LEAVES = {"reports": {"reports"}, "measuring": {"kernels", "peers", "measure"}}
EDGE = {"api", "options", "cli", "__main__"}
HEAVY = {"torch", "triton"}
MAY_IMPORT_TORCH = ("kernels", "peers", "measure/worker")


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py"))


def part(path: Path) -> str:
    """The first name below the package: ``variants`` of roofline/variants/flash.py, ``plan`` of roofline/plan.py."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported(path: Path, source: str | None = None, *, typing_too: bool = True) -> Iterator[str]:
    """Dotted names that a module imports anywhere in it, functions included; relative ones are made absolute."""
    tree = ast.parse(path.read_text(encoding="utf-8") if source is None else source)
    skipped = set() if typing_too else {id(node) for block in _typing_blocks(tree) for node in ast.walk(block)}
    package = ("roofline", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (
                ".".join((*package[: len(package) - node.level + 1], *filter(None, [node.module])))
                if node.level
                else node.module
            )
            assert base is not None
            # ``from roofline import plan`` names the module in the alias.
            yield from (f"{base}.{alias.name}" for alias in node.names) if base == "roofline" else [base]


def _typing_blocks(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from node.body


def parts_imported(path: Path) -> set[str]:
    names = {name.split(".")[1] for name in imported(path) if name.startswith("roofline.")}
    return names - {part(path), "__version__"}


def allowed(name: str) -> set[str]:
    """Parts that the part ``name`` may import."""
    if name in CORE:
        level = next(index for index, layer in enumerate(LAYERS) if name in layer)
        return {other for layer in LAYERS[: level + 1] for other in layer}
    if name == "reports":
        return set(CORE)
    if name in ("kernels", "peers"):
        return {*CORE, "kernels", "peers"}
    if name == "measure":
        return {*CORE, "kernels", "peers"}
    if name in EDGE:
        return {*CORE, *LEAVES["reports"], *LEAVES["measuring"], *EDGE}
    return set()


def test_every_module_has_its_place() -> None:
    placed = {*CORE, *LEAVES["reports"], *LEAVES["measuring"], *EDGE, "__init__"}
    assert {part(path) for path in modules()} <= placed


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    if part(path) == "__init__":
        assert parts_imported(path) <= {"api"}  # when a name of it is used, not before
        return
    wrong = parts_imported(path) - allowed(part(path))
    assert not wrong, f"{path.relative_to(PACKAGE)} imports {', '.join(sorted(wrong))}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_torch_and_triton_stay_in_kernels_peers_and_the_worker(path: Path) -> None:
    if str(path.relative_to(PACKAGE)).startswith(MAY_IMPORT_TORCH):
        return
    assert not {name.split(".")[0] for name in imported(path, typing_too=False)} & HEAVY


def test_variants_do_not_know_devices() -> None:
    """Costs depend on problem and plan alone; ``plan`` is the only door to a profile."""
    for path in (PACKAGE / "variants").glob("*.py"):
        assert not parts_imported(path) & {"profiles", "cache", "model"}


def test_the_walk_sees_imports_of_all_kinds() -> None:
    """The tests above can fail: imports in functions, relative ones and ``from roofline import x`` are seen."""
    source = "from roofline import cache\nfrom ..model import predict\ndef f():\n    import roofline.reports.terminal\n"
    names = set(imported(PACKAGE / "variants" / "fake.py", source))
    assert names == {"roofline.cache", "roofline.model", "roofline.reports.terminal"}
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n"
    assert set(imported(PACKAGE / "fake.py", guarded, typing_too=False)) == {"typing"}


def test_importing_the_package_loads_nothing_of_it() -> None:
    check = "import sys, roofline; print([name for name in sys.modules if name.startswith('roofline.')])"
    run = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_api_loads_pandas_for_a_frame_only() -> None:
    check = "import sys, roofline; roofline.analyze(device='l4'); roofline.analyze_model('gpt2', 'l4'); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert not {"pandas", "numpy", "pydantic", "typer", "rich", "torch"} & set(run.stdout.split())


@pytest.mark.parametrize(
    "command",
    ["import roofline.cli", "import roofline.cli; roofline.cli.app(['analyze', '--device', 'l4'], standalone_mode=False)"],
    ids=["import", "analyze"],
)
def test_starting_loads_nothing_slow(command: str) -> None:
    check = f"{command}\nimport sys\nprint(sorted({{name.split('.')[0] for name in sys.modules}}), file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    loaded = set(ast.literal_eval(run.stderr.splitlines()[-1]))
    slow = {"torch", "triton", "pandas", "numpy", "plotly", "pydantic", "plotext", "jinja2"}
    assert not loaded & slow
    if command == "import roofline.cli":
        assert not loaded & {"pynvml", "platformdirs"}
