"""How often the program says "different" where nothing differs, and how often it finds a planted 3 %."""
