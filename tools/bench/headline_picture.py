#!/usr/bin/env python3
"""Draws the README's picture from the newest lines of tools/bench/results: what a byte that programs ask for costs.

usage: headline_picture.py >tools/bench/results/headline.svg
"""

import headline

_ALLOCATORS = [  # a name, its key in the record, a colour that reads on light and on dark pages
    ("PyTorch", headline.NATIVE, "#8a8f98"),
    ("expandable segments", headline.SEGMENTS, "#c9822b"),
    ("commpool", headline.FIXED, "#2f81f7"),
    ("commpool, expandable", headline.EXPANDABLE, "#1a9e6c"),
]
_LEFT, _BAR, _GAP, _WIDTH, _TOP = 150, 9, 12, 520, 46


def _text(x, y, words, anchor="start", size=12):
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="#6e7681">{words}</text>'


def picture():
    programs, _ = headline.programs()
    scale = _WIDTH / max(max(held.values()) for held in programs.values())
    lines, x = [], 8
    for name, _, colour in _ALLOCATORS:
        lines += [f'<rect x="{x}" y="26" width="10" height="10" fill="{colour}"/>', _text(x + 14, 35, name)]
        x += 30 + 7 * len(name)
    y = _TOP
    for name, held in programs.items():
        lines.append(_text(_LEFT - 8, y + 2 * _BAR + 4, name, "end"))
        for _, key, colour in _ALLOCATORS:
            share = held[key]
            lines.append(f'<rect x="{_LEFT}" y="{y}" width="{share * scale:.0f}" height="{_BAR - 1}" fill="{colour}"/>')
            lines.append(_text(f"{_LEFT + share * scale + 4:.0f}", y + _BAR - 1, f"{share:.2f}", size=9))
            y += _BAR
        y += _GAP
    one = f"{_LEFT + scale:.0f}"
    lines.append(f'<line x1="{one}" y1="{_TOP - 4}" x2="{one}" y2="{y - _GAP}" stroke="#6e7681" '
                 'stroke-dasharray="2 3"/>')
    title = _text(8, 16, f"Memory held for a byte asked for, at the peak of {len(programs)} programs (less is better)")
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 40}" height="{y}" '
                      'font-family="sans-serif">', title, *lines, "</svg>"])


if __name__ == "__main__":
    print(picture())
