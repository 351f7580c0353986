"""How far a group's thread may launch ahead of the device, and the pause of all groups while one loads kernels.

CUDA loads a kernel when it is first launched. That waits until the device has done all work that was launched on any
stream, and meanwhile no thread can launch anything. So there should never be much such work; and while a group calls
functions for the first time, the others launch nothing.
"""

from __future__ import annotations

import threading
import time
from collections import deque

import torch

# Held by a group that calls functions for the first time. It is acquired after EXCLUSIVE (`locks.py`), never before.
LOADING = threading.RLock()
MARK_SECONDS = 0.01  # between two marks
MARKS = 2  # that the device may still have to reach


class Pace:
    """Marks the work of a group every few steps, and waits for the mark before the last ones."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"
        self.marks: deque[tuple[torch.cuda.Event, int]] = deque()  # with the steps that each one ends
        self.steps_per_mark, self.steps, self.reached = 1, 0, time.perf_counter()

    def step_launched(self) -> None:
        """Wait until the device is close behind and no other group loads kernels."""
        if not self.on_gpu:
            return
        self.steps += 1
        if self.steps < self.steps_per_mark:
            return
        with LOADING:
            pass
        mark = torch.cuda.Event(blocking=True)  # a thread that waits for it sleeps
        mark.record()
        self.marks.append((mark, self.steps))
        self.steps = 0
        if len(self.marks) > MARKS:
            mark, steps = self.marks.popleft()
            mark.synchronize()
            self._adjust(steps)

    def _adjust(self, steps: int) -> None:
        """Choose the steps between two marks by the time that the device took for some."""
        now = time.perf_counter()
        wanted = steps * MARK_SECONDS / max(now - self.reached, 1e-6)
        self.steps_per_mark = round(min(max(wanted, 1), 2 * self.steps_per_mark))
        self.reached = now
