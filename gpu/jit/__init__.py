"""Numba as liverank uses it: how functions are compiled, launched on all cores and serialised."""
