//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/dynago/dynago/internal/fake/sglang"
	pb "github.com/dynago/dynago/internal/gen/inferencepb"
)

// take takes a port.
func take(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// A port that was asked for has to be free.
func TestKServeTakenPort(t *testing.T) {
	for _, flag := range []string{"--grpc-port", "--grpc-metrics-port"} {
		var out, errs bytes.Buffer
		args := []string{"serve", "--http-port", "0", "--kserve-grpc-server", "--grpc-port", "0", flag, fmt.Sprint(take(t))}
		if code := run(args, outlet{&out, &errs}); code != 1 || !strings.Contains(errs.String(), "is taken by another program: choose another port with "+flag) {
			t.Errorf("%s: exit code %d: %s", flag, code, errs.String())
		}
	}
}

// A usual port may be taken.
func TestKServeTakenUsualPort(t *testing.T) {
	var log bytes.Buffer
	port := take(t)
	l, err := ask("127.0.0.1", nil, port, "--grpc-port", slog.New(slog.NewTextHandler(&log, nil)))
	if l != nil || err != nil || !strings.Contains(log.String(), fmt.Sprintf("127.0.0.1:%d is taken by another program: choose another port with --grpc-port", port)) {
		t.Errorf("%v %v\n%s", l, err, &log)
	}
}

// Where no port was asked for, the HTTP port takes gRPC as well.
func TestKServeOnHTTPPort(t *testing.T) {
	t.Parallel()
	p := serve(t, "--kserve-grpc-server", "--grpc-metrics-port", "0", "--speedup-ratio", "0")
	client := kserveClient(t, strings.TrimPrefix(p.url, "http://"))
	if out, err := client.ModelInfer(t.Context(), completion("1", "Name three rivers.", false)); err != nil || len(out.GetOutputs()) != 2 {
		t.Errorf("%v %v", out, err)
	}
	if status, _ := p.get(p.url + "/live"); status != http.StatusOK {
		t.Errorf("/live: %d", status)
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// With a port of its own, gRPC is there alone.
func TestKServeOnOwnPort(t *testing.T) {
	t.Parallel()
	p, _ := kserved(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := kserveClient(t, strings.TrimPrefix(p.url, "http://")).ServerLive(ctx, &pb.ServerLiveRequest{}); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// What scrapers look for has a port of its own, and nothing else is there.
func TestKServeSidePort(t *testing.T) {
	port := fmt.Sprint(freePorts(t, 1))
	p, _ := kserved(t, "--grpc-metrics-port", port)
	url := "http://127.0.0.1:" + port
	for path, want := range map[string]string{
		"/metrics": "dynamo_frontend_model_context_length", "/health": `"healthy"`, "/live": `"live"`, "/v1/models": "dynago/demo", "/v1/models/dynago/demo": "dynago/demo",
	} {
		if code, body := p.get(url + path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", path, code, body, want)
		}
	}
	for _, path := range []string{"/v1/chat/completions", "/v2", "/busy_threshold", "/docs"} {
		if code, _ := p.get(url + path); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// A signal lets calls finish and streams end, and tells the rest.
func TestKServeDrain(t *testing.T) {
	t.Parallel()
	p, client := kserved(t, "--speedup-ratio", "1")
	in := completion("1", "Name three rivers.", true)
	in.Parameters["max_tokens"].ParameterChoice = &pb.InferParameter_Int64Param{Int64Param: 150}
	stream, err := client.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(in); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGTERM)
	until(t, "the server is not ready", func() bool {
		out, err := client.ServerReady(t.Context(), &pb.ServerReadyRequest{})
		return err == nil && !out.GetReady()
	})
	if _, err := client.ModelInfer(t.Context(), completion("2", "Late.", false)); status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "server is shutting down" {
		t.Error(err)
	}
	reason := ""
	for err = nil; err == nil; {
		var m *pb.ModelStreamInferResponse
		if m, err = stream.Recv(); err == nil {
			if m.GetErrorMessage() != "" {
				t.Error(m)
			}
			reason = string(m.GetInferResponse().GetOutputs()[1].GetContents().GetBytesContents()[0])
		}
	}
	if reason == "" || status.Code(err) != codes.Unavailable {
		t.Errorf("the last response has the reason %q, and the stream ended with %v", reason, err)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Workers that decode alone are nobody to ask, until somebody computes prompts for
// them.
func TestKServeReadiness(t *testing.T) {
	t.Parallel()
	meeting, url := &sglang.Bootstrap{}, map[string]string{}
	for _, mode := range []string{"decode", "prefill"} {
		s, err := sglang.New(sglang.Config{Mock: mockOf(t, "pair", false), Mode: mode, Bootstrap: meeting})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		url[mode] = host(t, s).URL
	}
	path := filepath.Join(t.TempDir(), "workers.yaml")
	first := "- sglang=" + url["decode"] + ",model_path=builtin:demo,load.interval=20ms\n"
	replace(t, path, first)
	p, client := kserved(t, "--workers-file", path)
	ready := func() bool {
		model, err := client.ModelReady(t.Context(), &pb.ModelReadyRequest{Name: "pair"})
		if err != nil {
			t.Fatal(err)
		}
		server, err := client.ServerReady(t.Context(), &pb.ServerReadyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if model.GetReady() && !server.GetReady() {
			t.Error("a model is ready, and the server is not")
		}
		return model.GetReady()
	}
	until(t, "the worker is there", func() bool { return p.state(url["decode"]) == "ready" })
	if ready() {
		t.Error("a worker that only decodes is taken for a whole one")
	}
	in := completion("1", "Name three rivers.", false)
	in.ModelName = "pair"
	if _, err := client.ModelInfer(t.Context(), in); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "model temporarily unavailable") {
		t.Error(err)
	}
	replace(t, path, first+"- sglang="+url["prefill"]+",model_path=builtin:demo,load.interval=20ms\n")
	until(t, "the model is ready", ready)
}

// With a certificate all of it is encrypted.
func TestKServeTLS(t *testing.T) {
	dir := t.TempDir()
	pool := certify(t, dir)
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for _, args := range [][]string{{"--tls-cert-path", cert}, {"--tls-key-path", key}} {
		var out, errs bytes.Buffer
		if code := run(append([]string{"serve", "--http-port", "0"}, args...), outlet{&out, &errs}); code != 1 || !strings.Contains(errs.String(), "--tls-cert-path and --tls-key-path: want both, or neither") {
			t.Errorf("%q: exit code %d: %s", args, code, errs.String())
		}
	}
	port := freePorts(t, 2)
	p := serve(t, "--kserve-grpc-server", "--grpc-port", fmt.Sprint(port), "--grpc-metrics-port", fmt.Sprint(port+1), "--speedup-ratio", "0", "--tls-cert-path", cert, "--tls-key-path", key)
	conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", port), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := pb.NewGRPCInferenceServiceClient(conn).ModelInfer(t.Context(), completion("1", "Name three rivers.", false)); err != nil {
		t.Error(err)
	}
	_, url, _ := strings.Cut(p.banner, "https://")
	url, _, _ = strings.Cut(url, "\n")
	for _, two := range []bool{false, true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: two}
		client := &http.Client{Transport: transport}
		// Streams leave net/http on HTTP/1; the connection must serve another one.
		for range 2 {
			body := `{"model":"dynago/demo","stream":true,"max_tokens":5,"messages":[{"role":"user","content":"Hello"}]}`
			resp, err := client.Post("https://"+url+"/v1/chat/completions", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			_, err = text.ReadFrom(resp.Body)
			resp.Body.Close()
			if err != nil || !strings.HasSuffix(text.String(), "data: [DONE]\n\n") || (resp.ProtoMajor == 2) != two {
				t.Errorf("%s %v\n%s", resp.Proto, err, text.String())
			}
		}
		if resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/live", port+1)); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("the side port: %v %v", resp, err)
		} else {
			resp.Body.Close()
		}
		transport.CloseIdleConnections()
	}
	if _, err := http.Get("http://" + url + "/live"); err == nil {
		resp, _ := http.Get("http://" + url + "/live")
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("in clear: %d", resp.StatusCode)
		}
		resp.Body.Close()
	}
	p.signal(syscall.SIGHUP)
	until(t, "the certificate is read again", func() bool { return strings.Contains(p.log.String(), "the certificate was read again") })
}

// certify writes a certificate for this machine and its key.
func certify(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	replace(t, filepath.Join(dir, "cert.pem"), string(cert))
	replace(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool
}

// A model of tensors cannot be asked for a text, and is not found at fault for it.
func TestDoctorOfTensors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 1, "degraded tensors: Model echo takes tensors, and the protocol for them is turned off."},
		{[]string{"--kserve-rest"}, 0, "fine tensors: Model echo takes tensors and is ready; it was not asked."},
	} {
		p := serve(t, append([]string{"--workers", "1", "--speedup-ratio", "0", "--tensor-echo", "echo"}, c.args...)...)
		d := doctor(t, "--server", p.url)
		d.says(t, c.code, c.says, "fine generate: Model dynago/demo answers")
	}
}

// at is a listener that is somewhere, and listens nowhere.
type at struct {
	net.Listener
	port int
}

func (a at) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: a.port} }

// Where HTTP has the usual port of gRPC, that port serves both, and nobody complains
// that it is taken.
func TestKServeWithHTTPOnUsualPort(t *testing.T) {
	var log bytes.Buffer
	s := &kserveSettings{GRPC: true, SidePort: new(freePorts(t, 1))}
	k, err := s.open("127.0.0.1", at{port: grpcPort}, nil, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	if k.grpc != nil || k.handed == nil || log.Len() > 0 {
		t.Errorf("%+v\n%s", k, &log)
	}
}
