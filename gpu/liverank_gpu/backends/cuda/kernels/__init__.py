"""The CUDA kernels: one topic in each ``.cu`` file, and the headers that they share."""
