"""What the files of a tree say about clauses: statements, citations, implementations.

Read from the syntax tree and the comments; nothing of the project is imported. See ``trace.py``.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

RULES = "spec/flashspec_spec/"
SUITE = "conformance/flashspec_conformance/suite/"
ROOM_TESTS = "tests/"
CODE = ("backends/", "flashspec/")
ID = re.compile(r"[A-Z]+-\d+")
COMMENT = re.compile(r"#\s*implements:\s*(.*)")


@dataclass(frozen=True)
class Place:
    """Where something is said."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Stated:
    """A clause as its decorator states it."""

    id: str
    level: str
    text: str
    since: str
    untestable: bool
    place: Place


@dataclass(frozen=True)
class Test:
    """A test function and the clauses it cites."""

    name: str
    cites: tuple[str, ...]
    place: Place

    @property
    def in_suite(self) -> bool:
        """Whether it is a test of the conformance suite."""
        return self.place.file.startswith(SUITE)


@dataclass(frozen=True)
class Code:
    """A comment that says which clause the code under it implements."""

    cite: str
    place: Place


@dataclass(frozen=True)
class Broken:
    """A violation, with what to do about it."""

    place: Place
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.rule} {self.message}"


@dataclass
class Findings:
    """All that the files of one tree say."""

    stated: list[Stated] = field(default_factory=list)
    tests: list[Test] = field(default_factory=list)
    code: list[Code] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        """Take over what another file says."""
        self.stated += other.stated
        self.tests += other.tests
        self.code += other.code
        self.broken += other.broken


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
            untestable = bool(texts["untestable"])
            found.stated.append(Stated(id, level, text, texts["since"] or "1.0", untestable, place))
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
    return file.endswith(".py") and file.startswith((RULES, SUITE, ROOM_TESTS, *CODE))
