package otel

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Config says what is exported and where it goes. Its zero value exports nothing.
type Config struct {
	Enabled      bool
	Traces, Logs Export
	// Ratio is the share of new traces that is told of, 0..1; nil: all.
	Ratio   *float64
	Service string
}

// Export is where one kind of things goes.
type Export struct {
	HTTP     bool   // in protobuf; otherwise over gRPC
	Endpoint string // URL
}

// Complaint is about a variable whose value cannot be used.
type Complaint struct{ Name, Value, Wrong string }

// String returns the complaint as a sentence.
func (c Complaint) String() string { return fmt.Sprintf("%s: %q: %s", c.Name, c.Value, c.Wrong) }

// Read reads the variables of OpenTelemetry. What is wrong with one is told, and it is
// as if it were not there.
func Read(lookup func(string) (string, bool)) (c Config, complaints []Complaint) {
	r := reader{lookup: lookup}
	c.Enabled = r.truth("OTEL_EXPORT_ENABLED")
	c.Traces = r.export("TRACES", "/v1/traces")
	c.Ratio = r.ratio("OTEL_TRACES_SAMPLE_RATIO")
	r.logs(&c)
	return c, r.complaints
}

// ReadLogs reads where logs go and whose they are alone, for one who sends logs that are
// not lines of this program's.
func ReadLogs(lookup func(string) (string, bool)) (c Config, complaints []Complaint) {
	r := reader{lookup: lookup}
	r.logs(&c)
	return c, r.complaints
}

func (r *reader) logs(c *Config) {
	c.Logs = r.export("LOGS", "/v1/logs")
	c.Service = cmp.Or(r.value("OTEL_SERVICE_NAME"), "dynamo")
}

// reader reads variables, and keeps what is wrong with them.
type reader struct {
	lookup     func(string) (string, bool)
	complaints []Complaint
}

// value returns a value without blanks around it; an empty one is none.
func (r *reader) value(name string) string {
	v, _ := r.lookup(name)
	return strings.TrimSpace(v)
}

func (r *reader) complain(name, value, wrong string) {
	c := Complaint{name, value, wrong}
	for _, other := range r.complaints {
		if other == c {
			return
		}
	}
	r.complaints = append(r.complaints, c)
}

func (r *reader) truth(name string) bool {
	v := r.value(name)
	switch strings.ToLower(v) {
	case "1", "true", "yes", "on":
		return true
	case "", "0", "false", "no", "off":
		return false
	}
	r.complain(name, v, "want true or false; it counts as false")
	return false
}

func (r *reader) ratio(name string) *float64 {
	v := r.value(name)
	if v == "" {
		return nil
	}
	ratio, err := strconv.ParseFloat(v, 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		r.complain(name, v, "want a number from 0 to 1; all traces are exported")
		return nil
	}
	return &ratio
}

// export resolves where one signal goes. Each has variables of its own, which come
// before those of all; no signal falls back to those of another.
func (r *reader) export(signal, path string) Export {
	const common = "OTEL_EXPORTER_OTLP_"
	var e Export
	for _, name := range []string{common + signal + "_PROTOCOL", common + "PROTOCOL"} {
		v := r.value(name)
		if v == "" {
			continue
		}
		switch strings.ToLower(v) {
		case "grpc":
		case "http/protobuf":
			e.HTTP = true
		default:
			r.complain(name, v, "want grpc or http/protobuf; it counts as grpc")
		}
		break
	}
	if e.Endpoint = r.endpoint(common+signal+"_ENDPOINT", ""); e.Endpoint != "" {
		return e
	}
	e.Endpoint, path = "http://localhost:4317", map[bool]string{true: path}[e.HTTP]
	if e.HTTP {
		e.Endpoint = "http://localhost:4318" + path
	}
	e.Endpoint = cmp.Or(r.endpoint(common+"ENDPOINT", path), e.Endpoint)
	return e
}

// endpoint reads an address; one without a scheme is one in clear text.
func (r *reader) endpoint(name, path string) string {
	v := r.value(name)
	if v == "" {
		return ""
	}
	address := v
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		r.complain(name, v, "want an address such as http://localhost:4317; it is ignored")
		return ""
	}
	if path == "" {
		return address
	}
	return strings.TrimRight(address, "/") + path
}
