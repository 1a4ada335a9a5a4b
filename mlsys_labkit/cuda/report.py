"""A profile as a table for the terminal and as HTML without a script, for light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from mlsys_labkit._base.light_dark_colours import COLOURS
from mlsys_labkit._base.text_table import text_table
from mlsys_labkit._base.units import plain, si
from mlsys_labkit.cuda.counters import SECTOR_BYTES, Counters, LineCount
from mlsys_labkit.timing.record import duration

_HEADINGS = (
    "line",
    "space",
    "access",
    "bytes",
    "requests",
    "lanes",
    "sectors",
    "wavefronts",
    "least",
    "worst",
    "source",
)
_NUMERIC = range(3, 10)
_IN_SECTORS = ("global", "local")
_NOTE = {
    "bytes": "per lane",
    "lanes": "active, per request",
    "sectors": "of 32 bytes, per request",
    "wavefronts": "passes over the banks or the constant cache, per request",
    "least": "sectors or wavefronts that the bytes need, per request",
    "worst": "most in one request",
}
_STYLE = """
.lk-profile{font:13px/1.45 system-ui,sans-serif;overflow-x:auto}
.lk-profile table{border-collapse:collapse;margin:.4em 0;font-size:inherit}
.lk-profile th,.lk-profile td{padding:.1em .6em;text-align:left;border:0;background:none}
.lk-profile th{border-bottom:1px solid currentColor;font-weight:600}
.lk-profile .n{text-align:right;font-variant-numeric:tabular-nums}
.lk-profile td.s,.lk-profile .code td{font-family:ui-monospace,monospace;white-space:pre}
.lk-profile .above{font-weight:700}
.lk-profile .note{opacity:.75}
.lk-profile .bar{display:inline-block;height:.7em;background:BAR}
""".replace("BAR", COLOURS["orange"].figure)


def text_report(profile: Counters) -> str:
    """Return the table that ``print(profile)`` shows: a row for each kind of access, and the totals."""
    rows = [(*row[:-1], row[-1][:70]) for row in (_HEADINGS, *_rows(profile))]
    return "\n".join([_title(profile), *text_table(rows, (0, *_NUMERIC)), *_totals(profile), _caveat(profile)])


def html_report(profile: Counters) -> str:
    """Return the same as HTML, and the source with the share of the kernel's lanes that passed each line."""
    head = "".join(
        f'<th{_class(column)} title="{escape(_NOTE.get(name, name))}">{name}</th>'
        for column, name in enumerate(_HEADINGS)
    )
    body = "".join(_html_row(count, row) for count, row in zip(_accesses(profile), _rows(profile), strict=True))
    totals = "".join(f"<div>{escape(line)}</div>" for line in _totals(profile))
    return (
        f'<div class="lk-profile"><style>{_STYLE}</style><b>{escape(_title(profile))}</b>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{totals}"
        f'<div class="note">{escape(_caveat(profile))}</div>'
        f"<details><summary>source and heat</summary>{_annotated(profile)}</details></div>"
    )


def _accesses(profile: Counters) -> list[LineCount]:
    return [count for count in profile.lines if count.requests]


def _rows(profile: Counters) -> list[tuple[str, ...]]:
    source = profile.source.splitlines()
    return [
        (
            f"{count.file}:{count.line}" if count.file else str(count.line or "?"),
            count.space,
            count.op,
            str(count.bytes_per_lane),
            f"{count.requests:,}",
            plain(count.lanes / count.requests),
            plain(count.sectors / count.requests) if count.space in _IN_SECTORS else "",
            plain(count.wavefronts / count.requests) if count.wavefronts else "",
            plain(_least(count) / count.requests),
            str(count.worst),
            source[count.line - 1].strip() if 0 < count.line <= len(source) and not count.file else "",
        )
        for count in _accesses(profile)
    ]


def _least(count: LineCount) -> int:
    return count.ideal_sectors if count.space in _IN_SECTORS else count.ideal_wavefronts


def _excessive(count: LineCount) -> bool:
    return (count.sectors if count.space in _IN_SECTORS else count.wavefronts) > _least(count)


def _title(profile: Counters) -> str:
    shared = f", {profile.shared_bytes} bytes of dynamic shared memory" if profile.shared_bytes else ""
    return f"{profile.kernel}, grid {_dims(profile.grid)}, block {_dims(profile.block)}{shared}"


def _dims(extent: Sequence[int]) -> str:
    shown = list(extent)
    while len(shown) > 1 and shown[-1] == 1:
        shown.pop()
    return " x ".join(map(str, shown))


def _totals(profile: Counters) -> Iterable[str]:
    work = profile.work
    loads, stores = profile.global_load_requests, profile.global_store_requests
    if loads or stores or profile.global_atomic_requests:
        asked = SECTOR_BYTES * profile.total("global", None, "sectors")
        yield (
            f"global memory: {si(asked, 'B')} in sectors ({_a_request(profile)}); "
            f"distinct bytes: {si(profile.bytes_read, 'B')} read, {si(profile.bytes_written, 'B')} written"
        )
    if profile.bulk_copies:
        flying = si(profile.bulk_bytes_in_flight, "B")
        yield f"{profile.bulk_copies:,} bulk copies, at most {flying} in flight into one block"
    if profile.worst_bank_conflict:
        worst = f", worst {profile.worst_bank_conflict}-way" if profile.bank_conflicts else ""
        yield (
            f"shared memory: {profile.total('shared', None, 'wavefronts'):,} wavefronts, "
            f"{profile.bank_conflicts:,} of them bank conflicts{worst}"
        )
    if local := profile.total("local", None, "requests"):
        yield (
            f"local memory: {local:,} requests, {si(SECTOR_BYTES * profile.total('local', None, 'sectors'), 'B')} in "
            "sectors, of arrays with an index that is known only at run time"
        )
    if loads := profile.constant_load_requests:
        yield f"constant memory: {loads:,} loads, {profile.constant_load_wavefronts:,} passes over its cache"
    yield (
        f"{profile.barriers:,} block barriers; SIMT efficiency {100 * profile.simt_efficiency:.1f} %; "
        f"{si(work.flops, 'FLOP')}" + (f", {plain(work.intensity)} FLOP/B" if work.bytes_moved else "")
    )


def _a_request(profile: Counters) -> str:
    parts = [
        f"{plain(each)} a {name}"
        for name, each in (
            ("load", profile.sectors_per_load_request),
            ("store", profile.sectors_per_store_request),
            ("atomic", profile.sectors_per_atomic_request),
        )
        if each
    ]
    return ", ".join(parts)


def _caveat(profile: Counters) -> str:
    part = f"; {profile.blocks_run:,} of {profile.blocks_total:,} blocks were run" if profile.sampled else ""
    counted = f"{profile.label}: counted from the source as the CPU's compiler left it"
    caveat = f"{counted}, not measured on a GPU, no caches{part}"
    if profile.gpu_seconds is None:
        return caveat
    return f"{caveat}. Measured on {profile.gpu}: the whole launch took {duration(profile.gpu_seconds)}"


def _class(column: int) -> str:
    return ' class="n"' if column in (0, *_NUMERIC) else ""


def _html_row(count: LineCount, row: Sequence[str]) -> str:
    above = ' class="above"' if _excessive(count) else ""
    cells = "".join(f"<td{_class(column)}>{escape(cell)}</td>" for column, cell in enumerate(row[:-1]))
    return f'<tr{above}>{cells}<td class="s">{escape(row[-1])}</td></tr>'


def _annotated(profile: Counters) -> str:
    """Return every source line, with a bar as long as the share of the busiest line's lanes that passed it."""
    executed: dict[int, int] = {}
    for count in (one for one in profile.lines if not one.file):
        executed[count.line] = max(executed.get(count.line, 0), count.executed)
    most = max(executed.values(), default=0) or 1
    rows = []
    for number, text in enumerate(profile.source.expandtabs(4).splitlines(), 1):
        lanes = executed.get(number, 0)
        bar = f'<span class="bar" style="width:{5 * lanes / most:.2f}em"></span>' if lanes else ""
        shown = f"{lanes:,}" if lanes else ""
        rows.append(
            f'<tr><td class="n">{number}</td><td>{bar}</td><td class="n">{shown}</td><td>{escape(text)}</td></tr>'
        )
    return (
        '<table class="code"><thead><tr><th class="n">line</th><th>heat</th><th class="n">lanes</th><th>source</th>'
        f"</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )
