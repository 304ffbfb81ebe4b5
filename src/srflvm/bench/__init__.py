"""The paper's tables as commands: `srflvm bench`."""
