"""Which parts of an element a user's functions read, and which they hand on as they are, by the traced graphs."""

from __future__ import annotations

from typing import Any


def reads(filtered: Any) -> set[str] | None:
    """Return the paths of the parts that the predicate of a `filter` looks at; None where that is not known."""
    given = _inputs(filtered, filtered.element_spec)
    return None if given is None else {path for path, tensor in given.items() if tensor.consumers()}


def hands_on(mapped: Any, element_spec: Any) -> set[str]:
    """Return the paths of the parts that a `map` gives as it got them, under the same path.

    Args:
        mapped: the dataset of the map.
        element_spec: of the elements that it gets.
    """
    given, paths = _inputs(mapped, element_spec), _paths(mapped.element_spec)
    outputs = [] if given is None else _graph(mapped).outputs
    if given is None or len(outputs) != len(paths):
        return set()
    return {
        path for path, tensor in zip(paths, outputs, strict=True) if path in given and _origin(tensor) is given[path]
    }


def _inputs(dataset: Any, element_spec: Any) -> dict[str, Any] | None:
    """Return what the function of a dataset gets in its graph, by the paths of the element's parts."""
    graph, paths = _graph(dataset), _paths(element_spec)
    return None if graph is None or len(graph.inputs) < len(paths) else dict(zip(paths, graph.inputs, strict=False))


def _graph(dataset: Any) -> Any:
    """Return the graph of a dataset's only function; None where it has none that is known."""
    try:
        (wrapper,) = dataset._functions()
        return wrapper.function.graph
    except (AttributeError, NotImplementedError, ValueError):
        return None


def _paths(element_spec: Any) -> list[str]:
    from tensorflow.python.util import nest

    return [path for path, _ in nest.flatten_with_joined_string_paths(element_spec)]


def _origin(tensor: Any) -> Any:
    while tensor.op.type == "Identity":
        (tensor,) = tensor.op.inputs
    return tensor
