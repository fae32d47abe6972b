package s3_test

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/dynago/dynago/trace"
)

// TestServer puts objects into the bucket S3_BUCKET of the server that S3_ENDPOINT
// names, with the keys S3_ACCESS_KEY and S3_SECRET_KEY, and reads them back: make
// e2e-s3. Without, there is the one in the process, in TestObjects.
func TestServer(t *testing.T) {
	endpoint, bucket := os.Getenv("S3_ENDPOINT"), os.Getenv("S3_BUCKET")
	if endpoint == "" {
		return
	}
	t.Setenv("AWS_ACCESS_KEY_ID", os.Getenv("S3_ACCESS_KEY"))
	t.Setenv("AWS_SECRET_ACCESS_KEY", os.Getenv("S3_SECRET_KEY"))
	prefix := fmt.Sprintf("traces%d", time.Now().UnixNano())
	s := open(t, trace.S3Config{Bucket: bucket, Prefix: prefix, RollBytes: 5000, FlushInterval: time.Second}, func(name string) (string, bool) {
		return endpoint, name == "AWS_ENDPOINT_URL_S3"
	})
	var all []*trace.Record
	for n := range 200 {
		all = append(all, record(n))
	}
	if err := s.Write(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	client, err := minio.New(u.Host, &minio.Options{Creds: credentials.NewStaticV4(os.Getenv("S3_ACCESS_KEY"), os.Getenv("S3_SECRET_KEY"), ""), Region: "us-east-1", BucketLookup: minio.BucketLookupPath})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	objects := 0
	for o := range client.ListObjectsIter(t.Context(), bucket, minio.ListObjectsOptions{Prefix: prefix + "/", Recursive: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		got, err := client.GetObject(t.Context(), bucket, o.Key, minio.GetObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		info, err := got.Stat()
		if err != nil || info.ContentType != "application/gzip" {
			t.Errorf("%s is %s, %v", o.Key, info.ContentType, err)
		}
		z, err := gzip.NewReader(got)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&text, z); err != nil {
			t.Fatal(err)
		}
		objects++
	}
	if objects < 4 || text.String() != lines(all...) {
		t.Errorf("%d objects of %d bytes, want %d bytes", objects, text.Len(), len(lines(all...)))
	}
}
