"""A package, because ``tests/kernels`` has files of the same names."""
