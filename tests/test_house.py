"""The house stays in order: one meaning a name, short modules, no stray rooms."""

import ast
from collections import defaultdict
from pathlib import Path

import sketchlearn

HOME = Path(sketchlearn.__file__).parent
TEXTS = {
    path.relative_to(HOME).as_posix(): path.read_text("utf-8")
    for path in sorted(HOME.rglob("*.py"))
}
TREES = {name: ast.parse(text) for name, text in TEXTS.items()}

PROTOCOL = {"EXPERIMENT", "TASK", "__all__", "__public__"}
"""Names that modules of a family declare, so that they are found."""

TOP_FLOOR = {
    "__init__.py",
    "demo.py",
    "discovery.py",
    "errors.py",
    "metrics.py",
    "nested_sqnet.py",
    "registry.py",
    "report.py",
    "sqnet.py",
    "sqnet_spec.py",
    "testing.py",
    "version.py",
}
SAYS_NOTHING = {"utils", "helpers", "common", "misc"}


def assigned(tree):
    """Names a module assigns at its top, each with the source of its value."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign) and node.value:
            pairs = [(node.target, node.value)]
        else:
            continue
        for target, value in pairs:
            if isinstance(target, ast.Tuple):
                alone = isinstance(value, ast.Tuple)
                values = value.elts if alone else [value] * len(target.elts)
                named = zip(target.elts, values, strict=True)
            else:
                named = [(target, value)]
            for name, one in named:
                if isinstance(name, ast.Name):
                    yield name.id, ast.unparse(one)


def test_no_two_constants_of_one_name_have_different_values():
    values = defaultdict(dict)
    for module, tree in TREES.items():
        for name, value in assigned(tree):
            if name not in PROTOCOL:
                values[name][module] = value
    twice = {n: list(v) for n, v in values.items() if len(set(v.values())) > 1}
    assert twice == {}


def test_modules_are_short():
    lengths = {name: text.count("\n") for name, text in TEXTS.items()}
    assert {name: n for name, n in lengths.items() if n > 350} == {}


def test_functions_fit_on_a_screen():
    long = {}
    for module, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                body = node.body[ast.get_docstring(node) is not None :]
                if body and node.end_lineno - body[0].lineno >= 40:
                    long[f"{module}:{node.name}"] = node.end_lineno - body[0].lineno + 1
    assert long == {}


def test_no_one_outside_features_asks_which_map_it_has():
    found = [
        f"{module}:{node.lineno}"
        for module, tree in TREES.items()
        if not module.startswith("features/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and any(
            isinstance(name, ast.Name) and name.id.endswith("Features")
            for name in ast.walk(node.args[1])
        )
    ]
    assert found == []


def test_the_top_floor_holds_what_has_no_room_of_its_own():
    assert {name for name in TEXTS if "/" not in name} == TOP_FLOOR


def test_every_module_is_named_after_a_concept():
    parts = {part.removesuffix(".py") for name in TEXTS for part in name.split("/")}
    assert parts & SAYS_NOTHING == set()
