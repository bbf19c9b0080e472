"""The case registry of the toy library."""
