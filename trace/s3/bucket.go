package s3

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/dynago/dynago/trace"
)

// bucket is what the sink needs of an object store.
type bucket interface {
	put(ctx context.Context, key string, body []byte) error
	close()
}

// server is a bucket of an S3 server.
type server struct {
	client    *minio.Client
	name      string
	transport *http.Transport
}

// dial returns the bucket that the configuration names; it asks nothing.
func dial(c trace.S3Config, lookup func(name string) (string, bool)) (*server, error) {
	get := func(name string) string {
		if value, ok := lookup(name); ok {
			return strings.TrimSpace(value)
		}
		return ""
	}
	if c.Bucket == "" {
		return nil, errors.New("no bucket: set DYN_REQUEST_TRACE_S3_BUCKET")
	}
	if err := s3utils.CheckValidBucketName(c.Bucket); err != nil {
		return nil, fmt.Errorf("bucket %q: %w", c.Bucket, err)
	}
	endpoint, lookupBy := cmp.Or(get("AWS_ENDPOINT_URL_S3"), get("AWS_ENDPOINT_URL")), minio.BucketLookupPath
	if endpoint == "" {
		endpoint, lookupBy = "https://s3.amazonaws.com", minio.BucketLookupAuto
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("endpoint %q: want a URL such as http://127.0.0.1:9000, without a path", endpoint)
	}
	transport, err := minio.DefaultTransport(u.Scheme == "https")
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", endpoint, err)
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds:  credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.IAM{Client: &http.Client{Transport: transport}}}),
		Secure: u.Scheme == "https", Region: cmp.Or(c.Region, get("AWS_REGION")), Transport: transport, BucketLookup: lookupBy,
		MaxRetries: 1, // the sink knows when to try again
	})
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", endpoint, err)
	}
	return &server{client: client, name: c.Bucket, transport: transport}, nil
}

func (b *server) put(ctx context.Context, key string, body []byte) error {
	_, err := b.client.PutObject(ctx, b.name, key, bytes.NewReader(body), int64(len(body)), minio.PutObjectOptions{
		ContentType: "application/gzip", DisableMultipart: int64(len(body)) < 64<<20,
	})
	return err
}

func (b *server) close() { b.transport.CloseIdleConnections() }

// hopeless says that an answer would be the same another time.
func hopeless(err error) bool {
	switch status := minio.ToErrorResponse(err).StatusCode; status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return status >= 400 && status < 500
	}
}
