"""The house rules that ruff and mypy do not know, held on every tracked or new file of the repository.

A rule is a function from a file to its findings; a finding is one line that names the place and says what to do.
"""

from __future__ import annotations

import ast
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_FUNCTION_LINES = 70
MAX_MODULE_LINES = 500
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")
MAY_PRINT = ("querator/cli/", "querator/cli.py", "bench/")

# Path → why it may be longer than the rules allow. Keep it empty.
ALLOWED_LENGTH: dict[str, str] = {}

# Spelled with a class of one letter where the plain word would make this file find itself.
UNFINISHED = re.compile(
    r"\b(?:TOD[O]|FIXM[E]|XX[X])\b|\bfor[ ]now(?=[.,;:!)]|\s*$|,? (?:we|it|this|only|just)\b)", re.IGNORECASE
)
REGISTRIES = re.compile(
    r"pyp[i]\.org|pythonhoste[d]\.org|npmj[s]\.|index[-]url|find[-]links|artifactor[y]", re.IGNORECASE
)
MACHINE_PATHS = re.compile(r"(?<![\w.$~{/-])/(?:root|work|(?:home|Users)/\w+)(?:/|\b)")

OWNERLESS_TASKS = {"create_task", "ensure_future"}
RANDOM_CLASSES = {"Random", "SystemRandom"}
GLOBAL_RANDOM = {name for name in dir(random) if name.islower() and not name.startswith("_")}


class Module(NamedTuple):
    path: str  # relative to the root, with slashes
    text: str
    tree: ast.Module

    def finding(self, line: int, what: str) -> str:
        return f"{self.path}:{line}: {what}"


@cache
def files() -> tuple[str, ...]:
    """All files git knows or would take, in order; the ignored ones are nobody's business."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return tuple(sorted(path for path in listed.stdout.decode().split("\0") if path and (ROOT / path).is_file()))


@cache
def modules() -> tuple[Module, ...]:
    found = []
    for path in files():
        if path.endswith(".py") and not GENERATED.search(path):
            text = (ROOT / path).read_text(encoding="utf-8")
            found.append(Module(path, text, ast.parse(text, path)))
    return tuple(found)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an expression; of anything else the last attribute alone."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}".lstrip(".")
    return ""


def calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    return ((node, dotted(node.func)) for node in ast.walk(tree) if isinstance(node, ast.Call))


def long_functions(module: Module) -> Iterator[str]:
    for node in functions(module.tree):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            yield module.finding(
                node.lineno, f"{node.name} has {lines} lines, {MAX_FUNCTION_LINES} are allowed; split it"
            )


def long_module(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    if lines > MAX_MODULE_LINES:
        yield module.finding(1, f"{lines} lines, {MAX_MODULE_LINES} are allowed; one noun per module")


def missing_docstring(module: Module) -> Iterator[str]:
    if module.text.strip() and not ast.get_docstring(module.tree):
        yield module.finding(1, "a module starts with a docstring that says what lives here")


def unsorted_all(module: Module) -> Iterator[str]:
    for node in module.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                names = list(ast.literal_eval(node.value))
                if names != sorted(names) or len(names) != len(set(names)):
                    yield module.finding(node.lineno, f"__all__ is sorted and names each once: {sorted(set(names))}")


def wall_clock(module: Module) -> Iterator[str]:
    if module.path == "querator/clock.py":
        return
    banned = {"time.time", "time.time_ns"}
    if not module.path.startswith("bench/"):  # a report bears its date
        banned |= {"datetime.now", "datetime.datetime.now", "datetime.utcnow", "datetime.datetime.utcnow"}
    for node, name in calls(module.tree):
        if name in banned:
            yield module.finding(node.lineno, f"{name}() reads the wall clock; take a querator.clock.Clock")
    yield from _imported_from(module, "time", {"time", "time_ns"}, "take a querator.clock.Clock")


def global_random(module: Module) -> Iterator[str]:
    imported = _plain_imports(module.tree)
    for node, name in calls(module.tree):
        owner, _, function = name.partition(".")
        if owner == "random" and function not in RANDOM_CLASSES and "random" in imported:
            yield module.finding(node.lineno, f"{name}() uses the global generator; take a random.Random")
    yield from _imported_from(module, "random", GLOBAL_RANDOM, "take a random.Random")


def _plain_imports(tree: ast.Module) -> set[str]:
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import))
    return {alias.asname or alias.name for node in imports for alias in node.names}


def _imported_from(module: Module, origin: str, banned: set[str], advice: str) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module == origin and not node.level:
            names = sorted({alias.name for alias in node.names} & banned)
            if names:
                yield module.finding(node.lineno, f"{', '.join(names)} of {origin}; {advice}")


def prints(module: Module) -> Iterator[str]:
    if module.path.startswith(MAY_PRINT):
        return
    for node, name in calls(module.tree):
        if name == "print":
            yield module.finding(node.lineno, "print() is the command line's and the benchmark's; log, or raise")


def dropped_tasks(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name = dotted(node.value.func)
            owner, _, method = name.rpartition(".")
            in_group = owner.rpartition(".")[2] in {"group", "tasks", "task_group", "tg"}
            if method in OWNERLESS_TASKS and not in_group:
                yield module.finding(node.lineno, f"{name}() without an owner: keep the task, await or cancel it")


def swallowed_errors(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        if node.type is None:
            yield module.finding(node.lineno, "a bare except; name the errors")
        elif _catches_all(node.type) and all(_does_nothing(statement) for statement in node.body):
            yield module.finding(node.lineno, "every error is swallowed here; name the errors, or tell somebody")
    for node, name in calls(module.tree):
        if name.rpartition(".")[2] == "suppress" and any(_catches_all(argument) for argument in node.args):
            yield module.finding(node.lineno, "every error is suppressed here; name the errors")


def _catches_all(node: ast.expr) -> bool:
    kinds = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"} for kind in kinds)


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Pass | ast.Continue):
        return True
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


RULES: tuple[Callable[[Module], Iterator[str]], ...] = (
    dropped_tasks,
    global_random,
    long_functions,
    long_module,
    missing_docstring,
    prints,
    swallowed_errors,
    unsorted_all,
    wall_clock,
)


def text_findings(path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if UNFINISHED.search(line):
            yield f"{path}:{number}: finish it, or write it into docs/known-issues.md: {line.strip()[:80]}"
        if REGISTRIES.search(line):
            yield f"{path}:{number}: names a package registry; whoever installs chooses it: {line.strip()[:80]}"
        if MACHINE_PATHS.search(line):
            yield f"{path}:{number}: a path of one machine: {line.strip()[:80]}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_code_keeps_the_rule(rule: Callable[[Module], Iterator[str]]) -> None:
    """Every module of the repository keeps the rule."""
    excepted = ALLOWED_LENGTH if rule in {long_functions, long_module} else {}
    found = [finding for module in modules() if module.path not in excepted for finding in rule(module)]
    assert not found, "\n" + "\n".join(found)


def test_texts_are_finished_and_belong_to_no_machine() -> None:
    """No file promises later work, names a package registry or holds a path of the machine it was written on."""
    found: list[str] = []
    for path in files():
        raw = (ROOT / path).read_bytes()
        if path != "LICENSE" and b"\0" not in raw:
            found.extend(text_findings(path, raw.decode("utf-8")))
    assert not found, "\n" + "\n".join(found)


def test_allowed_length_names_files_that_need_it() -> None:
    """An exception whose reason has gone is removed."""
    by_path = {module.path: module for module in modules()}
    stale = [
        p for p in ALLOWED_LENGTH if p not in by_path or not [*long_module(by_path[p]), *long_functions(by_path[p])]
    ]
    assert not stale


BAD = (
    """
import asyncio, random, time
from time import time_ns
__all__ = ["b", "a"]
def long() -> None:
{body}
async def main() -> None:
    time.time()
    random.random()
    print("x")
    asyncio.create_task(main())
    try:
        pass
    except:
        raise
    try:
        pass
    except Exception:
        pass
""".replace("{body}", "    x = 1\n" * MAX_FUNCTION_LINES)
    + "\n" * MAX_MODULE_LINES
)

GOOD = '''"""Doc."""
import asyncio, random, contextlib
__all__ = ["a", "b"]
async def main(rng: random.Random) -> None:
    rng.random()
    task = asyncio.create_task(main(random.Random(1)))
    async with asyncio.TaskGroup() as group:
        group.create_task(main(rng))
    try:
        await task
    except ValueError:
        pass
    except Exception as error:
        raise RuntimeError from error
'''


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_finds_what_it_is_for(rule: Callable[[Module], Iterator[str]]) -> None:
    """Each rule has a finding in a module that breaks all of them, and none in one that keeps them."""
    assert list(rule(Module("querator/bad.py", BAD, ast.parse(BAD))))
    assert not list(rule(Module("querator/good.py", GOOD, ast.parse(GOOD))))


@pytest.mark.parametrize(
    "line",
    [
        "# TO" + "DO: more",
        "good enough for" + " now",
        "https://py" + "pi.org/simple",
        'path = "/ro' + 'ot/x"',
        "cd /wo" + "rk/main",
    ],
)
def test_the_text_rule_finds_what_it_is_for(line: str) -> None:
    """Unfinished work, registries and paths of a machine are found wherever they are written."""
    assert list(text_findings("docs/x.md", line))
    assert not list(text_findings("docs/x.md", "an id for now that grows; /v1/queue.produce, $HOME/work, ../work/x"))
