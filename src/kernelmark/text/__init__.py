"""Words that every room needs: near names, lists, counts, short forms of errors."""

from kernelmark.text.near import listing, suggestion
from kernelmark.text.short import counted, first_line, in_short, message_of

__all__ = ["counted", "first_line", "in_short", "listing", "message_of", "suggestion"]
