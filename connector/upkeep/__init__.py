"""Tools for the owner of a bucket: audit, repair, verification, forecasts and attachment."""
