package wire

import "time"

// KeepCached returns how long a prompt is to stay cached whose client has said so by
// prompt_cache_retention; 0 for what leaves it to the server.
func KeepCached(retention string) time.Duration {
	if retention == "24h" {
		return 24 * time.Hour
	}
	return 0
}
