"""The object values a selector can compare: quantities, paths, pod requests, comparisons."""
