package trace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kinds of sinks, which are the values of [Config.Sinks].
const (
	SinkFile   = "file"
	SinkStderr = "stderr"
	SinkNATS   = "nats"
	SinkOTel   = "otel"
	SinkS3     = "s3"
)

// Config says what is recorded and where it goes. Its zero value records nothing.
type Config struct {
	// RequestEnds, Payloads and Tools are the records that are wanted.
	RequestEnds, Payloads, Tools bool
	Sinks                        []string // each once, in the order in which they were named
	Capacity                     int      // of the ring of each sink, in records

	File FileConfig
	NATS NATSConfig
	OTel OTelConfig
	S3   S3Config
	// ToolEndpoint is where harnesses send tool events to, and ToolTopic what they
	// call them; "" if they do not.
	ToolEndpoint, ToolTopic string
	// Headers are those that payload records have, in lower case.
	Headers []string
}

// FileConfig is where files go, and how they are written.
type FileConfig struct {
	Path          string // of the file, or what the names of segments begin with
	Plain         bool   // one file of lines, instead of compressed segments
	BufferBytes   int    // of lines that are held back, at most
	FlushInterval time.Duration
	RollBytes     int64 // of lines, after which another segment begins
	RollLines     int64 // after which another segment begins; 0: any number
}

// NATSConfig is what records are published as.
type NATSConfig struct{ Subject string }

// OTelConfig says how long one record may be in JSON.
type OTelConfig struct{ MaxPayloadBytes int }

// S3Config is where objects go, and how large they are.
type S3Config struct {
	Bucket, Region, Prefix string
	RollBytes              int64 // of lines, before compression
	FlushInterval          time.Duration
}

// Enabled says whether anything is recorded.
func (c *Config) Enabled() bool { return c.RequestEnds || c.Payloads || c.Tools }

// Complaint is about a variable whose value cannot be used.
type Complaint struct {
	Name, Value string
	// Wrong says what is wrong with the value, and what happens instead.
	Wrong string
}

// String returns the complaint as a sentence.
func (c Complaint) String() string { return fmt.Sprintf("%s: %q: %s", c.Name, c.Value, c.Wrong) }

// Names of variables, each of which begins with this.
const requestTrace = "DYN_REQUEST_TRACE"

// aliases are the names of a variable, the first of which that has a value counts,
// in the order of their generations.
var aliases = map[string][]string{
	"_SINKS":                      {requestTrace + "_SINKS", "DYN_AUDIT_SINKS", agentTrace + "_SINKS"},
	"_FILE_PATH":                  {requestTrace + "_FILE_PATH", requestTrace + "_OUTPUT_PATH", "DYN_AUDIT_OUTPUT_PATH", agentTrace + "_OUTPUT_PATH"},
	"_CAPACITY":                   {requestTrace + "_CAPACITY", "DYN_AUDIT_CAPACITY", agentTrace + "_CAPACITY"},
	"_FILE_BUFFER_BYTES":          {requestTrace + "_FILE_BUFFER_BYTES", requestTrace + "_JSONL_BUFFER_BYTES", "DYN_AUDIT_JSONL_BUFFER_BYTES", agentTrace + "_JSONL_BUFFER_BYTES"},
	"_FILE_FLUSH_INTERVAL_MS":     {requestTrace + "_FILE_FLUSH_INTERVAL_MS", requestTrace + "_JSONL_FLUSH_INTERVAL_MS", "DYN_AUDIT_JSONL_FLUSH_INTERVAL_MS", agentTrace + "_JSONL_FLUSH_INTERVAL_MS"},
	"_FILE_ROLL_BYTES":            {requestTrace + "_FILE_ROLL_BYTES", requestTrace + "_JSONL_GZ_ROLL_BYTES", "DYN_AUDIT_JSONL_GZ_ROLL_BYTES", agentTrace + "_JSONL_GZ_ROLL_BYTES"},
	"_FILE_ROLL_LINES":            {requestTrace + "_FILE_ROLL_LINES", requestTrace + "_JSONL_GZ_ROLL_LINES", "DYN_AUDIT_JSONL_GZ_ROLL_LINES", agentTrace + "_JSONL_GZ_ROLL_LINES"},
	"_NATS_SUBJECT":               {requestTrace + "_NATS_SUBJECT", "DYN_AUDIT_NATS_SUBJECT"},
	"_OTEL_MAX_PAYLOAD_BYTES":     {requestTrace + "_OTEL_MAX_PAYLOAD_BYTES", "DYN_AUDIT_OTEL_MAX_PAYLOAD_BYTES"},
	"_TOOL_EVENTS_ZMQ_ENDPOINT":   {requestTrace + "_TOOL_EVENTS_ZMQ_ENDPOINT", agentTrace + "_TOOL_EVENTS_ZMQ_ENDPOINT"},
	"_TOOL_EVENTS_ZMQ_TOPIC":      {requestTrace + "_TOOL_EVENTS_ZMQ_TOPIC", agentTrace + "_TOOL_EVENTS_ZMQ_TOPIC"},
	"_HTTP_HEADER_CAPTURE_LIST":   {requestTrace + "_HTTP_HEADER_CAPTURE_LIST"},
	"_RECORDS":                    {requestTrace + "_RECORDS"},
	"_FILE_FORMAT":                {requestTrace + "_FILE_FORMAT"},
	"_S3_BUCKET":                  {requestTrace + "_S3_BUCKET"},
	"_S3_REGION":                  {requestTrace + "_S3_REGION"},
	"_S3_PREFIX":                  {requestTrace + "_S3_PREFIX"},
	"_S3_ROLL_UNCOMPRESSED_BYTES": {requestTrace + "_S3_ROLL_UNCOMPRESSED_BYTES"},
	"_S3_FLUSH_INTERVAL_MS":       {requestTrace + "_S3_FLUSH_INTERVAL_MS"},
}

// What was called otherwise before.
const (
	agentTrace    = "DYN_AGENT_TRACE"
	auditForce    = "DYN_AUDIT_FORCE_LOGGING"
	auditSinks    = "DYN_AUDIT_SINKS"
	agentPath     = "/tmp/dynamo-agent-trace"
	agentEndpoint = "tcp://127.0.0.1:20390"
	auditSubject  = "dynamo.audit.v1"
)

// Read returns what variables say, and what of it cannot be used; the default of such
// a one holds. Lookup returns the value of a variable and whether it is set, as
// [os.LookupEnv] does.
func Read(lookup func(name string) (string, bool)) (Config, []Complaint) {
	e := environment{lookup: lookup}
	agent := e.truthy(agentTrace)
	master := e.truthy(requestTrace)
	var c Config
	e.records(&c, master || agent)
	from := e.sinks(&c)
	c.Capacity = int(e.number("_CAPACITY", 1, 1<<30, 1024))

	c.File.Path = e.text("_FILE_PATH", pick(agent && !master, agentPath, "/tmp/dynamo-request-trace"))
	c.File.BufferBytes = int(e.number("_FILE_BUFFER_BYTES", 0, 1<<30, 1<<20))
	c.File.FlushInterval = e.milliseconds("_FILE_FLUSH_INTERVAL_MS", 0, 1000)
	c.File.RollBytes = e.number("_FILE_ROLL_BYTES", 1, 1<<62, 256<<20)
	c.File.RollLines = e.number("_FILE_ROLL_LINES", 1, 1<<62, 0)

	c.NATS.Subject = e.text("_NATS_SUBJECT", pick(from == auditSinks && slices.Contains(c.Sinks, SinkNATS), auditSubject, "dynamo.request_trace.v1"))
	c.OTel.MaxPayloadBytes = int(e.number("_OTEL_MAX_PAYLOAD_BYTES", 1, 1<<40, 4<<20))
	c.S3 = S3Config{
		Bucket: e.text("_S3_BUCKET", ""), Region: e.text("_S3_REGION", ""), Prefix: e.text("_S3_PREFIX", ""),
		RollBytes: e.number("_S3_ROLL_UNCOMPRESSED_BYTES", 1, 1<<62, 64<<20), FlushInterval: e.milliseconds("_S3_FLUSH_INTERVAL_MS", 1, 10000),
	}
	if c.ToolEndpoint = e.text("_TOOL_EVENTS_ZMQ_ENDPOINT", pick(agent && !master, agentEndpoint, "")); c.ToolEndpoint != "" {
		c.ToolTopic = e.text("_TOOL_EVENTS_ZMQ_TOPIC", "agent-tool-events")
	}
	c.Headers = headerList(e.text("_HTTP_HEADER_CAPTURE_LIST", ""))
	e.outdated(agent)
	return c, e.complaints
}

func pick(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// environment reads variables.
type environment struct {
	lookup     func(string) (string, bool)
	complaints []Complaint
	old        string // a variable by its old name
}

func (e *environment) complain(name, value, wrong string) {
	e.complaints = append(e.complaints, Complaint{name, value, wrong})
}

// outdated says once that old names are in use.
func (e *environment) outdated(agent bool) {
	if agent {
		e.old = agentTrace
	}
	if e.old != "" {
		value, _ := e.lookup(e.old)
		e.complain(e.old, value, "this name is outdated: want one that begins with "+requestTrace)
	}
}

// given returns the trimmed value of a variable, or "" if it has none.
func (e *environment) given(name string) string {
	value, _ := e.lookup(name)
	return strings.TrimSpace(value)
}

func (e *environment) truthy(name string) bool {
	value := e.given(name)
	switch strings.ToLower(value) {
	case "1", "true", "on", "yes":
		return true
	case "", "0", "false", "off", "no":
		return false
	}
	e.complain(name, value, "want true or false; it counts as false")
	return false
}

// first returns the value of the first alias that has one which is good, and its name.
func (e *environment) first(suffix string, good func(name, value string) bool) (name, value string) {
	for _, name := range aliases[suffix] {
		value := e.given(name)
		if value == "" {
			continue
		}
		if strings.HasPrefix(name, agentTrace) {
			e.old = name
		}
		if good(name, value) {
			return name, value
		}
	}
	return "", ""
}

func anything(string, string) bool { return true }

func (e *environment) text(suffix, otherwise string) string {
	if _, value := e.first(suffix, anything); value != "" {
		return value
	}
	return otherwise
}

// number returns the first value that is a number. One that is out of bounds is not
// made up for by another alias.
func (e *environment) number(suffix string, least, most, otherwise int64) int64 {
	var n int64
	name, value := e.first(suffix, func(name, value string) bool {
		parsed, err := strconv.ParseUint(value, 10, 63)
		if err != nil {
			e.complain(name, value, "want a whole number; it is passed over")
			return false
		}
		n = int64(parsed)
		return true
	})
	switch {
	case name == "":
		return otherwise
	case n < least || n > most:
		e.complain(name, value, fmt.Sprintf("want %d to %d; %d holds", least, most, otherwise))
		return otherwise
	}
	return n
}

// milliseconds returns a time of one or more.
func (e *environment) milliseconds(suffix string, least, otherwise int64) time.Duration {
	return time.Duration(max(1, e.number(suffix, least, 1<<40, otherwise))) * time.Millisecond
}

// records sets which records are wanted. A list is the whole truth, also if there is
// nothing in it.
func (e *environment) records(c *Config, on bool) {
	c.RequestEnds, c.Tools, c.Payloads = on, on, e.truthy(auditForce)
	name, value := e.first("_RECORDS", anything)
	if value == "" {
		return
	}
	c.RequestEnds, c.Tools, c.Payloads = false, false, false
	for kind := range names(value) {
		switch kind {
		case RequestEnd:
			c.RequestEnds = true
		case RequestPayload:
			c.Payloads = true
		case "tool", "tools", ToolStart, ToolEnd, ToolError:
			c.Tools = true
		default:
			e.complain(name, kind, "want request_end, request_payload or tool; it is passed over")
		}
	}
}

// sinks sets where records go, and how files are written, since older names of sinks
// say that as well. It returns the variable that has said so, or "".
func (e *environment) sinks(c *Config) string {
	name, value := e.first("_SINKS", anything)
	var plain, packed bool
	add := func(sink string) {
		if !slices.Contains(c.Sinks, sink) {
			c.Sinks = append(c.Sinks, sink)
		}
	}
	some := false
	for sink := range names(value) {
		some = true
		switch sink {
		case SinkFile, SinkStderr, SinkNATS, SinkOTel, SinkS3:
			add(sink)
		case "jsonl":
			plain = true
			add(SinkFile)
		case "jsonl_gz":
			packed = true
			add(SinkFile)
		default:
			e.complain(name, sink, "want file, stderr, nats, otel or s3; it is passed over")
		}
	}
	switch {
	case name == "":
		add(SinkFile)
	case !some:
		add(SinkStderr)
	}
	c.File.Plain = plain && !packed
	switch name, format := e.first("_FILE_FORMAT", anything); strings.ToLower(format) {
	case "":
	case "jsonl":
		c.File.Plain = true
	case "jsonl_gz", "jsonl.gz":
		c.File.Plain = false
	default:
		c.File.Plain = false
		e.complain(name, format, "want jsonl or jsonl_gz, which holds")
	}
	return name
}

// names yields the items of a comma-separated list in lower case.
func names(list string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for item := range strings.SplitSeq(list, ",") {
			if item = strings.ToLower(strings.TrimSpace(item)); item != "" && !yield(item) {
				return
			}
		}
	}
}

// headerList returns the names in a list with commas or blanks between them.
func headerList(list string) (headers []string) {
	for _, name := range strings.FieldsFunc(strings.ToLower(list), func(r rune) bool {
		return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r'
	}) {
		if !slices.Contains(headers, name) {
			headers = append(headers, name)
		}
	}
	return headers
}
