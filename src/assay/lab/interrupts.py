"""Ctrl-C and a scheduler's SIGTERM: work stops where its state can be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_requested = threading.Event()  # a stop, while `stop_on_signal` is active
_patient = threading.Event()


def ignore_further_signals() -> None:
    """Let no second signal interrupt the saving: schedulers send several, and to several processes of a job."""
    _patient.set()


@contextmanager
def stop_on_signal(*signals: signal.Signals, patient: bool = False) -> Iterator[Callable[[], None]]:
    """Yields `poll`, which raises KeyboardInterrupt once a signal (by default SIGINT or SIGTERM) has arrived.

    So work is interrupted only where it polls. A second signal interrupts it anywhere, unless it is `patient`.
    """
    requested = False

    def handle(*_: int | FrameType | None) -> None:
        nonlocal requested
        if requested and not patient and not _patient.is_set():
            raise KeyboardInterrupt
        requested = True
        _requested.set()

    def poll() -> None:
        if requested:
            raise KeyboardInterrupt

    if not _in_main_thread():
        yield poll
        return
    previous = {name: signal.signal(name, handle) for name in signals or (signal.SIGINT, signal.SIGTERM)}
    try:
        yield poll
    finally:
        _requested.clear()
        for name, handler in previous.items():
            signal.signal(name, handler)


def sleep_unless_stopped(seconds: float) -> None:
    """Sleep; KeyboardInterrupt if a stop was requested before or is requested meanwhile."""
    if _requested.wait(seconds):
        raise KeyboardInterrupt


@contextmanager
def ignore_sigint() -> Iterator[None]:
    """Ignore Ctrl-C; a process that is started meanwhile ignores it too."""
    if not _in_main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _in_main_thread() -> bool:
    """Only the main thread may set signal handlers."""
    return threading.current_thread() is threading.main_thread()
