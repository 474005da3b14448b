"""encodeonce under the conventions of other libraries."""
