"""The picture of a soak: panels with one time axis, as SVG that needs nothing but a browser."""

from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, PANEL, GAP, TOP = 980, 78, 200, 150, 46, 64
COLOURS = ("#1f6fb4", "#d1600f", "#2a8a3e", "#8a3fa0", "#b03040", "#5a5a5a")
STYLE = ("text{font:12px sans-serif;fill:#222}.t{font:bold 18px sans-serif}.p{font:bold 13px "
         "sans-serif}.g{stroke:#ddd}.a{stroke:#444;fill:none}.k{stroke:#c00;stroke-dasharray:4 3}"
         ".r{fill:#c00;font-size:10px}.q{fill:#e8f1e4}")


def nice(most):
    """A round step so that the axis has four or five lines."""
    step = 1.0
    while step * 5 < most:
        step *= 10
    while step / 10 * 5 >= most:
        step /= 10
    for part in (0.2, 0.4, 0.5, 1):
        if step * part * 5 >= most:
            return step * part
    return step


def number(value):
    return "%g" % round(value, 3)


class Picture:
    def __init__(self, title, seconds, kills, rests):
        """`kills`: [(second, what)]; `rests`: [(second, second)] without load."""
        self.seconds, self.kills, self.rests = max(seconds, 1), kills, rests
        self.parts, self.y, self.title = [], TOP, title

    def x(self, second):
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(second, 0), self.seconds) / self.seconds

    def add(self, *parts):
        self.parts.extend(parts)

    def text(self, x, y, text, style="", anchor="start"):
        self.add('<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>'
                 % (x, y, style, anchor, escape(text)))

    def line(self, x1, y1, x2, y2, style):
        self.add('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>'
                 % (x1, y1, x2, y2, style))

    def panel(self, title, unit, series):
        """`series`: {name: [(second, value)]}."""
        top, bottom, right = self.y, self.y + PANEL, WIDTH - RIGHT
        most = max([v for points in series.values() for _, v in points] + [1e-9])
        step = nice(most)
        most = step * max(1, -(-most // step))
        self.text(LEFT, top - 8, "%s (%s)" % (title, unit), "p")
        for begun, ended in self.rests:
            self.add('<rect x="%.1f" y="%d" width="%.1f" height="%d" class="q"/>' % (
                self.x(begun), top, max(1, self.x(ended) - self.x(begun)), PANEL))
        for i in range(int(round(most / step)) + 1):
            y = bottom - PANEL * i * step / most
            self.line(LEFT, y, right, y, "g")
            self.text(LEFT - 6, y + 4, number(i * step), anchor="end")
        for at, _ in self.kills:
            self.line(self.x(at), top, self.x(at), bottom, "k")
        for i, (name, points) in enumerate(series.items()):
            colour = COLOURS[i % len(COLOURS)]
            where = " ".join("%.1f,%.1f" % (self.x(x), bottom - PANEL * y / most)
                             for x, y in points)
            self.add('<polyline points="%s" fill="none" stroke="%s" stroke-width="1.6"/>'
                     % (where, colour))
            y = top + 12 + 18 * i
            self.add('<rect x="%d" y="%.1f" width="14" height="4" fill="%s"/>'
                     % (right + 14, y - 6, colour))
            self.text(right + 34, y, name)
        self.add('<path d="M%d,%d V%d H%d" class="a"/>' % (LEFT, top, bottom, right))
        tick = nice(self.seconds)
        for i in range(int(self.seconds / tick) + 1):
            self.text(self.x(i * tick), bottom + 16, number(i * tick), anchor="middle")
        self.y = bottom + GAP + 12

    def svg(self):
        legend = TOP - 34
        self.text(LEFT, legend - 6, self.title, "t")
        self.line(WIDTH - RIGHT - 300, legend + 10, WIDTH - RIGHT - 280, legend + 10, "k")
        self.text(WIDTH - RIGHT - 274, legend + 14, "kill -9 (s server, r runner)")
        self.add('<rect x="%d" y="%d" width="20" height="10" class="q"/>'
                 % (WIDTH - RIGHT - 100, legend + 5))
        self.text(WIDTH - RIGHT - 74, legend + 14, "quiet point")
        for at, what in self.kills:
            self.text(self.x(at), self.y - GAP + 14, what, "r", "middle")
        self.text((LEFT + WIDTH - RIGHT) / 2, self.y - GAP + 30, "seconds since the start",
                  anchor="middle")
        height = self.y
        return ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" '
                'viewBox="0 0 %d %d"><style>%s</style><rect width="100%%" height="100%%" '
                'fill="#fff"/>%s</svg>\n' % (WIDTH, height, WIDTH, height, STYLE,
                                             "".join(self.parts)))


def rates(times, seconds, width):
    """Events per second in buckets of `width` seconds."""
    counts = [0] * (int(seconds / width) + 1)
    for at in times:
        if 0 <= at < seconds:
            counts[int(at / width)] += 1
    return [((i + 0.5) * width, n / width) for i, n in enumerate(counts[:-1])]


def buckets(points, seconds, width, take):
    """`take` of the values in each bucket of `width` seconds; empty ones are left out."""
    found = {}
    for at, value in points:
        if 0 <= at < seconds:
            found.setdefault(int(at / width), []).append(value)
    return [((i + 0.5) * width, take(v)) for i, v in sorted(found.items())]
