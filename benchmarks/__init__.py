"""Benchmarks: ratios within one run, since machines differ. Printed to be read and recorded; no test asserts them."""
