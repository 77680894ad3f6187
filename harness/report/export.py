"""The tables as files for other programs: Markdown, CSV with full precision, LaTeX for `booktabs`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from harness.report.cells import Cell, Table

LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "±": r"$\pm$",
    "≤": r"$\le$",
    "<": r"$<$",
    ">": r"$>$",
}


def write_tables(folder: Path, listed: Sequence[Table], standing: str = "") -> None:
    """Write every table that has rows as `<name>.md`, `.csv` and `.tex`; files of an earlier report are removed.

    standing: what to say first of all under every title, since a table is shown apart from its report.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in (p for ending in ("md", "csv", "tex") for p in sorted(folder.glob(f"*.{ending}"))):
        old.unlink()
    for plain in listed:
        if plain.rows:
            table = replace(plain, about=f"{standing} {plain.about}".strip())
            (folder / f"{table.name}.md").write_text(markdown(table), encoding="utf-8")
            (folder / f"{table.name}.csv").write_text(comma_separated(table), encoding="utf-8", newline="")
            (folder / f"{table.name}.tex").write_text(latex(table), encoding="utf-8")


# --- Markdown -----------------------------------------------------------------------------------------------------


def markdown(table: Table) -> str:
    """The table with its title, and under it why values are missing."""
    parts = [f"## {table.title}", *([table.about] if table.about else [])]
    if table.rows:
        rule = "".join(" --- |" if nth < table.labels else " ---: |" for nth in range(len(table.header)))
        marks = table.notes
        lines = [_line(table.header), f"|{rule}"]
        lines += [_line([_marked(cell, marks) for cell in row]) for row in table.rows]
        parts.append("\n".join(lines))
        notes = [f"{mark}: {escaped(note)}" for note, mark in marks.items()]
        parts += ["; ".join(notes) + "."] if notes else []
    else:
        parts.append(table.empty)
    return "\n\n".join(parts) + "\n"


def escaped(text: object) -> str:
    """Text that cannot end a cell of a Markdown table, nor its line, nor bring HTML into a page."""
    flat = " ".join(str(text).split())
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(escaped(cell) for cell in cells)} |"


def _marked(cell: Cell, marks: Mapping[str, str]) -> str:
    return f"{cell.text} ({marks[cell.because]})" if cell.because else cell.text


# --- CSV ----------------------------------------------------------------------------------------------------------


def comma_separated(table: Table) -> str:
    """One line per row; a column of several numbers becomes several columns, each in full precision.

    Where a value is missing, the first of its columns says why.
    """
    widths = [max([1, *(len(row[at].numbers) for row in table.rows)]) for at in range(len(table.header))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([name for name, width in zip(table.header, widths, strict=True) for name in _names(name, width)])
    for row in table.rows:
        writer.writerow([text for cell, width in zip(row, widths, strict=True) for text in _values(cell, width)])
    return out.getvalue()


def _names(header: str, width: int) -> list[str]:
    """`estimate [mixture, 95 %]` of three numbers: estimate, low and high; `a / b`: a and b."""
    if width == 1:
        return [header]
    split = [part.strip() for part in header.split(" / ")]
    if len(split) == width:
        return split
    if width == 3:
        return [header, f"{header} low", f"{header} high"]
    if width == 2 and header.startswith("["):
        return [f"{header} low", f"{header} high"]
    return [header, *(f"{header} {nth}" for nth in range(2, width + 1))]


def _values(cell: Cell, width: int) -> list[str]:
    numbers = [number.exact for number in cell.numbers]
    if numbers:
        return [*numbers, *[""] * (width - len(numbers))]
    told = f"not applicable: {cell.because}" if cell.because else cell.text
    return [told, *[""] * (width - 1)]


# --- LaTeX --------------------------------------------------------------------------------------------------------


def latex(table: Table) -> str:
    r"""A `table` environment with the rules of `booktabs`; `\usepackage{booktabs}` is all that it needs."""
    columns = "l" * table.labels + "r" * (len(table.header) - table.labels)
    marks = table.notes
    notes = " ".join(f"{mark}: {note}." for note, mark in marks.items())
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{tex(' '.join(filter(None, (table.title + '.', table.about, notes))))}}}",
        rf"\label{{tab:{table.name.replace('_', '-')}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(tex(name) for name in table.header) + r" \\",
        r"\midrule",
        *(" & ".join(_tex_cell(cell, marks) for cell in row) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def tex(text: str) -> str:
    """Plain text with everything escaped that LaTeX would read as a command."""
    flat = " ".join(text.split())
    return re.sub(r"[\\&%$#_{}~^–±≤<>]", lambda found: LATEX[found.group()], flat)


def _tex_cell(cell: Cell, marks: Mapping[str, str]) -> str:
    text, mark = tex(cell.text), marks.get(cell.because)
    if text.startswith("["):  # after a line break it would be read as the size of the break
        text = "{[}" + text[1:]
    return rf"{text}\textsuperscript{{{mark}}}" if mark else text
