package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynago/dynago/kvcache/disk"
	"github.com/dynago/dynago/kvcache/s3"
	"github.com/dynago/dynago/kvstore"
)

// tierSettings say what lies below main memory.
type tierSettings struct {
	Dir       string        `name:"dir" env:"DYN_KVSTORE_DIR" placeholder:"PATH" help:"Keep values on disk too, in this directory of the store's own; they are there again after a restart."`
	Disk      string        `name:"disk" env:"DYN_KVSTORE_DISK" default:"64GiB" placeholder:"SIZE" help:"How much of the disk the values may take."`
	DiskSync  bool          `name:"disk-sync" env:"DYN_KVSTORE_DISK_SYNC" help:"Answer a SET when the disk has the value, and not when the system has: values then outlive a loss of power."`
	DiskPins  float64       `name:"disk-pin-budget" env:"DYN_KVSTORE_DISK_PIN_BUDGET" default:"0.5" placeholder:"PART" help:"As --pin-budget, of the disk."`
	Endpoint  string        `name:"s3-endpoint" env:"DYN_KVSTORE_S3_ENDPOINT" placeholder:"URL" help:"Copy values to an object store of the S3 API when there is time, such as http://127.0.0.1:9000."`
	Bucket    string        `name:"s3-bucket" env:"DYN_KVSTORE_S3_BUCKET" placeholder:"NAME" help:"The bucket, which exists."`
	Prefix    string        `name:"s3-prefix" env:"DYN_KVSTORE_S3_PREFIX" default:"kvstore/" placeholder:"TEXT" help:"Of the names of all objects; each store needs one of its own."`
	Region    string        `name:"s3-region" env:"DYN_KVSTORE_S3_REGION" default:"us-east-1" placeholder:"NAME" help:"The region that requests are signed for."`
	AccessKey string        `name:"s3-access-key" env:"DYN_KVSTORE_S3_ACCESS_KEY,AWS_ACCESS_KEY_ID" secret:"" placeholder:"KEY" help:"Signs requests, with --s3-secret-key."`
	SecretKey string        `name:"s3-secret-key" env:"DYN_KVSTORE_S3_SECRET_KEY,AWS_SECRET_ACCESS_KEY" secret:"" placeholder:"KEY" help:"The other half; rather set it in the environment."`
	S3        string        `name:"s3" env:"DYN_KVSTORE_S3" default:"1TiB" placeholder:"SIZE" help:"How much of the bucket the values may take."`
	Lookup    time.Duration `name:"s3-lookup-timeout" env:"DYN_KVSTORE_S3_LOOKUP_TIMEOUT" default:"50ms" unit:"s" placeholder:"TIME" help:"After how long a question to the object store is a miss."`
	Transfer  time.Duration `name:"s3-transfer-timeout" env:"DYN_KVSTORE_S3_TRANSFER_TIMEOUT" default:"5s" unit:"s" placeholder:"TIME" help:"After how long a transfer from or to it is given up."`
}

// lower are the tiers below memory, and how to close them.
type lower struct {
	tiers []kvstore.Tier
	lines []string // what the banner says of them
}

// open opens the tiers that are set. What was opened must be closed, also after an
// error.
func (s *tierSettings) open(ctx context.Context) (l lower, err error) {
	if s.DiskPins < 0 || s.DiskPins > 1 {
		return l, fmt.Errorf("--disk-pin-budget: %v: want 0 to 1", s.DiskPins)
	}
	if s.Dir != "" {
		capacity, err := readSize(s.Disk)
		if err != nil {
			return l, fmt.Errorf("--disk: %w", err)
		}
		// A disk that has less room than that is used up to the last step.
		step := min(max(capacity/64, 16<<20), 256<<20)
		d, err := disk.Open(ctx, disk.Options{Dir: s.Dir, Capacity: capacity, Step: step, Sync: s.DiskSync})
		if err != nil {
			return l, fmt.Errorf("--dir: %w", err)
		}
		l.tiers = append(l.tiers, kvstore.Tier{Name: "disk", Driver: d, PinBudget: s.DiskPins})
		l.lines = append(l.lines, fmt.Sprintf("disk     %s in %s, %d values", s.Disk, s.Dir, d.Usage().Entries))
	}
	if s.Endpoint == "" && s.Bucket == "" {
		return l, nil
	}
	capacity, err := readSize(s.S3)
	if err != nil {
		return l, fmt.Errorf("--s3: %w", err)
	}
	if s.Lookup <= 0 || s.Transfer <= 0 {
		return l, errors.New("--s3-lookup-timeout and --s3-transfer-timeout: want more than 0")
	}
	o := s3.Options{
		Endpoint: s.Endpoint, Bucket: s.Bucket, Prefix: s.Prefix, Region: s.Region, Lookup: s.Lookup, Transfer: s.Transfer,
		AccessKey: s.AccessKey, SecretKey: s.SecretKey,
	}
	objects, err := s3.New(o)
	if err != nil {
		return l, fmt.Errorf("--s3-endpoint: %w", err)
	}
	l.tiers = append(l.tiers, kvstore.Tier{Name: "external", Driver: objects, Capacity: capacity, PinBudget: s.DiskPins, Later: true})
	l.lines = append(l.lines, fmt.Sprintf("objects  %s in %s/%s/%s", s.S3, s.Endpoint, s.Bucket, s.Prefix))
	return l, nil
}

// close closes what was opened.
func (l *lower) close() error {
	var errs []error
	for _, t := range l.tiers {
		errs = append(errs, t.Driver.Close())
	}
	return errors.Join(errs...)
}
