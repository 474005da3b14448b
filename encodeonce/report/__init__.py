"""Results rows in, tables and plots out. Reads nothing but rows."""
