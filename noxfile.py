"""The project's checks. ``nox`` runs them all; ``nox -s tests`` is the quick part."""

import nox

nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests", "trials"]

TESTS = [
    "pytest>=8.3",
    "pytest-timeout>=2.3",
    "pytest-randomly>=3.16",
    "hypothesis>=6.115",
    "jsonschema>=4.23",
    "pyyaml>=6",
]
PYTHONS = ["3.11", "3.12", "3.13"]


@nox.session
def lint(session: nox.Session) -> None:
    """Style, docstrings, and the ban of TensorFlow at module level."""
    session.install("ruff>=0.9")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Types, strictly; TensorFlow itself is untyped and is not installed for this."""
    session.install(
        "mypy>=1.15",
        "scipy-stubs",
        "types-psutil",
        "types-PyYAML",
        "nox",
        "rich",
        "typer",
        "numpy",
        "psutil",
        "pydantic",
        "jinja2",
        "pillow",
    )
    session.install("scipy", *TESTS)
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """Everything that needs no TensorFlow process: logic with fake clocks, the command line, scripted children."""
    session.install(".", *TESTS)
    session.run("pytest", "-m", "not tensorflow", *session.posargs)


@nox.session
def trials(session: nox.Session) -> None:
    """Real trials of every backend, and the program as a whole."""
    session.install(".", *TESTS)
    session.run("pytest", "-m", "tensorflow", *session.posargs)


@nox.session(python=PYTHONS)
def pythons(session: nox.Session) -> None:
    """All tests under every supported Python that is installed."""
    session.install(".", *TESTS)
    session.run("pytest", *session.posargs)
