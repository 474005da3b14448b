"""Pre-training an encoder on whole documents, their similarity and their place in a taxonomy (FastDoc)."""
