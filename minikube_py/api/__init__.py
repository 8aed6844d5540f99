"""Kubernetes objects: meta, selectors, patches, resources, defaults, validation, tables, OpenAPI, protobuf."""
