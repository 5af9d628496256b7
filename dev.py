#!/usr/bin/env python3
"""Set up an environment in .venv and run a job in it.

Needs only Python >= 3.11 with pip and a shell.

usage: python3 dev.py demo [args...]   the main job: sketchlearn demo
       python3 dev.py test [args...]   lint, types, import rules, tests
       python3 dev.py run FILE [args...]   a script, such as benchmarks/pca.py
       python3 dev.py names            write the public names of the package
"""

import ast
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("SKETCHLEARN_VENV", ROOT / ".venv"))
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
EXTRAS = {"demo": "plots", "test": "test", "run": "test"}
PACKAGE = ROOT / "src" / "sketchlearn"
FIRST = "# Public names: written by `python3 dev.py names`.\n"
LAST = "# End of the public names.\n"
CHECKS = [
    ["ruff", "check", "."],
    ["ruff", "format", "--check", "."],
    ["mypy"],
    ["lint-imports", "--no-cache"],
]


def call(*command):
    """Run a command in the project and return its exit code."""
    print("+", *command, flush=True)
    return subprocess.run([str(part) for part in command], cwd=ROOT).returncode


def ensure(extra):
    """Create or update the environment; nothing to do when nothing changed."""
    if sys.version_info < (3, 11):  # noqa: UP036
        sys.exit(f"Python >= 3.11 is needed; this is {sys.version.split()[0]}.")
    files = ("pyproject.toml", "constraints.txt")
    content = b"".join((ROOT / name).read_bytes() for name in files)
    key = hashlib.sha256(content + sys.version.encode() + extra.encode()).hexdigest()
    stamp = VENV / f".stamp-{extra}"
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == key:
        return
    print(f"setting up {VENV} (once; a few minutes) ...", flush=True)
    if not PYTHON.exists():
        create()
    pip = [PYTHON, "-m", "pip"]
    probe = [str(PYTHON), "-m", "pip", "--version"]
    if subprocess.run(probe, capture_output=True).returncode:
        pip = [sys.executable, "-m", "pip", "--python", PYTHON]
    flags = ["--quiet", "--disable-pip-version-check"]
    constraints = ["-c", ROOT / "constraints.txt"]
    if call(*pip, "install", *flags, *constraints, "-e", f"{ROOT}[{extra}]"):
        sys.exit("installation failed; see the messages above.")
    stamp.write_text(key)


def create():
    """Make the virtual environment, with or without ensurepip."""
    links = os.name != "nt"
    try:
        venv.EnvBuilder(with_pip=True, symlinks=links).create(VENV)
    except (Exception, SystemExit):  # Debian without python3-venv has no ensurepip
        venv.EnvBuilder(with_pip=False, symlinks=links, clear=True).create(VENV)


def test(args):
    """Every check when called without arguments; otherwise pytest with them."""
    pytest = [PYTHON, "-m", "pytest", "-n", "2", "-q"]
    # A thread for each of the two processes: more would wait for one another.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if args:
        return call(*pytest, *args)
    codes = [call(BIN / name, *rest) for name, *rest in CHECKS]
    return max([*codes, call(*pytest)])


def public_names():
    """Names by module, as the modules say in ``__public__``; nothing is imported."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if getattr(target, "id", None) == "__public__":
                parts = path.relative_to(PACKAGE).with_suffix("").parts
                found[".".join(parts)] = sorted(ast.literal_eval(node.value))
    return dict(sorted(found.items()))


def with_names(text):
    """The top ``__init__.py`` with all public names between its two marks."""
    found = public_names()
    homes = sorted((name, home) for home, names in found.items() for name in names)
    lines = ["if TYPE_CHECKING:"]
    for home, names in found.items():
        line = f"    from sketchlearn.{home} import {', '.join(names)}"
        if len(line) > 88:
            inner = "".join(f"        {name},\n" for name in names)
            line = f"    from sketchlearn.{home} import (\n{inner}    )"
        lines.append(line)
    lines += ["", "_HOMES = {", *(f'    "{name}": "{at}",' for name, at in homes), "}"]
    lines += ["", "__all__ = [", *(f'    "{name}",' for name, _ in homes), "]", ""]
    before, after = text.split(FIRST)[0], text.split(LAST)[1]
    return before + FIRST + "\n".join(lines) + LAST + after


def names():
    """Write the public names into the package."""
    path = PACKAGE / "__init__.py"
    path.write_text(with_names(path.read_text("utf-8")), "utf-8")


def main():
    """Dispatch on the first argument."""
    job, args = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if job == "names":
        return names()
    if job not in EXTRAS:
        sys.exit(__doc__)
    ensure(EXTRAS[job])
    if job == "test":
        sys.exit(test(args))
    if job == "demo":
        args = ["-m", "sketchlearn.cli", "demo", *args]
    try:
        code = call(PYTHON, *args)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
