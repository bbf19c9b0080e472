"""Words that every room needs: near names, lists, short forms of errors."""
