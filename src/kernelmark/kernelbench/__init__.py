"""KernelBench's suites and the driver that runs them, one worker per kernel."""
