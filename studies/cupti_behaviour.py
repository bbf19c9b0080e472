"""What cupti-python does where its documentation is silent; run on a CUDA device, prints one JSON line a question.

Questions: which size of buffer loses records and whether the loss is counted; whether launches can be traced
one API at a time; whose thread a launch is; what a torch.profiler or proton session before ours leaves behind, and
whether registering our callbacks again mends it; what a pass costs.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
import traceback

import torch
from cupti import cupti as c

GOT: list[tuple] = []
SIZE = [8 * 1024 * 1024, 0]
REQUESTS = [0]


def requested():
    REQUESTS[0] += 1
    return SIZE[0], SIZE[1]


def completed(activities):
    for a in activities:
        kind = c.ActivityKind(a.kind)
        if kind == c.ActivityKind.CONCURRENT_KERNEL:
            GOT.append(("kernel", a.name, a.start, a.end, a.correlation_id, a.stream_id, a.graph_id))
        elif kind == c.ActivityKind.MEMCPY:
            GOT.append(("copy", int(a.copy_kind), a.start, a.end, a.correlation_id, a.bytes))
        elif kind == c.ActivityKind.MEMSET:
            GOT.append(("memset", "", a.start, a.end, a.correlation_id))
        elif kind == c.ActivityKind.EXTERNAL_CORRELATION:
            GOT.append(("external", int(a.external_kind), a.external_id, a.correlation_id))
        elif kind in (c.ActivityKind.RUNTIME, c.ActivityKind.DRIVER):
            GOT.append(("api", kind.name, int(a.cbid), a.correlation_id, a.thread_id))
        else:
            GOT.append(("other", kind.name))


KINDS = ("CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET", "EXTERNAL_CORRELATION")


def wanted(enum, words):
    return [m for name, m in enum.__members__.items() if any(w in name for w in words)]


RUNTIME = wanted(c.runtime_api_trace_cbid, ("cudaLaunch", "cudaMemcpy", "cudaMemset", "cudaGraphLaunch"))
DRIVER = wanted(c.driver_api_trace_cbid, ("cuLaunch", "cuMemcpy", "cuMemset", "cuGraphLaunch"))


def on(selective=True):
    failures = 0
    for k in KINDS:
        c.activity_enable(c.ActivityKind[k])
    if selective:
        for m in RUNTIME:
            try:
                c.activity_enable_runtime_api(int(m), 1)
            except Exception:
                failures += 1
        for m in DRIVER:
            try:
                c.activity_enable_driver_api(int(m), 1)
            except Exception:
                failures += 1
    else:
        c.activity_enable(c.ActivityKind.RUNTIME)
        c.activity_enable(c.ActivityKind.DRIVER)
    return failures


def off(selective=True):
    for k in KINDS:
        c.activity_disable(c.ActivityKind[k])
    if selective:
        for m in RUNTIME:
            try:
                c.activity_enable_runtime_api(int(m), 0)
            except Exception:
                pass
        for m in DRIVER:
            try:
                c.activity_enable_driver_api(int(m), 0)
            except Exception:
                pass
    else:
        c.activity_disable(c.ActivityKind.RUNTIME)
        c.activity_disable(c.ActivityKind.DRIVER)


def dropped():
    n = ctypes.c_size_t(0)
    c.activity_get_num_dropped_records(0, 0, ctypes.addressof(n))
    return n.value


CUSTOM = c.ExternalCorrelationKind.CUSTOM0


def passes(fn, count=5, selective=True, register=True):
    GOT.clear()
    if register:
        c.activity_register_callbacks(requested, completed)
    torch.cuda.synchronize()
    t = time.perf_counter()
    failures = on(selective)
    t_on = time.perf_counter()
    for i in range(count):
        torch.cuda.synchronize()
        c.activity_push_external_correlation_id(CUSTOM, i + 2)
        fn()
        c.activity_pop_external_correlation_id(CUSTOM)
    torch.cuda.synchronize()
    t_run = time.perf_counter()
    c.activity_flush_all(1)
    t_flush = time.perf_counter()
    off(selective)
    t_off = time.perf_counter()
    tally: dict[str, int] = {}
    for g in GOT:
        tally[g[0]] = tally.get(g[0], 0) + 1
    return {
        "tally": tally,
        "enable_failures": failures,
        "us": [round(1e6 * x) for x in (t_on - t, t_run - t_on, t_flush - t_run, t_off - t_flush)],
        "dropped": dropped(),
    }


def ask(name, fn):
    try:
        print(json.dumps({"q": name, "a": fn()}), flush=True)
    except Exception as e:
        print(json.dumps({"q": name, "error": repr(e), "tb": traceback.format_exc()[-400:]}), flush=True)


def main() -> None:
    what = sys.argv[1] if len(sys.argv) > 1 else "base"
    x = torch.randn(1 << 20, device="cuda")
    y = torch.randn(1 << 20, device="cuda")
    a = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
    big = torch.empty(1 << 24, device="cuda")

    def add():
        torch.add(x, y)

    def mixed():
        torch.add(x, y)
        big.copy_(big)
        torch.mm(a, a)

    for f in (add, mixed):
        f()
    torch.cuda.synchronize()
    print(
        json.dumps(
            {
                "torch": torch.__version__,
                "device": torch.cuda.get_device_name(0),
                "tid": threading.get_native_id(),
                "what": what,
            }
        )
    )
    if what == "base":
        c.set_thread_id_type(c.ActivityThreadIdType.SYSTEM)
        ask("selective", lambda: [passes(add), GOT[:12]])
        ask("selective mixed", lambda: [passes(mixed), GOT[:14]])
        ask("all apis", lambda: passes(mixed, selective=False))
        ask("100 passes cost", lambda: [passes(add, 100) for _ in range(3)])

        def threaded():
            t = threading.Thread(target=add)
            t.start()
            t.join()

        ask("another thread", lambda: [passes(threaded, 2), GOT[:8]])
        leaf = torch.randn(1024, device="cuda", requires_grad=True)

        def backward():
            (leaf * leaf).sum().backward()

        backward()
        ask(
            "backward",
            lambda: [passes(backward, 2), [g for g in GOT if g[0] in ("api", "external", "kernel")][:16]],
        )
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            torch.add(x, y)
            torch.add(x, y)
        ask("graph", lambda: [passes(g.replay, 2), GOT[:12]])
        import triton.language as tl

        globals()["tl"] = tl
        ask("empty", lambda: passes(lambda: None, 3))
        for size, most in ((4096, 0), (1024, 0), (512, 0), (128, 0), (8, 0), (0, 0), (8 << 20, 1)):
            SIZE[:] = [size, most]
            REQUESTS[0] = 0
            ask(f"buffer {size} most {most}", lambda: [passes(add, 50), REQUESTS[0]])
            SIZE[:] = [8 << 20, 0]
            ask("then whole again", lambda: passes(add, 3))
    elif what == "apis":
        # in which order must single APIs and the kinds be switched on, for only the single ones to be traced?
        def select(value):
            for m in wanted_exact(
                c.runtime_api_trace_cbid, ("cudaLaunch", "cudaMemcpy", "cudaMemset", "cudaGraphLaunch")
            ):
                c.activity_enable_runtime_api(int(m), value)
            for m in wanted_exact(
                c.driver_api_trace_cbid, ("cuLaunch", "cuMemcpy", "cuMemset", "cuGraphLaunch")
            ):
                c.activity_enable_driver_api(int(m), value)

        def deselect_others(value=0):
            bad = 0
            for enum, words, enable in (
                (
                    c.runtime_api_trace_cbid,
                    ("cudaLaunch", "cudaMemcpy", "cudaMemset", "cudaGraphLaunch"),
                    c.activity_enable_runtime_api,
                ),
                (
                    c.driver_api_trace_cbid,
                    ("cuLaunch", "cuMemcpy", "cuMemset", "cuGraphLaunch"),
                    c.activity_enable_driver_api,
                ),
            ):
                for name, m in enum.__members__.items():
                    if not name.startswith(words):
                        try:
                            enable(int(m), value)
                        except Exception:
                            bad += 1
            return bad

        def wanted_exact(enum, words):
            return [m for name, m in enum.__members__.items() if name.startswith(words)]

        def measure(before=None, kinds=KINDS, after=None):
            GOT.clear()
            c.activity_register_callbacks(requested, completed)
            torch.cuda.synchronize()
            if before:
                before()
            for k in kinds:
                c.activity_enable(c.ActivityKind[k])
            bad = after() if after else None
            t0 = time.perf_counter()
            for i in range(20):
                torch.cuda.synchronize()
                c.activity_push_external_correlation_id(CUSTOM, i + 2)
                mixed2()
                c.activity_pop_external_correlation_id(CUSTOM)
                torch.cuda.synchronize()
            t1 = time.perf_counter()
            c.activity_flush_all(1)
            t2 = time.perf_counter()
            for k in kinds:
                c.activity_disable(c.ActivityKind[k])
            tally: dict[str, int] = {}
            for g in GOT:
                tally[g[0]] = tally.get(g[0], 0) + 1
            kernels = {g[4] for g in GOT if g[0] in ("kernel", "copy", "memset")}
            externals = {g[3] for g in GOT if g[0] == "external"}
            return {
                "tally": tally,
                "unmatched": len(kernels - externals),
                "bad": bad,
                "ms": [1e3 * (t1 - t0), 1e3 * (t2 - t1)],
            }

        other = torch.empty_like(big)
        mm = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

        def mixed2():
            torch.add(x, y)
            other.copy_(big)
            torch.mm(mm, mm)

        mixed2()
        both = (*KINDS, "RUNTIME", "DRIVER")
        ask("kinds alone", lambda: [measure(kinds=both), measure(kinds=both)])
        ask("runtime kind alone", lambda: measure(kinds=(*KINDS, "RUNTIME")))
        ask("driver kind alone", lambda: measure(kinds=(*KINDS, "DRIVER")))
        ask(
            "kinds, then the others off",
            lambda: [measure(kinds=both, after=deselect_others), measure(kinds=both)],
        )
        ask("others on again", lambda: [deselect_others(1), measure(kinds=both)])
        ask("single ones, then kinds", lambda: measure(before=lambda: select(1), kinds=both))
        ask("single ones after the external kind only", lambda: measure(after=lambda: select(1)))
        ask("single ones before the external kind only", lambda: measure(before=lambda: select(1)))
        ask("an example", lambda: GOT[:12])
    elif what == "kineto":
        ask("before", lambda: passes(add))
        from torch.profiler import ProfilerActivity, profile

        def kineto():
            with profile(activities=[ProfilerActivity.CUDA]) as p:
                add()
                torch.cuda.synchronize()
            return sum(e.device_time_total for e in p.key_averages())

        ask("kineto", kineto)
        ask("after, callbacks not registered again", lambda: passes(add, register=False))
        ask("after, callbacks registered again", lambda: passes(add))
        ask("kineto again", kineto)
        ask("after that", lambda: passes(add))
    elif what == "kineto-first":
        from torch.profiler import ProfilerActivity, profile

        def kineto():
            with profile(activities=[ProfilerActivity.CUDA]) as p:
                add()
                torch.cuda.synchronize()
            return sum(e.device_time_total for e in p.key_averages())

        ask("kineto", kineto)
        ask("after", lambda: passes(add))
        ask("kineto again", kineto)
        ask("after that", lambda: passes(add))
    elif what == "proton":
        import triton.profiler as proton

        def session():
            proton.start("/tmp/proton_study", hook=None)
            with proton.scope("a"):
                add()
            torch.cuda.synchronize()
            proton.finalize()
            return open("/tmp/proton_study.hatchet").read()[:300]

        if len(sys.argv) > 2:
            ask("ours first", lambda: passes(add))
        ask("proton", session)
        ask("ours after", lambda: passes(add))
        ask("proton again", session)


main()
