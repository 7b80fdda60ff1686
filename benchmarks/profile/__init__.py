"""The kernels of the engine under Nsight Compute: see benchmarks.profile.__main__."""
