"""Who may import whom: the table of the rooms, enforced on the sources."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = frozenset({"flashspec_numpy", "flashspec_torch", "flashspec_triton"})
OURS = BACKENDS | {"flashspec", "flashspec_spec", "flashspec_conformance"}
BORDER = frozenset({f"flashspec.{name}" for name in ("contract", "errors", "checks", "rng", "shards")})
BASIS = BORDER | {"flashspec.registry"}
OUTER = ("flashspec.hf", "flashspec.cli", "flashspec.bench", "flashspec.integrations", "flashspec.training")


@attrs.frozen
class Room:
    """What the modules under one folder may import; names cover their submodules."""

    folder: str
    anywhere: AbstractSet[str]
    inside_functions: AbstractSet[str] = frozenset()
    refused: tuple[str, ...] = ()


CORE = BASIS | {"attrs", "numpy"}
HF = frozenset({"torch", "transformers", "accelerate", "safetensors", "gguf", "tokenizers", "huggingface_hub"})
SUITE = CORE | {"flashspec", "flashspec_conformance", "flashspec_spec", "hypothesis", "pytest", "scipy"}
EXTRAS = HF | {"rich", "cyclopts", "matplotlib"}
PEERS = {"torch", "transformers", "vllm", "sglang", "eagle", "mini_infer", "seqspecdecod", "mlx", "mlx_lm"}
ENGINES = ("transformers", "sglang", "flashinfer", "tensors", "ops", "agreement")
"""Adapters of engines on torch, which whoever imports them has."""
ROOMS = (
    Room("spec/flashspec_spec", {"flashspec_spec"}),
    Room("flashspec/errors", frozenset()),
    Room("flashspec/contract", {"attrs", "numpy", "flashspec.errors"}),
    Room("flashspec/rng", {"numpy", "flashspec.contract"}),
    Room("flashspec/checks", {"numpy", "flashspec.contract", "flashspec.errors"}),
    Room("flashspec/shards", {"attrs", "flashspec.contract", "flashspec.errors"}, inside_functions={"torch"}),
    Room("flashspec/registry", {"attrs", "flashspec.contract", "flashspec.errors"}),
    Room("flashspec/selectors", CORE | {"flashspec.selectors"}, inside_functions={"safetensors"}),
    Room("flashspec/drafts", CORE | {"flashspec.drafts", "flashspec.decoding", "flashspec.selectors"}),
    Room("flashspec/decoding", CORE | {"flashspec.drafts", "flashspec.decoding", "flashspec.selectors"}),
    Room("flashspec/hf/graph", HF | CORE | {"flashspec", "triton"}, refused=("flashspec.cli",)),
    Room("flashspec/hf", HF | CORE | {"flashspec"}, inside_functions=EXTRAS, refused=("flashspec.cli",)),
    Room("flashspec/training", HF | CORE | {"flashspec"}, inside_functions=EXTRAS, refused=("flashspec.cli",)),
    *(Room(f"flashspec/integrations/{name}", CORE | {"flashspec", "torch"}, {"sglang"}) for name in ENGINES),
    Room("flashspec/bench/peers", CORE | {"flashspec", "torch"}, inside_functions=EXTRAS | {"vllm", "flashinfer"}),
    Room("flashspec/bench", CORE | {"flashspec"}, inside_functions=EXTRAS),
    Room(
        "flashspec/integrations/vllm",
        CORE | {"flashspec", "torch"},
        inside_functions={"prometheus_client", "vllm"},
        refused=("flashspec.cli", "flashspec.hf"),
    ),
    Room("flashspec/integrations", CORE | {"flashspec"}, inside_functions={"llguidance", "prometheus_client"}),
    Room("flashspec/cli", CORE | {"flashspec"}, inside_functions=EXTRAS),
    Room("flashspec/__main__", {"flashspec.cli"}),
    Room("flashspec", CORE | {"flashspec"}, refused=OUTER),
    Room("backends/flashspec_numpy", BORDER | {"flashspec_numpy", "numpy", "attrs"}),
    Room("backends/flashspec_torch", BORDER | {"flashspec_torch", "torch", "numpy", "attrs"}),
    Room("backends/flashspec_triton", BORDER | {"flashspec_triton", "triton", "torch", "numpy", "attrs"}),
    Room("conformance/flashspec_conformance/mutants", SUITE | {"flashspec_numpy"}, refused=OUTER),
    Room("conformance/flashspec_conformance/engines", SUITE, inside_functions=PEERS | {"triton"}),
    Room("conformance/flashspec_conformance/functions/peers", SUITE, inside_functions=PEERS),
    Room("conformance/flashspec_conformance", SUITE, refused=OUTER),
)


def covers(names: Collection[str], module: str) -> bool:
    """Whether ``module`` or a package that holds it is among ``names``."""
    parts = module.split(".")
    return any(".".join(parts[:n]) in names for n in range(1, len(parts) + 1))


def room_of(path: Path) -> Room | None:
    """The first room of the table that a file, or a folder that holds it, names."""
    module = path.with_suffix("")
    return next((room for room in ROOMS if module.is_relative_to(room.folder)), None)


def imports(tree: ast.Module, package: str) -> Iterator[tuple[int, str, bool]]:
    """Line, module and whether the import runs only inside a function, for each import of a module."""
    lazy = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(outer)
    } | {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.If) and "TYPE_CHECKING" in ast.dump(outer.test)
        for inner in ast.walk(outer)
    }
    for node in ast.walk(tree):
        for module in _modules(node, package):
            yield node.lineno, module, id(node) in lazy  # type: ignore[attr-defined]  # import nodes have lines


def _modules(node: ast.AST, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        return [f"{module}.{a.name}" if _names_module(module, a.name) else module for a in node.names]
    if isinstance(node, ast.Call) and "import_module" in ast.dump(node.func) and node.args:
        name = node.args[0]
        return [name.value] if isinstance(name, ast.Constant) and isinstance(name.value, str) else []
    return []


def _names_module(module: str, name: str) -> bool:
    """Whether ``from module import name`` reaches a module of ours, or something private."""
    if module.split(".")[0] not in OURS:
        return False
    if name.startswith("_") and not name.startswith("__"):
        return True
    folders = [ROOT / root / Path(*module.split(".")) for root in (".", "spec", "backends", "conformance")]
    return any((f / f"{name}.py").is_file() or (f / name).is_dir() for f in folders)


def complaints(path: Path, source: str) -> list[str]:
    """What one file (named relative to the root) imports against the table."""
    room = room_of(path)
    if room is None:
        return [f"{path}: belongs to no room"]
    roots = ("spec", "backends", "conformance")
    parts = path.with_suffix("").parts[1 if path.parts[0] in roots else 0 :]
    own = parts[0]
    found = []
    for line, module, lazy in imports(ast.parse(source), ".".join(parts[:-1])):
        allowed = covers(room.anywhere, module) or (lazy and covers(room.inside_functions, module))
        stdlib = module.split(".")[0] in sys.stdlib_module_names
        private = module.split(".")[0] in OURS - {own} and "._" in module
        if private or not (allowed or stdlib) or covers(room.refused, module):
            where = " inside a function" if lazy else ""
            found.append(f"{path}:{line}: {room.folder} imports {module}{where}")
    return found


def sources() -> list[Path]:
    """Every source of the rooms, relative to the root."""
    folders = ("spec/flashspec_spec", "flashspec", "backends", "conformance")
    files = (f for folder in folders for f in (ROOT / folder).rglob("*.py"))
    return sorted(f.relative_to(ROOT) for f in files if "template" not in f.parts)


def test_every_import_follows_the_table() -> None:
    """No room imports what the table of rooms does not allow it."""
    found = [c for path in sources() for c in complaints(path, (ROOT / path).read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


def test_every_room_has_sources() -> None:
    """The walk reaches each room, so a moved folder cannot pass unseen."""
    inhabited = {room.folder for path in sources() if (room := room_of(path))}
    assert {room.folder for room in ROOMS} <= inhabited


def test_nobody_imports_the_folder_spec() -> None:
    """``import spec`` works only by accident in a development install and occurs nowhere."""
    files = [*sources(), *(f.relative_to(ROOT) for f in (ROOT / "tests").rglob("*.py"))]
    trees = [(f, ast.parse((ROOT / f).read_text(encoding="utf-8"))) for f in files]
    found = [f for f, tree in trees for _, module, _ in imports(tree, "") if covers(("spec",), module)]
    assert not found


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("spec/flashspec_spec/law.py", "import numpy"),
        ("spec/flashspec_spec/law.py", "from flashspec.contract import TILE"),
        ("flashspec/contract.py", "import torch"),
        ("flashspec/contract.py", "from flashspec import hf"),
        ("flashspec/contract.py", "from flashspec.rng import coins"),
        ("flashspec/rng.py", "import flashspec_spec"),
        ("flashspec/registry.py", "import importlib\nimportlib.import_module('torch')"),
        ("flashspec/selectors/ucb.py", "from scipy import stats"),
        ("flashspec/selectors/ucb.py", "from ..decoding import commit"),
        ("flashspec/decoding/loop.py", "def f():\n    import torch"),
        ("flashspec/drafts/model.py", "import transformers"),
        ("flashspec/drafts/model.py", "import flashspec_torch"),
        ("flashspec/hf/target.py", "from flashspec.cli import main"),
        ("flashspec/cli/__init__.py", "import cyclopts"),
        ("flashspec/bench/decode.py", "import torch"),
        ("flashspec/bench/decode.py", "from flashspec_torch.ops import row_law"),
        ("backends/flashspec_numpy/verify.py", "import flashspec_torch"),
        ("backends/flashspec_numpy/verify.py", "from flashspec.registry import entries"),
        ("backends/flashspec_torch/verify.py", "import flashspec_numpy"),
        ("backends/flashspec_torch/verify.py", "from flashspec_spec import law"),
        ("conformance/flashspec_conformance/suite/test_law.py", "import flashspec_numpy"),
        ("conformance/flashspec_conformance/suite/test_law.py", "import torch"),
        ("conformance/flashspec_conformance/report.py", "from flashspec import _private"),
        ("conformance/flashspec_conformance/report.py", "from flashspec._private import thing"),
    ],
)
def test_a_forbidden_import_is_found(file: str, line: str) -> None:
    """The walk finds a planted arrow in the wrong direction."""
    assert complaints(Path(file), line)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("flashspec/cli/__init__.py", "def main():\n    import cyclopts"),
        ("flashspec/bench/decode.py", "if TYPE_CHECKING:\n    import torch"),
        ("flashspec/hf/target.py", "import torch"),
        ("flashspec/selectors/ucb.py", "from .types import State"),
        ("backends/flashspec_torch/verify.py", "from flashspec.contract import Verdict"),
        ("conformance/flashspec_conformance/mutants.py", "import flashspec_numpy"),
        ("conformance/flashspec_conformance/mutants/__init__.py", "from flashspec_numpy import backend"),
    ],
)
def test_an_allowed_import_is_not_found(file: str, line: str) -> None:
    """The walk lets the arrows of the table pass."""
    assert not complaints(Path(file), line)
