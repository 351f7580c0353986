"""The pace of a group, with a clock and marks that need no GPU."""

import threading
import time

import pytest
import torch

from assay.lab.pace import LOADING, MARK_SECONDS, MARKS, Pace

STEP = MARK_SECONDS / 20  # seconds of the device per step


class Device:
    """Does steps one after the other; time passes only while somebody waits for it."""

    def __init__(self) -> None:
        self.now, self.launched, self.most_ahead = 0.0, 0, 0

    def launch(self) -> None:
        self.launched += 1
        self.most_ahead = max(self.most_ahead, self.launched - int(self.now / STEP))

    def mark(self, blocking: bool) -> "Mark":
        assert blocking
        return Mark(self)


class Mark:
    def __init__(self, device: Device) -> None:
        self.device, self.end = device, 0.0

    def record(self) -> None:
        self.end = self.device.launched * STEP

    def synchronize(self) -> None:
        self.device.now = max(self.device.now, self.end)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setattr(torch.cuda, "Event", device.mark)
    monkeypatch.setattr("assay.lab.pace.time.perf_counter", lambda: device.now)
    return device


def test_a_group_stays_close_ahead_of_the_device_with_few_marks(device: Device):
    group, marks = Pace(torch.device("cuda")), 0
    for _ in range(2_000):
        device.launch()
        waiting = len(group.marks)
        group.step_launched()
        marks += len(group.marks) != waiting or group.steps == 0
    assert device.most_ahead * STEP <= (2 * MARKS + 1) * MARK_SECONDS
    assert marks < 2_000 / 5


def test_a_group_launches_nothing_while_another_loads_kernels(device: Device):
    group, launched = Pace(torch.device("cuda")), threading.Event()
    thread = threading.Thread(target=lambda: (group.step_launched(), launched.set()))
    with LOADING:
        thread.start()
        time.sleep(0.05)
        assert not launched.is_set()
    thread.join(timeout=10)
    assert launched.is_set()
