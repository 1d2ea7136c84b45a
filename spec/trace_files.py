"""What the files of a tree say about clauses: statements, citations, implementations, mutants.

Read from the syntax tree and the comments; nothing of the project is imported. See ``trace.py``.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from trace_found import SUITE, Broken, Code, Findings, Mutant, Place, Stated, Test

RULES = "spec/flashspec_spec/"
MUTANTS = "conformance/flashspec_conformance/mutants/"
ROOM_TESTS = "tests/"
CODE = ("backends/", "flashspec/")
ID = re.compile(r"[A-Z]+-\d+")
COMMENT = re.compile(r"#\s*implements:\s*(.*)")


def _literal(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _definitions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return (node for node in ast.walk(tree) if isinstance(node, kinds))


def read_rules(file: str, tree: ast.Module) -> Findings:
    """The clauses of a spec module."""
    found = Findings()
    for definition in _definitions(tree):
        for call in definition.decorator_list:
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "clause"):
                continue
            names = ("id", "level", "text", "since", "untestable")
            given = dict(zip(names, call.args, strict=False)) | {k.arg: k.value for k in call.keywords if k.arg}
            texts = {name: _literal(given.get(name)) for name in names}
            place = Place(file, call.lineno)
            id, level, text = texts["id"], texts["level"], texts["text"]
            if id is None or level is None or text is None or not ID.fullmatch(id):
                found.broken.append(Broken(place, "FORM", "clause needs literal id (FAM-n), level and text"))
                continue
            since, untestable = texts["since"] or "1.0", texts["untestable"] or ""
            found.stated.append(Stated(id, level, text, since, untestable, place))
    return found


def _marks(node: ast.AST) -> Iterator[ast.Call]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "clause":
            owner = call.func.value
            if isinstance(owner, ast.Attribute) and owner.attr == "mark":
                yield call


def _cited(file: str, nodes: Iterable[ast.AST], found: Findings) -> tuple[str, ...]:
    """Ids that the markers inside the nodes cite; markers that cannot be read are reported."""
    ids: list[str] = []
    for call in (call for node in nodes for call in _marks(node)):
        texts = [_literal(argument) for argument in call.args]
        good = [text for text in texts if text is not None and ID.fullmatch(text)]
        if not good or len(good) < len(texts):
            place = Place(file, call.lineno)
            found.broken.append(Broken(place, "FORM", 'marker needs literal ids: @pytest.mark.clause("FAM-1")'))
        ids += good
    return tuple(dict.fromkeys(ids))


def _module_marks(tree: ast.Module) -> list[ast.AST]:
    marks: list[ast.AST] = []
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in targets):
            marks.append(node)
    return marks


def read_tests(file: str, tree: ast.Module) -> Findings:
    """The tests of a module, with the clauses that they, their class or their module cite."""
    found = Findings()

    def visit(body: list[ast.stmt], inherited: tuple[str, ...], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                own = _cited(file, node.decorator_list, found)
                visit(node.body, inherited + own, f"{prefix}{node.name}::")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                own = _cited(file, node.decorator_list, found)
                cites = tuple(dict.fromkeys(inherited + own))
                found.tests.append(Test(f"{prefix}{node.name}", cites, Place(file, node.lineno)))

    visit(tree.body, _cited(file, _module_marks(tree), found), "")
    return found


def _literals(call: ast.Call) -> list[str]:
    """The texts among the positional arguments of a call, those inside a tuple too."""
    parts = [part for given in call.args for part in (given.elts if isinstance(given, ast.Tuple) else [given])]
    return [text for part in parts if (text := _literal(part)) is not None]


def read_mutants(file: str, tree: ast.Module) -> Findings:
    """The mutants that a module lists as ``MUTANTS = (builder("id", "fault", "FAM-1", ...), ...)``."""
    found = Findings()
    for node in tree.body:
        names = [target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)]
        if not isinstance(node, ast.Assign) or "MUTANTS" not in names:
            continue
        entries = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for entry in entries:
            place, texts = Place(file, entry.lineno), _literals(entry) if isinstance(entry, ast.Call) else []
            clauses = [text for text in texts[2:] if ID.fullmatch(text)]
            if not clauses or len(clauses) < len(texts) - 2:
                found.broken.append(Broken(place, "FORM", "mutant needs literal id, fault and clause ids (FAM-n)"))
                continue
            found.mutants.append(Mutant(texts[0], tuple(clauses), place))
    return found


def read_code(file: str, source: str) -> Findings:
    """The ``# implements:`` comments of a module."""
    found = Findings()
    if "implements:" not in source:
        return found
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        match = COMMENT.match(token.string) if token.type == tokenize.COMMENT else None
        if match is None:
            continue
        place = Place(file, token.start[0])
        ids = [part.strip() for part in match[1].split(",")]
        found.code += [Code(id, place) for id in ids if ID.fullmatch(id)]
        if not all(ID.fullmatch(id) for id in ids):
            found.broken.append(Broken(place, "FORM", "comment needs ids: # implements: FAM-1, FAM-2"))
    return found


def read_file(file: str, source: str) -> Findings:
    """What one file says, by the folder it is in; nothing for the files of no concern."""
    name = PurePosixPath(file).name
    is_test = name.startswith("test_") and file.startswith((SUITE, ROOM_TESTS))
    try:
        if file.startswith(RULES):
            return read_rules(file, ast.parse(source))
        if is_test:
            return read_tests(file, ast.parse(source))
        if file.startswith(MUTANTS):
            return read_mutants(file, ast.parse(source))
        if file.startswith(CODE):
            return read_code(file, source)
    except (SyntaxError, tokenize.TokenError) as error:
        return Findings(broken=[Broken(Place(file, 1), "FORM", f"cannot be parsed: {error}")])
    return Findings()


def read_tree(files: Iterable[tuple[str, str]]) -> Findings:
    """What all files of a tree say together; files come as (path, source)."""
    found = Findings()
    for file, source in files:
        found.add(read_file(file, source))
    return found


def relevant(file: str) -> bool:
    """Whether the tracer reads a file."""
    return file.endswith(".py") and file.startswith((RULES, SUITE, MUTANTS, ROOM_TESTS, *CODE))
