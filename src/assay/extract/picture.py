"""Pictures of automata: states on a circle, which no arrow between two others can cross, as an SVG text."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from assay.errors import BadInput

MOST_STATES, MOST_SYMBOLS = 40, 12  # of a picture that can be read
RADIUS, SPACE = 24.0, 64.0  # of a state, and between two neighbours on the circle
COLOURS = ("#ffffff", "#9ecae1", "#fdd0a2", "#c7e9c0", "#dadaeb", "#fcbba1", "#d9d9d9", "#ffffb3")
INK, WRONG, FONT = "#333", "#c0392b", "Helvetica, Arial, sans-serif"
LETTER, LINE = 7.4, 15.0  # width and height of a letter of a label
Point = tuple[float, float]


@dataclass
class Graph:
    """What is drawn: states with two lines of text and a colour, and arrows with labels; `wrong` arrows are red."""

    names: Sequence[str]
    texts: Sequence[str]
    colours: Sequence[str]
    start: int
    arrows: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    wrong: set[tuple[int, int]] = field(default_factory=set)
    legend: Sequence[tuple[str, str]] = ()  # colour and meaning
    caption: str = ""


@dataclass(frozen=True)
class Box:
    """A rectangle that a label covers, by its centre and size."""

    x: float
    y: float
    width: float
    height: float

    def overlap(self, other: Box) -> float:
        wide = min(self.x + self.width / 2, other.x + other.width / 2) - max(
            self.x - self.width / 2, other.x - other.width / 2
        )
        high = min(self.y + self.height / 2, other.y + other.height / 2) - max(
            self.y - self.height / 2, other.y - other.height / 2
        )
        return max(0.0, wide) * max(0.0, high)

    def holds(self, point: Point) -> bool:
        return abs(point[0] - self.x) < self.width / 2 and abs(point[1] - self.y) < self.height / 2


class Curve:
    """An arrow: a quadratic curve between two states, or a cubic loop at one."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = points

    def at(self, t: float) -> Point:
        row = list(self.points)
        while len(row) > 1:
            row = [(_mix(p[0], q[0], t), _mix(p[1], q[1], t)) for p, q in pairwise(row)]
        return row[0]

    @property
    def path(self) -> str:
        (x, y), *others = self.points
        letter = "Q" if len(others) == 2 else "C"
        return f"M{x:.1f},{y:.1f} {letter}" + " ".join(f"{a:.1f},{b:.1f}" for a, b in others)


def _mix(a: float, b: float, t: float) -> float:
    return a + (b - a) * t


def draw(graph: Graph) -> str:
    """The picture as SVG text."""
    count = len(graph.names)
    if count > MOST_STATES:
        raise BadInput(f"{count} states are too many for a picture that can be read; at most {MOST_STATES}")
    places = _places(graph)
    curves = _curves(graph, places)
    boxes = _labels(graph, curves, places)
    body = [_arrow(curves[pair], pair in graph.wrong) for pair in graph.arrows]
    body += [_start(places[graph.start])]
    body += [_state(graph, number, place) for number, place in enumerate(places)]
    body += [_text(boxes[pair], lines_of(graph.arrows[pair]), pair in graph.wrong) for pair in graph.arrows]
    return _sheet(graph, body, places, curves, boxes)


# -- places --------------------------------------------------------------------------------------------------------


def _places(graph: Graph) -> list[Point]:
    """States on a circle in an order with few crossings, the start at the left; one state stands in the middle."""
    count = len(graph.names)
    if count == 1:
        return [(0.0, 0.0)]
    radius = max(85.0, count * (2 * RADIUS + SPACE) / (2 * math.pi), 5.0 * len(graph.arrows))
    places = [(0.0, 0.0)] * count
    for position, state in enumerate(_order(graph)):
        angle = math.pi + 2 * math.pi * position / count
        places[state] = (radius * math.cos(angle) * 1.15, radius * math.sin(angle))
    return places


def _order(graph: Graph) -> list[int]:
    """An order round the circle, by exchanging two states as long as that helps; the start stays first."""
    count = len(graph.names)
    pairs = list({(min(p, q), max(p, q)) for p, q in graph.arrows if p != q})
    order = [graph.start, *(q for q in range(count) if q != graph.start)]

    def cost(order: list[int]) -> float:
        at = {state: i for i, state in enumerate(order)}
        chords = [tuple(sorted((at[p], at[q]))) for p, q in pairs]
        length = sum(min(j - i, count - j + i) for i, j in chords)
        if count > 14:
            return float(length)
        crossings = sum(a < c < b < d or c < a < d < b for (a, b), (c, d) in combinations(chords, 2))
        return length + 2.0 * crossings

    best, improved = cost(order), True
    while improved:
        improved = False
        for i, j in combinations(range(1, count), 2):
            order[i], order[j] = order[j], order[i]
            new_cost = cost(order)
            if new_cost < best:
                best, improved = new_cost, True
            else:
                order[i], order[j] = order[j], order[i]
    return order


# -- arrows --------------------------------------------------------------------------------------------------------


def _curves(graph: Graph, places: list[Point]) -> dict[tuple[int, int], Curve]:
    """A curve for each arrow: of several bends, the one that keeps clear of states and of the curves before it.

    Two arrows between the same states both bend to their left, so that they are apart.
    """
    curves: dict[tuple[int, int], Curve] = {}
    occupied: list[Point] = []
    for pair in graph.arrows:
        if pair[0] == pair[1]:
            curves[pair] = _loop(places[pair[0]], pair[0] == graph.start)
            continue
        both, others = pair[::-1] in graph.arrows, [place for i, place in enumerate(places) if i not in pair]
        p, q = places[pair[0]], places[pair[1]]
        least = max(14.0, 0.035 * math.dist(p, q)) if both else 0.0
        choices: list[tuple[float, int, Curve]] = []
        for bend in (least, least + 12, least + 24, least + 38, -least - 12, -least - 24, -least - 38):
            curve = _bent(p, q, bend)
            points = [curve.at(i / 16) for i in range(1, 16)]
            cost = 0.1 * abs(bend) + (40.0 if both and bend < 0 else 0.0)
            cost += sum(30.0 for point in points for place in others if math.dist(point, place) < RADIUS + 9)
            if not both:
                cost += sum(1.5 for point in points[3:-3] for other in occupied if math.dist(point, other) < 11)
            choices.append((cost, len(choices), curve))
        curves[pair] = min(choices, key=lambda choice: choice[:2])[2]
        occupied += [curves[pair].at(i / 16) for i in range(3, 14)]
    return curves


def _loop(place: Point, at_start: bool) -> Curve:
    """A loop on the side away from the middle; at the start above, where the arrow from outside is not."""
    out = -math.pi / 2 if at_start or place == (0.0, 0.0) else math.atan2(place[1], place[0])
    return Curve(
        [
            (place[0] + size * math.cos(out + turn), place[1] + size * math.sin(out + turn))
            for size, turn in ((RADIUS, -0.5), (RADIUS * 3.1, -0.55), (RADIUS * 3.1, 0.55), (RADIUS + 6, 0.5))
        ]
    )


def _bent(p: Point, q: Point, bend: float) -> Curve:
    """From one state to another, with its middle so far to the left of the straight line."""
    length = math.dist(p, q)
    normal = ((q[1] - p[1]) / length, (p[0] - q[0]) / length)
    middle = ((p[0] + q[0]) / 2 + 2 * bend * normal[0], (p[1] + q[1]) / 2 + 2 * bend * normal[1])
    return Curve([_towards(p, middle, RADIUS), middle, _towards(q, middle, RADIUS + 6)])


def _towards(p: Point, q: Point, step: float) -> Point:
    length = math.dist(p, q)
    return p[0] + (q[0] - p[0]) * step / length, p[1] + (q[1] - p[1]) * step / length


def lines_of(symbols: Sequence[str], most: int = 4) -> list[str]:
    """Symbols as lines of a label.

    >>> lines_of(["a", "b", "c", "d", "e"])
    ['a, b, c, d,', 'e']
    """
    rows = [", ".join(symbols[i : i + most]) for i in range(0, len(symbols), most)]
    return [row + ("," if i + 1 < len(rows) else "") for i, row in enumerate(rows)]


def _labels(graph: Graph, curves: dict[tuple[int, int], Curve], places: list[Point]) -> dict[tuple[int, int], Box]:
    """A place for each label, near its arrow and off the other labels, the states and the other arrows."""
    boxes: dict[tuple[int, int], Box] = {}
    states = [Box(x, y, 2 * RADIUS + 4, 2 * RADIUS + 4) for x, y in places]
    samples = {pair: [curve.at(i / 24) for i in range(25)] for pair, curve in curves.items()}
    for pair, curve in sorted(curves.items(), key=lambda item: item[0][0] != item[0][1]):
        lines = lines_of(graph.arrows[pair])
        width, height = max(map(len, lines)) * LETTER + 4, len(lines) * LINE
        choices: list[tuple[float, int, Box]] = []
        for t in (0.5, 0.42, 0.58, 0.35, 0.65, 0.28, 0.72):
            (x, y), (ahead_x, ahead_y) = curve.at(t), curve.at(t + 0.02)
            length = math.dist((x, y), (ahead_x, ahead_y))
            normal = ((ahead_y - y) / length, (x - ahead_x) / length)
            away = abs(normal[0]) * width / 2 + abs(normal[1]) * height / 2 + 3
            for side in (1, -1) if pair[0] != pair[1] else (1, -1, 0):
                box = Box(x + side * away * normal[0], y + side * away * normal[1], width, height)
                cost = 8 * abs(t - 0.5) + (0 if side == 1 else 0.5)
                cost += sum(box.overlap(other) for other in [*boxes.values(), *states])
                cost += sum(6.0 for other, points in samples.items() for point in points if box.holds(point))
                choices.append((cost, len(choices), box))
        boxes[pair] = min(choices, key=lambda choice: choice[:2])[2]
    return boxes


# -- SVG -----------------------------------------------------------------------------------------------------------


def _arrow(curve: Curve, wrong: bool) -> str:
    colour, end = (WRONG, "wrong") if wrong else (INK, "end")
    width = 2.2 if wrong else 1.3
    return f'<path d="{curve.path}" fill="none" stroke="{colour}" stroke-width="{width}" marker-end="url(#{end})"/>'


def _start(place: Point) -> str:
    """An arrow from the left."""
    x, y = place[0] - RADIUS, place[1]
    return (
        f'<path d="M{x - 36:.1f},{y:.1f} L{x - 6:.1f},{y:.1f}" stroke="{INK}" stroke-width="1.3" '
        f'marker-end="url(#end)"/>'
        f'<text x="{x - 40:.1f}" y="{y + 4:.1f}" text-anchor="end" class="small">start</text>'
    )


def _state(graph: Graph, number: int, place: Point) -> str:
    x, y = place
    name, text = html.escape(graph.names[number]), html.escape(graph.texts[number])
    circle = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS:g}" fill="{graph.colours[number]}" stroke="{INK}" '
        f'stroke-width="1.5"/>'
    )
    if not text:
        return f'{circle}<text x="{x:.1f}" y="{y + 5:.1f}" text-anchor="middle" class="name">{name}</text>'
    return (
        f'{circle}<text x="{x:.1f}" y="{y - 2:.1f}" text-anchor="middle" class="name">{name}</text>'
        f'<text x="{x:.1f}" y="{y + 13:.1f}" text-anchor="middle" class="small">{text}</text>'
    )


def _text(box: Box, lines: list[str], wrong: bool) -> str:
    colour = WRONG if wrong else INK
    rows = []
    for i, line in enumerate(lines):
        y = box.y - box.height / 2 + LINE * (i + 0.75)
        rows.append(
            f'<text x="{box.x:.1f}" y="{y:.1f}" text-anchor="middle" class="label" style="fill:{colour}">'
            f"{html.escape(line)}</text>"
        )
    return "".join(rows)


def _sheet(
    graph: Graph,
    body: list[str],
    places: list[Point],
    curves: dict[tuple[int, int], Curve],
    boxes: dict[tuple[int, int], Box],
) -> str:
    corners = [(b.x + s * b.width / 2, b.y + s * b.height / 2) for b in boxes.values() for s in (-1, 1)]
    corners += [(x + s * (RADIUS + 4), y + s * (RADIUS + 4)) for x, y in places for s in (-1, 1)]
    corners += [curve.at(i / 12) for curve in curves.values() for i in range(13)]
    corners.append((places[graph.start][0] - RADIUS - 70, places[graph.start][1]))
    left, top = min(x for x, _ in corners) - 12, min(y for _, y in corners) - 12
    right, bottom = max(x for x, _ in corners) + 12, max(y for _, y in corners) + 12
    texts = [graph.caption] if graph.caption else []
    wide = max([0.0, *(len(text) * 6.6 + 24 for text in texts), *(24 + len(m) * 7 for _, m in graph.legend)])
    if right - left < wide:
        left, right = left - (wide - right + left) / 2, right + (wide - right + left) / 2
    y, notes = bottom + 14, []
    for colour, meaning in graph.legend:
        notes.append(
            f'<circle cx="{left + 20:.1f}" cy="{y - 4:.1f}" r="6" fill="{colour}" stroke="{INK}"/>'
            f'<text x="{left + 32:.1f}" y="{y:.1f}" class="small">{html.escape(meaning)}</text>'
        )
        y += 18
    for text in texts:
        notes.append(f'<text x="{left + 14:.1f}" y="{y:.1f}" class="small">{html.escape(text)}</text>')
        y += 18
    bottom = y if notes else bottom
    width, height = right - left, bottom - top
    heads = "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="2" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{colour}"/></marker>'
        for name, colour in (("end", INK), ("wrong", WRONG))
    )
    style = (
        f".automaton text{{font-family:{FONT};fill:{INK}}} .name{{font-size:14px;font-weight:bold}} "
        ".small{font-size:12px} "
        ".label{font-size:13px;paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="automaton" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{left:.1f} {top:.1f} {width:.1f} {height:.1f}"><style>{style}</style><defs>{heads}</defs>'
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" fill="#fff"/>'
        f"{''.join(body)}{''.join(notes)}</svg>"
    )


def png(svg: str) -> bytes:
    """The same picture as PNG, at twice the size."""
    import vl_convert

    image: bytes = vl_convert.svg_to_png(svg, scale=2)
    return image
