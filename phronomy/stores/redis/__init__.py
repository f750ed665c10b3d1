"""`RedisStore`: runs in a Redis server or in one that speaks its protocol."""
