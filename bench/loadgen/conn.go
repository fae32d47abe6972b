package loadgen

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// server is where requests go.
type server struct {
	address string // host:port
	head    string // of a chat request, up to the value of Content-Length
	get     string // of a GET, up to the path
	getTail string
}

func parseServer(raw, apiKey string) (*server, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("server address: %w", err)
	}
	if u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("server address %q: want http://host:port", raw)
	}
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), "80")
	}
	base := strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/v1")
	common := "Host: " + u.Host + "\r\n"
	if apiKey != "" {
		common += "Authorization: Bearer " + apiKey + "\r\n"
	}
	return &server{
		address: address,
		head:    "POST " + base + "/v1/chat/completions HTTP/1.1\r\n" + common + "Content-Type: application/json\r\nContent-Length: ",
		get:     "GET " + base,
		getTail: " HTTP/1.1\r\n" + common + "\r\n",
	}, nil
}

// firstModel asks the server which models it has.
func (s *server) firstModel(ctx context.Context) (string, error) {
	c, err := s.dial(ctx, 10*time.Second)
	if err != nil {
		return "", err
	}
	defer c.close()
	resp, err := c.roundTrip([]byte(s.get + "/v1/models" + s.getTail))
	if err != nil {
		return "", fmt.Errorf("ask %s for its models: %w", s.address, err)
	}
	defer resp.Body.Close()
	var list struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return "", fmt.Errorf("models of %s: status %d: %w", s.address, resp.StatusCode, err)
	}
	if len(list.Data) == 0 {
		return "", fmt.Errorf("models of %s: the list is empty; name one with -model", s.address)
	}
	return list.Data[0].ID, nil
}

// conn is one connection, used for one request at a time.
type conn struct {
	net.Conn
	server  *server
	reader  *bufio.Reader
	limit   time.Duration // for one answer
	request []byte
	forget  func() bool // stops watching the context
}

// dial connects to s. The connection breaks when ctx ends, and when one answer
// takes longer than limit.
func (s *server) dial(ctx context.Context, limit time.Duration) (*conn, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", s.address)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	forget := context.AfterFunc(ctx, func() { c.Close() })
	return &conn{Conn: c, server: s, reader: bufio.NewReader(c), limit: limit, forget: forget}, nil
}

func (c *conn) close() {
	c.forget()
	c.Conn.Close()
}

// send writes one chat request.
func (c *conn) send(body []byte) error {
	c.SetDeadline(time.Now().Add(c.limit))
	c.request = append(c.request[:0], c.server.head...)
	c.request = strconv.AppendInt(c.request, int64(len(body)), 10)
	c.request = append(c.request, "\r\n\r\n"...)
	c.request = append(c.request, body...)
	_, err := c.Write(c.request)
	return err
}

func (c *conn) roundTrip(request []byte) (*http.Response, error) {
	c.SetDeadline(time.Now().Add(c.limit))
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	return http.ReadResponse(c.reader, nil)
}

// answer is what one request brought.
type answer struct {
	text, reasoning, finish string // whole reads only
	tokens                  int
	prompt, cached          int // tokens of the prompt, and those of them that were cached
	events                  int
	first, whole            time.Duration
	gaps                    []time.Duration
}

var (
	errHung    = errors.New("no end within the limit")
	errAborted = errors.New("abandoned by this client")
)

// reading says how much of an answer is wanted.
type reading struct {
	stream     bool
	text       bool // collect the text
	gaps       bool // note the time between events
	abortAfter int  // abandon the stream after this many events; -1: never
	onEvent    func(n int)
}

// ask sends one chat request and takes in the answer. After any error the
// connection is of no more use.
func (c *conn) ask(body []byte, how reading) (answer, error) {
	start := time.Now()
	if err := c.send(body); err != nil {
		return answer{}, c.explain(err)
	}
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return answer{}, c.explain(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return answer{}, fmt.Errorf("status %d: %s", resp.StatusCode, strings.TrimSpace(string(text)))
	}

	var a answer
	if how.stream {
		err = a.readStream(bufio.NewReader(resp.Body), start, how)
	} else {
		err = a.readUnary(resp.Body)
	}
	a.whole = time.Since(start)
	if err != nil {
		return a, c.explain(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return a, c.explain(err)
	}
	return a, nil
}

// explain gives the reasons that callers count a name.
func (c *conn) explain(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errHung
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// chunk holds the members of a stream's chunk or of a whole answer that matter
// here.
type chunk struct {
	Choices []struct {
		Delta, Message struct {
			Content   string `json:"content"`
			Reasoning string `json:"reasoning_content"`
		}
		FinishReason string `json:"finish_reason"`
	}
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		PromptDetails    struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Error *struct{ Message string }
}

func (a *answer) readUnary(r io.Reader) error {
	var whole chunk
	if err := json.NewDecoder(r).Decode(&whole); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if len(whole.Choices) == 0 || whole.Usage == nil {
		return errors.New("answer: no choices or no usage")
	}
	first := whole.Choices[0]
	a.text, a.reasoning, a.finish = first.Message.Content, first.Message.Reasoning, first.FinishReason
	a.account(&whole)
	if a.finish == "" {
		return errors.New("answer: no finish_reason")
	}
	return nil
}

// account takes in the usage that a chunk tells.
func (a *answer) account(c *chunk) {
	a.tokens = c.Usage.CompletionTokens
	a.prompt, a.cached = c.Usage.PromptTokens, c.Usage.PromptDetails.CachedTokens
}

// readStream reads to [DONE]. Unless the text is wanted it decodes only chunks
// that hold usage or an error: inside a JSON string a quote is escaped, so the
// quoted member names cannot be part of the text.
func (a *answer) readStream(r *bufio.Reader, start time.Time, how reading) error {
	last := start
	var text, reasoning strings.Builder
	for event, err := range Events(r) {
		if err != nil {
			return err
		}
		if string(event.Data) == "[DONE]" {
			a.text, a.reasoning = text.String(), reasoning.String()
			return a.checkDone()
		}
		if a.events == how.abortAfter {
			return errAborted
		}
		a.events++
		if a.events == 1 || how.gaps {
			now := time.Now()
			if a.events == 1 {
				a.first = now.Sub(start)
			} else {
				a.gaps = append(a.gaps, now.Sub(last))
			}
			last = now
		}
		if how.onEvent != nil {
			how.onEvent(a.events)
		}
		if !how.text && !worthDecoding(event.Data) {
			continue
		}

		var c chunk
		if err := json.Unmarshal(event.Data, &c); err != nil {
			return fmt.Errorf("chunk: %w", err)
		}
		if c.Error != nil {
			return fmt.Errorf("error in stream: %s", c.Error.Message)
		}
		if c.Usage != nil {
			a.account(&c)
		}
		for _, choice := range c.Choices {
			text.WriteString(choice.Delta.Content)
			reasoning.WriteString(choice.Delta.Reasoning)
			if choice.FinishReason != "" {
				a.finish = choice.FinishReason
			}
		}
	}
	return io.ErrUnexpectedEOF
}

func worthDecoding(data []byte) bool {
	return bytes.Contains(data, []byte(`"error":`)) ||
		bytes.Contains(data, []byte(`"completion_tokens":`)) ||
		bytes.Contains(data, []byte(`"finish_reason":"`))
}

func (a *answer) checkDone() error {
	if a.finish == "" {
		return errors.New("stream: [DONE] without a finish_reason")
	}
	if a.tokens == 0 {
		return errors.New("stream: [DONE] without usage")
	}
	return nil
}
