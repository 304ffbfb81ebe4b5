"""What the commands of the command line do, a module each. They are imported when they run."""
