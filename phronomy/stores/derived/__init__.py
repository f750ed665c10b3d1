"""What every store does by its few primitives: listings, forks, retention, and adopting a checkpoint from elsewhere."""
