"""`KeyValueStore`, over anything that has get, set, delete and compare-and-set."""
