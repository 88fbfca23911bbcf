#!/usr/bin/env python3
"""Sets a markdown file as a PDF: headings, paragraphs, lists; Helvetica, A4, no dependencies.

usage: typeset.py INPUT.md OUTPUT.pdf    (- reads standard input)

The same text makes the same bytes. Nothing is compressed, so that a PDF can be read with any editor.
"""

import re
import sys

WIDTH, HEIGHT, MARGIN = 595, 842, 71
BODY = 10.5
HEADINGS = {1: 20, 2: 14, 3: 12}
LEADING = 1.35

# Of Helvetica, in thousandths of the size, from the space to the tilde.
WIDTHS = [int(width) for width in """
278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 278 278 584 584 584
556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 667 778 722 667 611 722 667 944 667 667 611 278 278 278
469 556 333 556 556 500 556 556 278 556 556 222 222 500 222 833 556 556 556 556 333 500 278 556 500 722 500 500 500 334 260
334 584""".split()]


def width(text, size):
    return sum(WIDTHS[ord(c) - 32] if 32 <= ord(c) < 127 else 556 for c in text) * size / 1000


def wrap(text, size, room):
    lines, line = [], ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if line and width(longer, size) > room:
            lines.append(line)
            line = word
        else:
            line = longer
    return lines + [line]


def blocks(markdown):
    """(level, text) of each heading, ("-", text) of each list item, (0, text) of each paragraph."""
    for part in re.split(r"\n\s*\n", markdown):
        lines, kind = [], 0
        for line in part.strip().split("\n"):
            heading = re.match(r"(#{1,3}) (.*)", line)
            if heading or line.startswith("- "):
                if lines:
                    yield kind, " ".join(lines)
                kind, lines = (len(heading[1]), [heading[2]]) if heading else ("-", [line[2:]])
            elif line.strip():
                lines.append(line.strip())
        if lines:
            yield kind, " ".join(lines)


def escaped(text):
    raw = text.encode("cp1252", "replace")
    return raw.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def pages(markdown):
    """The content of each page, as lines of (font, size, x, y, text)."""
    page, y, done = [], HEIGHT - MARGIN, []
    for kind, text in blocks(markdown):
        is_heading = kind in HEADINGS
        size = HEADINGS.get(kind, BODY)
        font = "F2" if is_heading else "F1"
        indent = 14 if kind == "-" else 0
        lines = wrap(re.sub(r"[*`]", "", text), size, WIDTH - 2 * MARGIN - indent)
        above = size * (1.1 if is_heading else 0.2 if kind == "-" else 0.6)
        y -= above if page else 0
        # A heading does not stand alone at the foot of a page.
        room = len(lines) * size * LEADING + (4 * BODY if is_heading else 0)
        if is_heading and y - room < MARGIN:
            done.append(page)
            page, y = [], HEIGHT - MARGIN
        for number, line in enumerate(lines):
            if y - size * LEADING < MARGIN:
                done.append(page)
                page, y = [], HEIGHT - MARGIN
            y -= size * LEADING
            if kind == "-" and number == 0:
                page.append(("F1", size, MARGIN, y, "\u2022"))
            page.append((font, size, MARGIN + indent, y, line))
    return done + [page]


def content(page, number):
    lines = page + [("F1", 8, WIDTH / 2 - 4, MARGIN / 2, str(number))]
    return b"".join(b"BT /%s %.5g Tf %.2f %.2f Td (%s) Tj ET\n" % (font.encode(), size, x, y, escaped(text))
                    for font, size, x, y, text in lines)


def pdf(markdown):
    title = next((text for kind, text in blocks(markdown) if kind == 1), "Untitled")
    sheets = pages(markdown)
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"",
               *(b"<< /Type /Font /Subtype /Type1 /BaseFont /%s /Encoding /WinAnsiEncoding >>" % name
                 for name in (b"Helvetica", b"Helvetica-Bold")),
               b"<< /Title (%s) /Producer (typeset.py) >>" % escaped(title)]
    kids = []
    for number, page in enumerate(sheets, 1):
        stream = content(page, number)
        objects.append(b"<< /Length %d >>\nstream\n%sendstream" % (len(stream), stream))
        objects.append(b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Contents %d 0 R "
                       b"/Resources << /Font << /F1 3 0 R /F2 4 0 R >> >> >>" % (WIDTH, HEIGHT, len(objects)))
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(kids), len(kids))
    out = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R /Info 5 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(out)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = sys.argv[1:]
    markdown = sys.stdin.read() if source == "-" else open(source, encoding="utf-8").read()
    with open(target, "wb") as file:
        file.write(pdf(markdown))


if __name__ == "__main__":
    main()
