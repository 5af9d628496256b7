"""What the house looks like: sizes, walkers, constants, and what a new part touches.

Counts are taken from the sources alone, so that two trees can be compared:

usage: python3 dev.py run benchmarks/house.py [SOURCE ...]   (src by default)
"""

import ast
import re
import sys
from pathlib import Path


def modules(source: Path) -> dict[Path, ast.Module]:
    """Every module of a source tree, parsed."""
    return {path: ast.parse(path.read_text()) for path in sorted(source.rglob("*.py"))}


def lines_of(function: ast.FunctionDef) -> int:
    """Lines of a function without its signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def constants(tree: ast.Module):
    """Names and values of the numbers a module sets by hand."""
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=True)
            for name, value in pairs:
                if isinstance(name, ast.Name) and name.id.isupper():
                    yield name.id, ast.unparse(value)


def tuned_fields(tree: ast.Module) -> int:
    """Fields of classes whose name ends in Tuning."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    tunings = [node for node in classes if node.name.endswith("Tuning")]
    return sum(isinstance(item, ast.AnnAssign) for t in tunings for item in t.body)


def is_number(text: str) -> bool:
    return re.fullmatch(r"[-+*/ .0-9e()]+", text) is not None


def figures(source: Path) -> dict[str, object]:
    trees = modules(source)
    root = next(path.parent for path in trees if path.name == "__init__.py")
    sizes = {path: len(path.read_text().splitlines()) for path in trees}
    outside = [path for path in trees if "features" not in path.parts]
    asked = r"isinstance\([^)]*Features"
    found: dict[str, set[str]] = {}
    numbers = 0
    for tree in trees.values():
        for name, value in constants(tree):
            found.setdefault(name, set()).add(value)
            numbers += is_number(value)
    functions = [
        lines_of(node)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    longest = max(sizes, key=lambda path: sizes[path])
    return {
        "modules on the top floor": len([p for p in trees if p.parent == root]),
        "modules": len(trees),
        "lines": sum(sizes.values()),
        "longest module": f"{sizes[longest]} ({longest.relative_to(root)})",
        "modules above 300 lines": sum(size > 300 for size in sizes.values()),
        "functions above 40 lines": sum(size > 40 for size in functions),
        "isinstance(...Features) outside features/": sum(
            len(re.findall(asked, path.read_text())) for path in outside
        ),
        "numbers as module constants": numbers,
        "numbers as fields of a Tuning": sum(map(tuned_fields, trees.values())),
        "constants of one name, several values": sum(
            len(values) > 1 and all(map(is_number, values)) for values in found.values()
        ),
    }


def main() -> None:
    here = Path(__file__).resolve().parents[1] / "src"
    columns = [figures(Path(given)) for given in sys.argv[1:]] or [figures(here)]
    for name in columns[0]:
        print(f"{name:<44}", *(f"{column[name]!s:>36}" for column in columns))


if __name__ == "__main__":
    main()
