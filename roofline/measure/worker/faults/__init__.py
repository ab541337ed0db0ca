"""Implementations that break on purpose, to show that a broken one costs one record. Named ``fault/...``; never in a suite."""
