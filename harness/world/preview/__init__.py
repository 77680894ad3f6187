"""Generated systems that really run: booted as processes or called in memory, and read as a browser reads them."""
