// Package s3 puts the records of a trace into a bucket: objects of lines, compressed,
// whose names sort by time.
//
// The one idea: an object is a batch, and a batch is sent or lost. Records are
// compressed as they come, so that what waits is small; an object is put under a name
// that nobody else has, and tried a few times, while others wait in the bus.
package s3

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/gzip"

	"github.com/dynago/dynago/trace"
)

const (
	// backlog is how many records may wait while an object is sent.
	backlog = 2048

	attemptLimit = 30 * time.Second // of one attempt
	wholeLimit   = 90 * time.Second // of all attempts
	attempts     = 3
	pause        = 500 * time.Millisecond // before the second attempt, doubled before the next
)

// Sink is a [trace.Sink] to a bucket.
type Sink struct {
	config trace.S3Config
	bucket bucket
	now    func() time.Time
	host   string
	run    string
	next   int

	packed  bytes.Buffer
	zip     *gzip.Writer
	line    []byte
	records int
	plain   int64 // bytes of lines in packed
}

// Open returns a sink to a bucket. The environment says where it is, by AWS_REGION,
// AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL, and who we are: by keys, a web identity, or
// the instance. Nothing is asked of the server, which may come later.
func Open(c trace.S3Config, lookup func(name string) (string, bool)) (*Sink, error) {
	b, err := dial(c, lookup)
	if err != nil {
		return nil, fmt.Errorf("trace/s3: %w", err)
	}
	host, ok := lookup("HOSTNAME")
	if !ok || host == "" {
		host = "unknown"
	}
	id := uuid.New()
	s := &Sink{config: c, bucket: b, now: time.Now, host: host, run: fmt.Sprintf("%x", id[:])}
	s.config.Prefix = strings.Trim(c.Prefix, "/")
	s.zip = gzip.NewWriter(&s.packed)
	return s, nil
}

// Name implements [trace.Sink].
func (*Sink) Name() string { return trace.SinkS3 }

// Backlog is how many records a bus should keep for the sink, at least.
func (*Sink) Backlog() int { return backlog }

// Interval implements [trace.Ticker].
func (s *Sink) Interval() time.Duration { return s.config.FlushInterval }

// Tick implements [trace.Ticker].
func (s *Sink) Tick(ctx context.Context) error { return s.flush(ctx) }

// Write implements [trace.Sink].
func (s *Sink) Write(ctx context.Context, records []*trace.Record) error {
	lost := &trace.Lost{}
	for _, r := range records {
		err := s.add(r)
		if err != nil {
			lost.Records++
			lost.Err = err
		}
		if s.plain < s.config.RollBytes {
			continue
		}
		if err := s.flush(ctx); err != nil {
			lost.Records += err.(*trace.Lost).Records
			lost.Err = err.(*trace.Lost).Err
		}
	}
	if lost.Err != nil {
		return lost
	}
	return nil
}

// add compresses a record.
func (s *Sink) add(r *trace.Record) error {
	line, err := r.Append(s.line[:0])
	if err != nil {
		return fmt.Errorf("trace/s3: %w", err)
	}
	s.line = append(line, '\n')
	if _, err := s.zip.Write(s.line); err != nil {
		return fmt.Errorf("trace/s3: compress: %w", err)
	}
	s.records++
	s.plain += int64(len(s.line))
	if cap(s.line) > 1<<20 {
		s.line = nil
	}
	return nil
}

// flush puts what was added into an object, or loses it. The error is a [trace.Lost].
func (s *Sink) flush(ctx context.Context) error {
	if s.records == 0 {
		return nil
	}
	n := s.records
	err := s.zip.Close()
	if err == nil {
		err = s.put(ctx, s.key(), s.packed.Bytes())
	}
	s.records, s.plain = 0, 0
	s.packed.Reset()
	s.zip.Reset(&s.packed)
	if err != nil {
		return &trace.Lost{Records: n, Err: fmt.Errorf("trace/s3: %w", err)}
	}
	return nil
}

// key returns the name of the next object.
func (s *Sink) key() string {
	now := s.now().UTC()
	key := fmt.Sprintf("%s/%s-%s-%s-%06d.jsonl.gz", now.Format("2006/01/02"), s.host, now.Format("150405"), s.run, s.next)
	s.next++
	if s.config.Prefix != "" {
		key = s.config.Prefix + "/" + key
	}
	return key
}

// put sends an object, again if need be.
func (s *Sink) put(ctx context.Context, key string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, wholeLimit)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := s.attempt(ctx, key, body)
		if err == nil {
			return nil
		}
		if attempt == attempts || hopeless(err) {
			return fmt.Errorf("put %s, attempt %d: %w", key, attempt, err)
		}
		select {
		case <-time.After(pause << (attempt - 1)):
		case <-ctx.Done():
			return fmt.Errorf("put %s, attempt %d: %w", key, attempt, err)
		}
	}
}

func (s *Sink) attempt(ctx context.Context, key string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	return s.bucket.put(ctx, key, body)
}

// Close implements [trace.Sink].
func (s *Sink) Close(ctx context.Context) error {
	defer s.bucket.close()
	return s.flush(ctx)
}
