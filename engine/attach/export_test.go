package attach

// KeyNames returns the keys that may be said of a server.
func KeyNames() (names []string) {
	for _, k := range keys {
		names = append(names, k.name)
	}
	return names
}
