"""What can be asked of an object: quantities, paths, pod requests, comparisons."""
