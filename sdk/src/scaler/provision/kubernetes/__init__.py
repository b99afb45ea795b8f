"""Units as pods of Kubernetes.

    start ──▶ POST pods      list ──▶ GET pods?labelSelector=…      stop ──▶ DELETE pod, with its grace period

Rules:
- `pods` and `pod_listing` compute and do nothing else: `--dry-run` prints what the first returns.
- Pods are found by labels: the pool, and characters that stand for the scheduler. Others are never deleted.
- The API is HTTP and JSON by the standard library, and so are proxies. Only files in YAML need a package, PyYAML.
"""
