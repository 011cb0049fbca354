"""Scripts as users write them, for the tests of what is recorded of a pipeline and made again."""
