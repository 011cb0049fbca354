"""The overhead benchmark; see `benchmarks.overhead.__main__`."""
