"""The built-in models: small, plain, no download. Each module has `workload(spec)`."""
