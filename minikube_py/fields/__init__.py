"""What a selector can compare in an object: quantities, paths, pod requests, comparisons."""
