"""A smaller PNG of the same picture: areas of one colour take less without the filters that suit photographs."""

import struct
import zlib

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {2: 3, 6: 4}  # by the colour type: RGB, RGBA


def _chunks(data):
    place = len(_SIGNATURE)
    while place < len(data):
        length, kind = struct.unpack_from(">I4s", data, place)
        yield kind, data[place + 8:place + 8 + length]
        place += 12 + length


def _nearest(left, up, corner):
    guess = left + up - corner
    return min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[2]


def _unfiltered(kind, row, above, channels):
    predict = {1: lambda left, up, corner: left, 2: lambda left, up, corner: up,
               3: lambda left, up, corner: (left + up) // 2, 4: _nearest}.get(kind)
    for place in range(len(row)) if predict else ():
        before = place >= channels
        left, corner = (row[place - channels], above[place - channels]) if before else (0, 0)
        row[place] = (row[place] + predict(left, above[place], corner)) & 255
    return row


def small_png(data):
    chunks = list(_chunks(data))
    header = next(content for kind, content in chunks if kind == b"IHDR")
    width, _, _, colour = struct.unpack_from(">IIBB", header)
    channels = _CHANNELS[colour]
    lines = zlib.decompress(b"".join(content for kind, content in chunks if kind == b"IDAT"))
    size, above, rows = width * channels, bytearray(width * channels), []
    for start in range(0, len(lines), size + 1):
        above = _unfiltered(lines[start], bytearray(lines[start + 1:start + 1 + size]), above, channels)
        rows.append(b"\0" + above)
    written = [(b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows), 9)), (b"IEND", b"")]
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in written)
