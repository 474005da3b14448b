"""encodeonce: run a transformer's lower part once, keep what comes out, train and serve something small on top."""

__version__ = "0.1.0"
