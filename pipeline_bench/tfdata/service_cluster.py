"""A tf.data service of the user's: what of a pipeline it runs, who its workers are, and which process is silent."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.tfdata import service
from pipeline_bench.tfdata.service import SCHEME, answers

ADDRESS = r"^grpc://([^/\s:\[\]]+|\[[^/\s\[\]]+\]):([0-9]{1,5})$"
_ANSWER_S = 2.0
_ASK_EVERY_S = 1.0
_GET_WORKERS = "/tensorflow.data.DispatcherService/GetWorkers"
"""TensorFlow 2.21's clients ask the dispatcher this; Python has no function for it."""


def address(given: str) -> str:
    """Return the address of a dispatcher as the user gave it.

    Raises:
        UsageError: it is none.
    """
    found = re.fullmatch(ADDRESS, given)
    if found is None or not 1 <= int(found[2]) <= service.LAST_PORT:
        raise UsageError(
            f"{given!r} is no address of a tf.data service.",
            f"Write grpc://HOST:PORT, an IPv6 host in brackets, and a port from 1 to {service.LAST_PORT}.",
        )
    return given


def crossing(dispatcher: str, processing_mode: str) -> Callable[[Any], Any]:
    """Return what `Dataset.apply` takes for the cluster to run the dataset.

    It raises `PipelineBenchError` where nobody answers there, where the cluster has no workers, or too many of them for
    the mode, and where the dataset runs Python.
    """

    def cross(dataset: Any) -> Any:
        if not is_dispatcher(dispatcher):
            raise PipelineBenchError(f"No tf.data service answers at {dispatcher}")
        found = workers(dispatcher)
        if found is not None and not found:
            raise PipelineBenchError(f"The tf.data service at {dispatcher} has no workers")
        if found is not None and processing_mode == "OFF" and len(found) > 1:
            raise PipelineBenchError(
                f"The tf.data service at {dispatcher} has {len(found)} workers, and each would give every sample"
            )
        if (silent := _silent(found)) is not None:
            raise PipelineBenchError(silent)
        service.check_serializable(dataset)
        return service.distribute(dataset, processing_mode, dispatcher)

    return cross


class Watch:
    """Asks a cluster's processes about once a second whether they answer, in a thread: to ask may take seconds.

    Args:
        dispatcher: its address.
    """

    def __init__(self, dispatcher: str) -> None:
        self._dispatcher = dispatcher
        self._silent_since_s: dict[str, float | None] = {}
        """By the dispatcher and each worker that was ever seen; None of one that answers."""
        self._ever_silent: set[str] = set()
        self._thread: threading.Thread | None = None

    def why_dead(self, stalled_s: float | None) -> str | None:
        """Return who is silent where no step came for so long; None before that, and where all answer."""
        if stalled_s is None:
            return None
        if not answers(self._dispatcher):
            reason = f"the dispatcher {self._dispatcher} does not answer"
        else:  # it forgets a worker that is gone, or may be too slow to say
            found = workers(self._dispatcher)
            known = [each for each in self._known(found) if each != self._dispatcher]
            none = found == [] and not known
            reason = f"the dispatcher {self._dispatcher} has no workers" if none else _silent(known) or ""
        return f"{reason}, and no step came for {stalled_s:g} s" if reason else None

    def was_silent(self) -> list[str]:
        """Return a sentence on each process that once did not answer, also if it does again."""
        return [f"{self._named(each)} did not answer for a while" for each in sorted(self._ever_silent)]

    def why_silent(self, limit_s: float) -> str | None:
        """Return which process has not answered for so long; None where all do. The first call begins the watch."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_asking, name="pipeline-bench cluster", daemon=True)
            self._thread.start()
        for address, since_s in [*self._silent_since_s.items()]:
            if since_s is not None and time.monotonic() - since_s >= limit_s:
                return f"{self._named(address)} has not answered for {limit_s:g} s"
        return None

    def _keep_asking(self) -> None:
        while True:
            self._ask()
            time.sleep(_ASK_EVERY_S)

    def _ask(self) -> None:
        for address in self._known(workers(self._dispatcher)):
            asked_s, known_s = time.monotonic(), self._silent_since_s.get(address)
            alive = answers(address)
            self._silent_since_s[address] = None if alive else known_s or asked_s
            if not alive:
                self._ever_silent.add(address)

    def _known(self, found: list[str] | None) -> list[str]:
        """Return the addresses of the dispatcher, of each worker that was ever seen, and of those that it knows now."""
        return list(dict.fromkeys((self._dispatcher, *self._silent_since_s, *(found or ()))))

    def _named(self, address: str) -> str:
        return f"the dispatcher {address}" if address == self._dispatcher else f"the tf.data service worker {address}"


def is_dispatcher(address: str) -> bool:
    """Return whether a dispatcher answers there; other gRPC servers, and proxies, do not know what it is asked."""
    import grpc

    if not answers(address):
        return False
    try:
        _ask_for_workers(address)
    except grpc.RpcError as error:
        return bool(error.code() != grpc.StatusCode.UNIMPLEMENTED)  # one that is busy may be slow to answer
    return True


def workers(dispatcher: str) -> list[str] | None:
    """Return host and port of each worker that the dispatcher knows; None where it does not say."""
    import grpc  # TensorFlow brings it, and protobuf
    from google.protobuf.message import DecodeError

    try:
        answer = _ask_for_workers(dispatcher)
        return [address.decode() for worker in _first_fields(answer) for address in _first_fields(worker)]
    except (grpc.RpcError, DecodeError, ValueError):
        return None


def _ask_for_workers(dispatcher: str) -> bytes:
    import grpc

    with grpc.insecure_channel(dispatcher.removeprefix(SCHEME)) as channel:
        answer: bytes = channel.unary_unary(_GET_WORKERS)(b"", timeout=_ANSWER_S)
        return answer


def _silent(addresses: list[str] | None) -> str | None:
    silent = [address for address in addresses or () if not answers(address)]
    return f"the tf.data service worker {silent[0]} does not answer" if silent else None


def _first_fields(message: bytes) -> Iterator[bytes]:
    """Yield the values of field 1 of a message of protocol buffers, where it holds bytes, text or messages.

    Raises:
        DecodeError: it is no such message.
    """
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.unknown_fields import UnknownFieldSet

    for field in UnknownFieldSet(Empty.FromString(message)):
        if field.field_number == 1 and isinstance(field.data, bytes):
            yield field.data
