package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/remote"
	"github.com/dynago/dynago/engine/tiny"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/engine/tiny/weights"
	tinymodel "github.com/dynago/dynago/internal/tiny"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache/peer"
	"github.com/dynago/dynago/kvcache/s3"
	"github.com/dynago/dynago/kvcache/store"
	"github.com/dynago/dynago/prompt"
)

// tinyStoreSettings say where the blocks of tiny engines lie that are not on the device.
type tinyStoreSettings struct {
	Store  string         `name:"kv-store" env:"DYN_KV_STORE" secret:"" placeholder:"HOST:PORT" help:"Share KV blocks with other tiny engines through this dynago kvstore, as HOST:PORT or redis://[USER:PASSWORD@]HOST:PORT; or through a bucket, as s3://BUCKET/PREFIX."`
	Object objectSettings `embed:""`
	Dir    string         `name:"kv-disk-dir" env:"DYN_KVBM_DISK_CACHE_DIR" placeholder:"PATH" help:"Where the disk of --g3-blocks lies, with a directory for each engine; it is found again after a restart. Otherwise one that goes with the engine."`
}

// objectSettings say which bucket, under the names that users of KVBM know.
type objectSettings struct {
	Enabled   bool   `name:"kv-object" env:"DYN_KVBM_OBJECT_ENABLED" lax:"" help:"Share KV blocks through the bucket of --kv-object-bucket, where there is no --kv-store."`
	Bucket    string `name:"kv-object-bucket" env:"DYN_KVBM_OBJECT_BUCKET" placeholder:"NAME" help:"The bucket, which exists."`
	Endpoint  string `name:"kv-object-endpoint" env:"DYN_KVBM_OBJECT_ENDPOINT" placeholder:"URL" help:"Where buckets are, such as http://127.0.0.1:9000."`
	Region    string `name:"kv-object-region" env:"DYN_KVBM_OBJECT_REGION" placeholder:"NAME" help:"The region that requests are signed for; otherwise us-east-1."`
	AccessKey string `name:"kv-object-access-key" env:"DYN_KVBM_OBJECT_ACCESS_KEY" secret:"" placeholder:"KEY" help:"Signs requests, with --kv-object-secret-key."`
	SecretKey string `name:"kv-object-secret-key" env:"DYN_KVBM_OBJECT_SECRET_KEY" secret:"" placeholder:"KEY" help:"The other half; rather set it in the environment."`
}

// tinySettings are what a worker needs to know besides: how decode workers get at its
// blocks.
type tinySettings struct {
	tinyStoreSettings
	Advertise  string `name:"advertise" env:"DYN_WORKER_ADVERTISE" placeholder:"HOST:PORT" help:"Where decode workers reach this prefill worker; otherwise where it listens, by the name of the machine if that is everywhere."`
	PullKey    string `name:"pull-key" env:"DYN_PULL_KEY" secret:"" placeholder:"KEY" help:"Key of the prefill workers' --api-keys-file, for this decode worker to come for KV blocks."`
	ServerName string `name:"tcp-tls-server-name" env:"DYN_TCP_TLS_SERVER_NAME" placeholder:"NAME" help:"Name in the certificates of the prefill workers; otherwise that by which they are reached. A worker that serves with TLS comes for KV blocks with TLS, shows its certificate, and trusts who signs those of frontends."`
}

// tinyModel is a model that tiny engines compute.
type tinyModel struct {
	files  *modelFiles
	prompt *prompt.Model
	model  *llama.Model
}

// loadTiny reads files and weights: those at a path, or those of this program.
func loadTiny(s modelSettings, log *slog.Logger) (*tinyModel, error) {
	files, err := filesOr(s, builtinTiny, log)
	if err != nil {
		return nil, err
	}
	m := &tinyModel{files: files}
	if m.prompt, err = files.load(); err != nil {
		return nil, err
	}
	switch {
	case files.weights != "":
		if m.model, err = weights.Load(files.weights, 0); err != nil {
			return nil, fmt.Errorf("--model-path: %w", err)
		}
		return m, nil
	case files.uri != builtinTiny:
		return nil, fmt.Errorf("--model-path: %s: this model has no weights, want %s", files.uri, builtinTiny)
	}
	file, err := tinymodel.File(tinymodel.Weights)
	if err != nil {
		return nil, err
	}
	m.model, err = weights.ReadGGUF(bytes.NewReader(file), int64(len(file)))
	return m, err
}

// engine returns an engine of the model.
func (m *tinyModel) engine(o tiny.Options) (*tiny.Engine, error) {
	card := m.files.card()
	sign(card, m.prompt)
	if has, of := m.prompt.Tokenizer.Size(), m.model.Config().Vocab; has > of {
		return nil, fmt.Errorf("model %s: the tokenizer has %d tokens, and model.embed_tokens.weight has rows for %d", m.files.name, has, of)
	}
	ends := m.prompt.EOS
	vocabulary, err := tiny.Vocabulary(m.prompt.Tokenizer, m.model.Config().Vocab, ends)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.files.name, err)
	}
	o.Name, o.Model, o.Files, o.EOS, o.Vocabulary = m.files.name, m.model, card, ends, vocabulary
	return tiny.New(o)
}

// worker returns one tiny engine that others can come to.
func (s *tinySettings) worker(m modelSettings, given *engineSettings, beside *workers) ([]behind, error) {
	log := beside.log
	if s.Advertise != "" {
		if _, _, err := splitAddress(s.Advertise); err != nil {
			return nil, fmt.Errorf("--advertise: %w", err)
		}
	}
	model, err := loadTiny(m, log)
	if err != nil {
		return nil, err
	}
	args, err := model.args(given)
	if err != nil {
		return nil, err
	}
	w := &tinyWorker{peers: pullPeers{
		config:   remote.Config{Key: s.PullKey, Caller: "tiny", Window: beside.settings.Window, ConnWindow: beside.settings.ConnWindow, Log: log},
		identity: beside.identity, name: s.ServerName, log: log,
	}}
	if w.store, err = s.open(args, model.model, log); err != nil {
		return nil, err
	}
	failures := &pullFailures{log: log}
	var address atomic.Value
	address.Store(s.Advertise)
	w.Engine, err = model.engine(tiny.Options{
		Args: args, ID: fmt.Sprintf("tiny-%d", os.Getpid()), Lower: tiny.Lower{Dir: s.Dir, Store: w.store},
		Pull: mock.Pull{Address: func() string { return address.Load().(string) }, Dial: w.peers.dial, Failed: failures.tell},
	})
	if err != nil {
		return nil, errors.Join(err, w.closeBeside())
	}
	return []behind{{engine: w, name: "a tiny engine of " + model.files.name, reached: func(at string) {
		if s.Advertise == "" {
			address.Store(reachable(at))
		}
	}}}, nil
}

// reachable returns an address by which others reach a listener: one that is everywhere
// goes by the name of the machine.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return address
	}
	name, err := os.Hostname()
	if err != nil {
		return address
	}
	return net.JoinHostPort(name, port)
}

// open opens the store that engines share, or returns nil if there is none. One that is
// elsewhere may come later, so that what is wrong with it now is only told.
func (s *tinyStoreSettings) open(a mock.Args, m *llama.Model, log *slog.Logger) (store.Driver, error) {
	scheme, rest, isURL := strings.Cut(s.Store, "://")
	var d store.Driver
	var err error
	switch {
	case s.Store == "" && s.Object.Enabled:
		d, err = s3.New(s.Object.options(s.Object.Bucket, ""))
	case s.Store == "":
		return ownStore(a, m)
	case isURL && scheme == "s3":
		d, err = s3.New(s.Object.options(bucketFolder(rest)))
	case !isURL || scheme == "redis":
		d, err = peerStore(cmp.Or(rest, s.Store))
	default:
		err = fmt.Errorf("%q is no kind of store: want redis or s3", scheme)
	}
	if err != nil {
		flag := "--kv-store"
		if s.Store == "" {
			flag = "--kv-object"
		}
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if err := greet(d); err != nil {
		log.Warn("the store of KV blocks cannot be used now; engines go on without it, and try it again", "error", err)
	}
	return d, nil
}

// greet asks a store for something, and returns what is wrong with it.
func greet(d store.Driver) (first error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond) // one that is busy comes too late at times
	defer tick.Stop()
	for {
		_, err := d.Stat(ctx, "hello")
		if err == nil || errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if first == nil {
			first = err
		}
		select {
		case <-ctx.Done():
			return first
		case <-tick.C:
		}
	}
}

// bucketFolder cuts BUCKET/FOLDER, and ends a folder with its slash: keys go right behind it.
func bucketFolder(at string) (bucket, folder string) {
	bucket, folder, _ = strings.Cut(strings.TrimRight(at, "/"), "/")
	if folder != "" {
		folder += "/"
	}
	return bucket, folder
}

// peerStore returns a store at [USER:PASSWORD@]HOST:PORT. Errors do not show the password.
func peerStore(at string) (store.Driver, error) {
	u, err := url.Parse("redis://" + at)
	if err != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return nil, errors.New("want HOST:PORT or redis://[USER:PASSWORD@]HOST:PORT, in which : / ? # @ and % are escaped in user and password")
	}
	password, _ := u.User.Password()
	return peer.New(peer.Options{Address: u.Host, User: u.User.Username(), Password: password, Prefix: "tiny/"})
}

// ownStore returns a store that goes with the process, if the arguments have one.
func ownStore(a mock.Args, m *llama.Model) (store.Driver, error) {
	if a.Tiers()[kv.TierShared] == 0 {
		return nil, nil
	}
	return tiny.NewStore(a, m)
}

// options returns how a bucket is reached.
func (s *objectSettings) options(bucket, prefix string) s3.Options {
	return s3.Options{
		Bucket: bucket, Prefix: prefix, Endpoint: s.Endpoint, Region: s.Region, AccessKey: s.AccessKey, SecretKey: s.SecretKey,
	}
}

// tinyWorker is a tiny engine with what it needs beside it.
type tinyWorker struct {
	*tiny.Engine
	store store.Driver // or nil
	peers pullPeers
}

// Unwrap returns the engine itself.
func (w *tinyWorker) Unwrap() engine.Engine { return w.Engine }

// Close implements io.Closer.
func (w *tinyWorker) Close() error { return errors.Join(w.Engine.Close(), w.closeBeside()) }

func (w *tinyWorker) closeBeside() error {
	err := w.peers.close()
	if w.store != nil {
		err = errors.Join(err, w.store.Close())
	}
	return err
}
