"""Tests of dbt and of the SQL tools of notebooks, which have an environment of their own."""
