#!/usr/bin/env python3
"""Set up an environment in .venv and run a job in it.

Needs only Python >= 3.11 with pip and a shell.

usage: python3 dev.py demo [args...]   the main job: sketchlearn demo
       python3 dev.py test [args...]   lint, types, import rules, tests
       python3 dev.py run FILE [args...]   a script, such as benchmarks/pca.py
"""

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


def main():
    """Dispatch on the first argument."""
    job, args = (sys.argv[1:2] or [""])[0], sys.argv[2:]
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
