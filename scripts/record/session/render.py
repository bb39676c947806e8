"""Renders an asciinema cast as an animated SVG on stdout.

    render.py CAST

A frame is a screen; each of its lines is drawn once and referred to by every frame that shows it. The colours are those of a
light or a dark terminal, as the reader's browser prefers.
"""

import hashlib
import html
import json
import pathlib
import re
import sys

import pyte

# Longer pauses are shortened to this, in seconds; frames that are closer to each other than that are one.
LONGEST_PAUSE, SHORTEST_FRAME = 1.6, 0.12
# How long the last frame stays.
END = 5
# The size of a character, and what is left free around the screen.
WIDTH, HEIGHT, MARGIN = 8.4, 19, 14
COLOURS = {
    "default": ("#24292f", "#e6edf3"),
    "brightblack": ("#6e7781", "#8b949e"),
    "black": ("#24292f", "#8b949e"),
    "red": ("#cf222e", "#ff7b72"),
    "green": ("#116329", "#7ee787"),
    "brown": ("#7d4e00", "#d29922"),
    "blue": ("#0969da", "#79c0ff"),
    "magenta": ("#8250df", "#d2a8ff"),
    "cyan": ("#1b7c83", "#76e3ea"),
    "white": ("#24292f", "#e6edf3"),
}
BACKGROUND = ("#f6f8fa", "#0d1117")


def screens(cast):
    """The screens of a cast with the times at which they appear."""
    header, *events = [json.loads(line) for line in cast.splitlines()]
    screen = pyte.Screen(header["width"], header["height"])
    stream = pyte.Stream(screen)
    shown, now, last = [], 0.0, 0.0
    for time, _, text in events:
        now += min(time - last, LONGEST_PAUSE)
        last = time
        # The library does not know faint text.
        stream.feed(text.replace("\x1b[2m", "\x1b[90m"))
        rows = tuple(tuple(spans(screen, row)) for row in range(screen.lines))
        if shown and now - shown[-1][0] < SHORTEST_FRAME:
            shown[-1] = (shown[-1][0], rows)
        elif not shown or shown[-1][1] != rows:
            shown.append((now, rows))
    return header, shown, now + END


def spans(screen, row):
    """The parts of a line that look the same: where they begin, how they look, and their text."""
    line, found = screen.buffer[row], []
    for column in range(screen.columns):
        cell = line[column]
        look = (cell.fg, cell.bold, cell.italics, cell.underscore)
        if column and found[-1][1] == look:
            found[-1][2] += cell.data
        else:
            found.append([column, look, cell.data])
    # Not every program that draws SVG keeps several spaces.
    words = ((column, look, part) for column, look, text in found for part in re.finditer(r"\S+(?: \S+)*", text))
    return [(column + part.start(), look, part.group()) for column, look, part in words]


def classes(look):
    colour, bold, italics, underscore = look
    names = [] if colour == "default" else [colour.removeprefix("bright") if colour != "brightblack" else colour]
    return names + [name for name, is_set in (("b", bold), ("i", italics), ("u", underscore)) if is_set]


def drawn(row):
    parts = []
    for column, look, text in row:
        names = " ".join(classes(look))
        names = f' class="{names}"' if names else ""
        # The font need not be as wide as here.
        x, length = f"{column * WIDTH:g}", f"{len(text) * WIDTH:g}"
        parts.append(f'<text x="{x}" textLength="{length}"{names}>{html.escape(text, quote=False)}</text>')
    return "".join(parts)


def style(frames, length, width):
    def palette(which):
        rules = [f".{name}{{fill:{colours[which]}}}" for name, colours in COLOURS.items() if name != "default"]
        return "".join([f"text{{fill:{COLOURS['default'][which]}}}", f".p{{fill:{BACKGROUND[which]}}}", *rules])

    steps = [f"{100 * time / length:.2f}%{{transform:translateX({-index * width:g}px)}}" for index, (time, _) in frames]
    end = -(len(frames) - 1) * width
    return (
        "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}"
        f".b{{font-weight:bold}}.i{{font-style:italic}}.u{{text-decoration:underline}}{palette(0)}"
        f"@media (prefers-color-scheme:dark){{{palette(1)}}}"
        f".film{{animation:film {length:.1f}s steps(1,end) infinite}}@keyframes film{{{''.join(steps)}}}"
        f"@media (prefers-reduced-motion){{.film{{animation:none;transform:translateX({end:g}px)}}}}"
    )


def main():
    cast = pathlib.Path(sys.argv[1])
    header, shown, length = screens(cast.read_text())
    width, height = header["width"] * WIDTH, header["height"] * HEIGHT
    rows = {row: index for index, row in enumerate(dict.fromkeys(row for _, frame in shown for row in frame if row))}
    frames = list(enumerate(shown))
    digest = hashlib.sha256(cast.read_bytes()).hexdigest()
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 2 * MARGIN:g} {height + 2 * MARGIN:g}" role="img">'
        f"<!-- scripts/record.sh session made this from {cast.name} with the SHA-256 {digest} -->"
        f"<title>{html.escape(header['title'])}</title><style>{style(frames, length, width)}</style><defs>"
    )
    for row, index in rows.items():
        print(f'<g id="l{index}">{drawn(row)}</g>')
    print(
        f'</defs><rect class="p" width="100%" height="100%" rx="8"/><svg x="{MARGIN}" y="{MARGIN}" width="{width:g}" '
        f'height="{height:g}"><g class="film">'
    )
    for index, (_, frame) in frames:
        lines = ((line + 1) * HEIGHT - 5 for line in range(len(frame)))
        uses = (f'<use href="#l{rows[row]}" y="{y}"/>' for row, y in zip(frame, lines) if row)
        print(f'<g transform="translate({index * width:g})">{"".join(uses)}</g>')
    print("</g></svg></svg>")


main()
