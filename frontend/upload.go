package frontend

import (
	"fmt"
	"net/url"
	"path"
	"strings"
)

// UploadPrefix is a place below which workers may be told to put what they have
// captured. A client that names a place makes a worker open a connection, so that an
// operator says where to.
type UploadPrefix struct{ scheme, host, path string }

// ParseUploadPrefix reads SCHEME://HOST, with a path or without.
func ParseUploadPrefix(text string) (UploadPrefix, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !plainPath(u.Path) {
		return UploadPrefix{}, fmt.Errorf("%q: want SCHEME://HOST/PATH, as in s3://bucket/traces", text)
	}
	return UploadPrefix{strings.ToLower(u.Scheme), strings.ToLower(u.Host), strings.TrimSuffix(u.Path, "/")}, nil
}

// allows says whether a place lies below the prefix.
func (p UploadPrefix) allows(place string) bool {
	u, err := url.Parse(place)
	if err != nil || u.User != nil || !strings.EqualFold(u.Scheme, p.scheme) || !strings.EqualFold(u.Host, p.host) || !plainPath(u.Path) {
		return false
	}
	rest, below := strings.CutPrefix(u.Path, p.path)
	return below && (rest == "" || rest[0] == '/')
}

// plainPath says whether a path means what it seems to: it leads nowhere up.
func plainPath(p string) bool {
	return p == "" || path.Clean(p) == strings.TrimSuffix(p, "/") || p == "/"
}

// upload takes the place away to which a worker shall upload, if the operator does
// not allow it.
func (j *job) upload() {
	if j.call.ext == nil || j.call.ext.MetadataUpload == nil {
		return
	}
	for _, p := range j.UploadPrefixes {
		if p.allows(j.call.ext.MetadataUpload.URL) {
			return
		}
	}
	j.call.ext.MetadataUpload = nil
	j.Logger.Debug("nvext.metadata_upload names a place that is not allowed, and is passed over", "request_id", j.x.id)
}
