"""What benchmarks and tests run: tables, queries and streams of changes."""
