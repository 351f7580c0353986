"""The smallest size that solves N, and how it grows with N: like log N, or like N?

Uncertainty has two sources, and each resample draws both: which seeds were run, and where between two widths that were
tried the smallest one lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.analysis.lengths import FLOAT32, Lengths, SizedCell, solves
from assay.rng import Rng

Standard = Literal["reachable", "reliable"]
Form = Literal["log N", "N"]
FORMS: tuple[Form, ...] = ("log N", "N")
RESAMPLES = 1000
DECIDED = 0.95  # share of resamples in which a form must be the nearer one
SLOW = 0.5  # the exponent from which growth is not like log N
FEWEST = 3  # lengths with a solving width: two points lie on every curve of two parameters
Floats = NDArray[np.float64]


class Smallest(NamedTuple):
    """The smallest width that solves N, among those that were tried.

    `failed` is the largest tried width below it that does not, and `tried` the largest of all; 0 without one.
    """

    length: int
    width: int | None
    failed: int
    tried: int
    parameters: int | None
    state_floats: int | None
    complete: bool  # whether all narrower cells have finished


def smallest(cells: Sequence[SizedCell], standard: Standard, share: float | None = None) -> Smallest | None:
    """The smallest solving width of the cells of one length; None if no cell has finished."""
    known = [(cell, _meets(cell, standard, share)) for cell in cells]
    if all(meets is None for _, meets in known):
        return None
    solving = min((cell.place.width for cell, meets in known if meets), default=None)
    failing = [cell.place.width for cell, meets in known if meets is False]
    narrower = [w for w in failing if solving is None or w < solving]
    sizes = next((cell.records[0] for cell, _ in known if cell.place.width == solving and cell.records), None)
    return Smallest(
        cells[0].place.length,
        solving,
        max(narrower, default=0),
        max((cell.place.width for cell, meets in known if meets is not None), default=0),
        sizes.parameters if sizes else None,
        sizes.state_floats if sizes else None,
        all(meets is not None for cell, meets in known if solving is None or cell.place.width < solving),
    )


def _meets(cell: SizedCell, standard: Standard, share: float | None) -> bool | None:
    return cell.reached(share) if standard == "reachable" else cell.mostly(share)


@dataclass(frozen=True)
class Growth:
    """How the smallest solving width of a variant on a task grows.

    `nearer` has the share of resamples in which each form is nearer to the smallest widths, and `exponent` the median
    and the 95 % interval of c in a N^c; both are empty if fewer than three lengths are solved.
    """

    variant: str
    task: str
    standard: Standard
    points: tuple[Smallest, ...]
    nearer: dict[Form, float]
    exponent: tuple[float, float, float] | None

    @property
    def solved(self) -> list[Smallest]:
        return [point for point in self.points if point.width is not None]

    @property
    def decision(self) -> Form | None:
        """The form that is nearer in nearly all resamples; None if the data do not decide.

        The exponent must agree: its interval lies below 1 for log N, and above 1/2 for N. And narrower widths than the
        smallest ones must have finished.
        """
        if not all(point.complete for point in self.solved):
            return None
        nearest = next((form for form, share in self.nearer.items() if share >= DECIDED), None)
        if nearest is None or self.exponent is None:
            return None
        _, low, high = self.exponent
        return nearest if (high < 1 if nearest == "log N" else low > SLOW) else None


def growth(lengths: Lengths, variant: str, task: str, standard: Standard, share: float | None = None) -> Growth:
    """The growth of a variant's smallest width on a task, over its machines whose state is not rounded."""
    by_length = {
        n: [cell for cell in lengths.at(variant, task, n) if cell.place.numbers == FLOAT32]
        for n in lengths.lengths(variant, task)
    }
    points = {n: point for n, cells in by_length.items() if (point := smallest(cells, standard, share))}
    rng = Rng.seeded(0, f"growth of {variant} on {task}")
    draws = np.stack([resampled(by_length[n], standard, share, rng.child(n)) for n in points], 1) if points else None
    found = tuple(points.values())
    if draws is None or sum(point.width is not None for point in found) < FEWEST:
        return Growth(variant, task, standard, found, {}, None)
    tried = np.array([point.tried for point in found], dtype=np.float64)
    return Growth(variant, task, standard, found, *compared(np.array(list(points), dtype=np.float64), draws, tried))


def resampled(cells: Sequence[SizedCell], standard: Standard, share: float | None, rng: Rng) -> Floats:
    """The smallest solving width in each resample; NaN where no tried width solves."""
    drawn = np.full(RESAMPLES, np.nan)
    position = rng.child("between").uniform(RESAMPLES).numpy()
    below = np.zeros(RESAMPLES)
    for number, cell in enumerate(sorted(cells, key=lambda cell: cell.place.width)):
        if _meets(cell, standard, share) is None:
            continue
        meets = _resampled_seeds(cell, standard, share, rng.child("seeds", number))
        low, high = np.log(np.maximum(below, 1.0)), np.log(cell.place.width)
        first = meets & np.isnan(drawn)
        drawn = np.where(first, np.exp(high - position * (high - low)), drawn)
        below = np.where(meets, below, cell.place.width)
    return drawn


def _resampled_seeds(cell: SizedCell, standard: Standard, share: float | None, rng: Rng) -> NDArray[np.bool_]:
    """Whether a cell meets the standard if its seeds are drawn again, with replacement."""
    groups = [cell.seeds] if standard == "reliable" else cell.groups
    meets = np.zeros(RESAMPLES, dtype=bool)
    for number, group in enumerate(groups):
        right = np.array([solves(record, share) for record in group])
        chosen = rng.child(number).integers(RESAMPLES * len(right), len(right)).numpy().reshape(RESAMPLES, -1)
        shares = right[chosen].mean(1)
        meets |= shares > 0.5 if standard == "reliable" else shares > 0
    return meets


# -- the fit -----------------------------------------------------------------------------------------------------------


def compared(
    lengths: Floats, widths: Floats, tried: Floats
) -> tuple[dict[Form, float], tuple[float, float, float] | None]:
    """In which share of the resamples each form is nearer to the widths, and the exponent of a power law.

    A form a + b g(N) with b >= 0 is fitted by least squares of relative errors. How near it is, is measured in squares
    of log2 of the quotient; at a length that no tried width solves, a fit below the largest tried width is as wrong as
    it lies below.
    """
    forms: dict[Form, Floats] = {"log N": np.log2(lengths), "N": lengths}
    distances = np.stack([_distance(_fitted(forms[form], widths), widths, tried) for form in FORMS])
    usable = (np.isfinite(widths).sum(1) >= FEWEST) & np.isfinite(distances).any(0)
    if not usable.any():
        return {}, None
    best = distances[:, usable].min(0)
    nearest = distances[:, usable] <= best * (1 + 1e-9) + 1e-12
    alone = (nearest & (nearest.sum(0) == 1)).sum(1) / len(widths)  # a resample with too few widths decides nothing
    exponents = _exponents(np.log(lengths), np.log(widths[usable]))
    low, middle, high = np.quantile(exponents, (0.025, 0.5, 0.975))
    nearer = {form: float(alone[number]) for number, form in enumerate(FORMS)}
    return nearer, (float(middle), float(low), float(high))


def _fitted(g: Floats, widths: Floats) -> Floats:
    """The values of a + b g(N) at every length, for each resample."""
    weights = np.where(np.isnan(widths), 0.0, 1 / np.where(np.isnan(widths), 1.0, widths) ** 2)
    w = np.nan_to_num(widths)
    s0, s1, s2 = (weights * g**power for power in (0, 1, 2))
    s0, s1, s2 = s0.sum(1), s1.sum(1), s2.sum(1)
    t0, t1 = (weights * w).sum(1), (weights * w * g).sum(1)
    determinant = s0 * s2 - s1**2
    slope = np.maximum(0.0, (s0 * t1 - s1 * t0) / np.where(determinant > 0, determinant, np.inf))
    constant = (t0 - slope * s1) / np.where(s0 > 0, s0, np.inf)
    return np.asarray(constant[:, None] + slope[:, None] * g)


def _distance(fitted: Floats, widths: Floats, tried: Floats) -> Floats:
    positive = np.where(fitted > 0, fitted, np.nan)
    wrong = np.where(np.isnan(widths), np.maximum(0.0, np.log2(tried / positive)), np.log2(positive / widths))
    return np.where((fitted > 0).all(1), (wrong**2).sum(1), np.inf)


def _exponents(x: Floats, y: Floats) -> Floats:
    """The slope of y over x by least squares, for each row of y, without its NaNs."""
    known = np.isfinite(y)
    count = known.sum(1)
    x_mean = (known * x).sum(1) / count
    y_mean = np.where(known, y, 0.0).sum(1) / count
    centred = np.where(known, x - x_mean[:, None], 0.0)
    return np.asarray((centred * np.where(known, y - y_mean[:, None], 0.0)).sum(1) / (centred**2).sum(1))
