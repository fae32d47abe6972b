package frontend

import (
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/dynago/dynago/internal/wire"
)

// DefaultMetadataHeader begins the names of headers whose values go to workers as
// they are.
const DefaultMetadataHeader = "x-dynamo-meta-"

// policyClass is the piece of metadata that names the policy class, or the family of
// classes, of a request.
const policyClass = "policy-class"

// What clients may say to workers in all.
const (
	mostMetadata      = 64
	mostMetadataBytes = 64 << 10
)

// metadata returns what headers with a prefix say, by the rest of their names in
// lower case; nil if there are none. The first of repeated ones counts. Secrets are
// left out: they are for this server, and not for what stands behind it.
func metadata(h http.Header, prefix string) (map[string]string, error) {
	var said map[string]string
	bytes := 0
	for name, values := range h {
		if len(name) <= len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
			continue
		}
		key, value := strings.ToLower(name[len(prefix):]), strings.TrimSpace(values[0])
		const bearer = "bearer "
		secret := key == "authorization" || len(value) >= len(bearer) && strings.EqualFold(value[:len(bearer)], bearer)
		if secret || !utf8.ValidString(value) {
			continue
		}
		if said == nil {
			said = map[string]string{}
		}
		said[key] = value
		if bytes += len(key) + len(value); bytes > mostMetadataBytes {
			return nil, tooMuchMetadata("%d bytes", mostMetadataBytes)
		}
	}
	if len(said) > mostMetadata {
		return nil, tooMuchMetadata("%d entries", mostMetadata)
	}
	return said, nil
}

func tooMuchMetadata(limit string, n int) *wire.Error {
	return refusal(http.StatusRequestHeaderFieldsTooLarge, "metadata headers exceed the limit of "+limit, n)
}
