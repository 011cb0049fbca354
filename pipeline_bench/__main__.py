"""``python -m pipeline_bench`` is the command line."""

from pipeline_bench.cli import main

if __name__ == "__main__":
    main()
