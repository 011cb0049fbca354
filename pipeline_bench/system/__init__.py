"""What this program needs of the operating system: processes, signals, files, temporary folders."""
