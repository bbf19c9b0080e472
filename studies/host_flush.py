"""How cold a CPU's cold is: what a line of 4 MiB costs after reading more and more, and after it was thrown out.

    cc -O2 -shared -fPIC -o host_flush.so studies/host_flush.c
    python studies/host_flush.py host_flush.so

An x86 instruction throws single lines out of every cache; that is what a flush by reading has to come near. The lines
lie in 4 MiB, more than a core's own caches, so that warm is the last level; they are followed in a random order.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable
from statistics import median
from time import perf_counter

SIZE = 4 << 20
LINE = 64
READ_MIB = (16, 64, 128, 256, 320, 512, 1024)
ROUNDS = 9


def main() -> None:
    """Print nanoseconds a line, and what the flush before it costs."""
    import numpy as np

    from kernelmark.device import open_device
    from kernelmark.device.eviction import HostReadFlusher

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", help="studies/host_flush.c, built")
    library = ctypes.CDLL(parser.parse_args().library)
    library.follow.restype, library.follow.argtypes = ctypes.c_double, (ctypes.c_void_p, ctypes.c_size_t)
    library.throw_out.argtypes = (ctypes.c_void_p, ctypes.c_size_t)

    order = np.random.default_rng(0).permutation(SIZE // LINE)
    lines = np.zeros(SIZE // 4, dtype=np.uint32)
    lines[order * (LINE // 4)] = np.roll(order, -1)
    at, count = lines.ctypes.data, SIZE // LINE

    def after(flush: Callable[[], object]) -> tuple[float, float]:
        found = []
        for _ in range(ROUNDS):
            library.follow(at, count)
            library.follow(at, count)
            begin = perf_counter()
            flush()
            found.append(((perf_counter() - begin) * 1e3, library.follow(at, count)))
        cost, cold = zip(*found, strict=True)
        return median(cost), median(cold)

    device = open_device("cpu")
    record = device.describe()
    print(f"{record.name}, {record.cores} cores, last level {(record.last_level_cache_bytes or 0) >> 20} MiB")
    ways: dict[str, Callable[[], object]] = {
        "warm": lambda: None,
        "thrown out": lambda: library.throw_out(at, SIZE),
        f"kernelmark's own, {device.flusher().size_bytes >> 20} MiB read": device.flusher(),
        **{
            f"{mib} MiB read": HostReadFlusher(mib << 20, record.affinity or range(record.cores or 1))
            for mib in READ_MIB
        },
    }
    for name, flush in ways.items():
        cost, cold = after(flush)
        print(f"{name:40} {cold:6.1f} ns a line, at {cost:6.2f} ms")


if __name__ == "__main__":
    main()
