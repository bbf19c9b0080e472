"""The ops, by the names that the manifest uses."""
