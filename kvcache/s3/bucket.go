package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// Answers that say no.
var (
	errNoObject  = errors.New("no such object")
	errCondition = errors.New("the object is not as it should be")
)

// object is what a server says of one.
type object struct {
	size   int64
	etag   string
	stored time.Time
	user   map[string]string // metadata, by lower-case names
}

// condition says when a put may happen; the zero value is always.
type condition struct {
	absent bool   // no such object yet
	etag   string // the object is this one
}

// bucket is what the store needs of an object store: five methods.
type bucket interface {
	// get returns an object and its bytes, which the caller closes.
	get(ctx context.Context, name string) (object, io.ReadCloser, error)
	stat(ctx context.Context, name string) (object, error)
	put(ctx context.Context, name string, body []byte, user map[string]string, when condition) error
	remove(ctx context.Context, name string) error
	// list yields the names of all objects that begin with prefix, in order.
	list(ctx context.Context, prefix string) iter.Seq2[string, error]
	close()
}

// server is a bucket of an S3 server.
type server struct {
	core      minio.Core
	name      string
	transport http.RoundTripper
}

// dial returns the bucket of opts; it asks nothing.
func dial(opts Options) (*server, error) {
	u, err := url.Parse(opts.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("endpoint %q: want a URL such as http://127.0.0.1:9000, without a path", opts.Endpoint)
	}
	if err := s3utils.CheckValidBucketName(opts.Bucket); err != nil {
		return nil, fmt.Errorf("bucket %q: %w", opts.Bucket, err)
	}
	transport := opts.Transport
	if transport == nil {
		own, err := minio.DefaultTransport(u.Scheme == "https")
		if err != nil {
			return nil, fmt.Errorf("endpoint %q: %w", opts.Endpoint, err)
		}
		transport = own
	}
	creds := credentials.NewStaticV4(opts.AccessKey, opts.SecretKey, "")
	client, err := minio.New(u.Host, &minio.Options{
		Creds: creds, Secure: u.Scheme == "https", Region: opts.Region, Transport: transport,
		BucketLookup: minio.BucketLookupPath,
		// The breaker above decides when to try again.
		MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", opts.Endpoint, err)
	}
	return &server{core: minio.Core{Client: client}, name: opts.Bucket, transport: transport}, nil
}

func (b *server) get(ctx context.Context, name string) (object, io.ReadCloser, error) {
	body, info, _, err := b.core.GetObject(ctx, b.name, name, minio.GetObjectOptions{})
	if err != nil {
		return object{}, nil, answer(err)
	}
	return described(info), body, nil
}

func (b *server) stat(ctx context.Context, name string) (object, error) {
	info, err := b.core.StatObject(ctx, b.name, name, minio.StatObjectOptions{})
	if err != nil {
		return object{}, answer(err)
	}
	return described(info), nil
}

func (b *server) put(ctx context.Context, name string, body []byte, user map[string]string, when condition) error {
	opts := minio.PutObjectOptions{
		UserMetadata: user, ContentType: "application/octet-stream", DisableMultipart: true,
		// Readers check XXH3; SHA-256 besides would cost more than the network.
		DisableContentSha256: true,
	}
	if when.absent {
		opts.SetMatchETagExcept("*")
	}
	if when.etag != "" {
		opts.SetMatchETag(when.etag)
	}
	_, err := b.core.Client.PutObject(ctx, b.name, name, bytes.NewReader(body), int64(len(body)), opts)
	return answer(err)
}

func (b *server) remove(ctx context.Context, name string) error {
	return answer(b.core.RemoveObject(ctx, b.name, name, minio.RemoveObjectOptions{}))
}

func (b *server) list(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for info := range b.core.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
			if info.Err != nil {
				yield("", info.Err)
				return
			}
			if !yield(info.Key, nil) {
				return
			}
		}
	}
}

func (b *server) close() {
	if t, ok := b.transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// described returns what we need of info.
func described(info minio.ObjectInfo) object {
	o := object{size: info.Size, etag: info.ETag, stored: info.LastModified, user: map[string]string{}}
	for name, value := range info.UserMetadata {
		o.user[strings.TrimPrefix(strings.ToLower(name), "x-amz-meta-")] = value
	}
	return o
}

// answer tells the answers that say no from failures.
func answer(err error) error {
	if err == nil {
		return nil
	}
	response := minio.ToErrorResponse(err)
	switch {
	case response.Code == minio.NoSuchKey:
		return errNoObject
	case response.StatusCode == http.StatusNotFound && response.Code != minio.NoSuchBucket:
		return errNoObject
	case response.StatusCode == http.StatusPreconditionFailed, response.Code == minio.PreconditionFailed:
		return errCondition
	case response.StatusCode == http.StatusConflict && response.Code == "ConditionalRequestConflict":
		return errCondition
	}
	return err
}
