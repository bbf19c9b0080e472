"""Chooses how a product of matrices is cut into blocks, from its shape, its numbers and the processor.

Pure arithmetic: every size can be asked for instead, and the tests say what comes out for which numbers.

The loops are those of Goto and van de Geijn. A block of ``kc`` steps by ``nc`` columns of the right operand is
packed for all threads and lies in the last-level cache; a block of ``mc`` rows by ``kc`` steps of the left operand
is packed by each thread for itself and lies in its second-level cache; and every tile of ``mr`` by ``nr`` results
is computed in registers, from a panel of ``mr`` rows and one of ``nr`` columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Blocks", "Machine", "Numbers", "Shape", "Sizes", "choose_blocks"]

_ASSUMED_L2 = 512 << 10
_ASSUMED_L3 = 8 << 20
"""Bytes, where a system tells no size: what a small server processor has for each core."""

THREAD_WORK = 1 << 20
"""Multiply-adds below which one thread does a product alone: 20 µs or so, where waking another takes about 5."""


EDGE = 4
"""Rows that could be computed while a tile that lies partly in the result is stored: it goes by way of memory."""

LATENCY = 8
"""Multiply-adds that a core has under way at once: two a clock, each of which takes four."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a product is: ``batches`` products of ``m`` by ``k`` with ``k`` by ``n``."""

    batches: int
    m: int
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """What is computed with."""

    lanes: int
    """Sums in a vector register."""
    bytes: int
    """Of a packed number."""
    pair: int = 1
    """Products of neighbouring steps that one instruction adds to each sum."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What is computed on."""

    registers: int
    """Vector registers of a core."""
    threads: int = 1
    l2: int = 0
    """Bytes of a core's own cache; 0 where that is not known."""
    l3: int = 0
    """Bytes of the cache that all share; 0 where that is not known."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is asked for; 0 leaves the choice to :func:`choose_blocks`."""

    mr: int = 0
    nr: int = 0
    kc: int = 0
    mc: int = 0
    nc: int = 0
    unroll: int = 0


@dataclass(frozen=True, slots=True)
class Blocks:
    """The sizes of the blocks, and how the work is shared out."""

    mr: int
    """Rows of a tile."""
    nr: int
    """Columns of a tile, whole vectors."""
    kc: int
    """Steps of a block."""
    mc: int
    """Rows of a block, whole tiles."""
    nc: int
    """Columns of a block, whole tiles."""
    unroll: int = 1
    """Times that the innermost loop's body is repeated; divides the lanes of a vector."""
    over_batches: int = 1
    """Threads that each take some of the batches."""
    over_rows: int = 1
    """Threads that each take some of the rows."""
    over_columns: int = 1
    """Threads that each take some of the columns."""

    @property
    def inside(self) -> int:
        """Threads that work on one product together."""
        return self.over_rows * self.over_columns


def choose_blocks(shape: Shape, numbers: Numbers, machine: Machine, wanted: Sizes = Sizes()) -> Blocks:
    """Choose the blocks of a product.

    Args:
        shape: How large it is.
        numbers: What it computes with.
        machine: What it runs on.
        wanted: Sizes to take as they are; what must be a multiple of another is rounded up to one.
    """
    over_batches = _over_batches(shape, machine.threads)
    threads = 1 if over_batches > 1 else machine.threads
    if shape.batches * shape.m * shape.n * shape.k < THREAD_WORK:
        threads = over_batches = 1
    mr, nr, rows, columns = _tile(shape, numbers, machine, threads, wanted)
    # Packing fills a block's steps up to whole vectors, so that a turn of the loop must not read beyond one.
    unroll = 1 << (min(wanted.unroll or 1, numbers.lanes).bit_length() - 1)
    step = numbers.lanes * numbers.pair
    blocks = Blocks(mr, nr, kc=0, mc=0, nc=0, unroll=unroll)
    kc = _up(wanted.kc or _share(shape.k, _deepest(mr, nr, numbers, machine)), step)
    mc = _up(wanted.mc, mr) or _block_rows(shape, blocks, kc * numbers.bytes, machine, rows)
    nc = _up(wanted.nc, nr) or _block_columns(shape, nr, kc * numbers.bytes, machine)
    return replace(
        blocks, kc=kc, mc=mc, nc=nc, over_batches=over_batches, over_rows=rows, over_columns=columns
    )


def _over_batches(shape: Shape, threads: int) -> int:
    """Threads over the batches: all where that shares the work out evenly, else none."""
    if shape.batches < 2 or threads == 1:
        return 1
    work = shape.m * shape.n * shape.k
    if shape.batches >= threads:
        turns = -(-shape.batches // threads)
        idle = 1 - shape.batches / (turns * threads)
        # A tenth of the time lost is more than the packing and waking that sharing each product costs, unless
        # each is small.
        return threads if idle < 0.1 or work < 4 * THREAD_WORK else 1
    return shape.batches if work < 4 * THREAD_WORK else 1


def _tile(
    shape: Shape, numbers: Numbers, machine: Machine, threads: int, wanted: Sizes
) -> tuple[int, int, int, int]:
    """Choose a tile's rows and columns, and the threads over rows and over columns: the busiest thread does least.

    Each step costs a tile its multiply-adds or its loads, whichever are more, and one more for the loop; a row that a
    thread packs costs one. What lies beyond the result counts as the rest, and :data:`EDGE` rows more a tile.
    """
    lanes = numbers.lanes
    nr = _up(wanted.nr, lanes)
    best: tuple[tuple[int, ...], tuple[int, int, int, int]] | None = None
    for vectors in [nr // lanes] if nr else range(1, min(4, -(-shape.n // lanes)) + 1):
        panels = -(-shape.n // (vectors * lanes))
        most = min(_most_rows(vectors, machine), shape.m)
        for mr in [wanted.mr] if wanted.mr else range(most, 0, -1):
            tiles = -(-shape.m // mr)
            work = max(mr * vectors, mr + vectors, LATENCY) + 1
            edges = (
                EDGE
                * vectors
                * ((panels if shape.m % mr else 0) + (tiles if shape.n % (vectors * lanes) else 0))
            )
            for over_columns in range(1, threads + 1):
                if threads % over_columns:
                    continue
                over_rows, columns = min(threads // over_columns, tiles), min(over_columns, panels)
                busiest = -(-tiles // over_rows) * (-(-panels // columns) * work + mr)
                order = (threads * busiest + edges, over_columns, -mr * vectors)
                if best is None or order < best[0]:
                    best = order, (mr, vectors * lanes, over_rows, columns)
    assert best is not None
    return best[1]


def _most_rows(vectors: int, machine: Machine) -> int:
    """Rows of a tile of so many vectors: the sums fill three quarters of the registers.

    What is left holds the right operand's vectors and the left one's number. On a Zen 4 with 32 registers, 12 rows
    of two vectors and 6 rows of four reached 94 % of the peak at 1024³, 14 rows of two 72 %: LLVM spilled. More than
    12 rows are more streams from memory than a processor follows: in f64, 6 rows of four reached 90 %, 12 of two 80.
    """
    return max(
        1, min(12, machine.registers * 3 // 4 // vectors, (machine.registers - vectors - 1) // vectors)
    )


def _deepest(mr: int, nr: int, numbers: Numbers, machine: Machine) -> int:
    """Steps of which a panel of columns fills a quarter of the second-level cache, and one of rows a sixteenth.

    Deeper is better until then: each block of steps reads and writes the sums once more. 2048³ on a Zen 4 with 1 MB
    and 32 columns: 87 % of the peak with 256 steps, 93 with 512, 94 with 1024, 95 with 2048.
    """
    return max((machine.l2 or _ASSUMED_L2) // (max(4 * nr, 16 * mr) * numbers.bytes), 64)


def _share(k: int, most: int) -> int:
    """Cut ``k`` steps into equal blocks of about ``most``: up to half as many again make no block of their own."""
    return -(-k // max(1, round(k / most)))


def _block_rows(shape: Shape, blocks: Blocks, row: int, machine: Machine, threads: int) -> int:
    """Rows that fill half of the second-level cache, shared out evenly over what a thread has."""
    most = max((machine.l2 or _ASSUMED_L2) // 2 // row, blocks.mr) // blocks.mr
    tiles = -(-shape.m // blocks.mr)
    mine = -(-tiles // threads)
    return -(-mine // -(-mine // most)) * blocks.mr


def _block_columns(shape: Shape, nr: int, column: int, machine: Machine) -> int:
    """Columns that fill half of the last-level cache, in equal blocks."""
    most = max((machine.l3 or _ASSUMED_L3) // 2 // column, nr) // nr
    panels = -(-shape.n // nr)
    return -(-panels // -(-panels // most)) * nr


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
