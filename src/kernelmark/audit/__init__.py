"""The audit: the same five calls, read by every instrument here, each as often, beside each other.

It composes what the timers read with what others read: ncu, NVBench, Triton's do_bench, torch's Timer. It
judges the instruments and never a kernel.
"""

from kernelmark.audit.document import as_json, audit_page, write_audit
from kernelmark.audit.result import Audit
from kernelmark.audit.run import AuditOptions, audit

__all__ = ["Audit", "AuditOptions", "as_json", "audit", "audit_page", "write_audit"]
