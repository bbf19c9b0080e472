"""Generated kernels, in KernelBench's ``ModelNew`` form, judged against the problem's ``Model``."""
