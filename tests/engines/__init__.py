"""Tests on engines that `make test-engines` installs: DataFusion, Daft, Ray, Dask and Ibis."""
