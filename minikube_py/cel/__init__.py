"""CEL as Kubernetes has it: `environment.compile(expression, environment)` parses, checks and estimates the cost."""
