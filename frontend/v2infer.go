package frontend

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/sse"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/kserve"
)

// v2Exchange is one call of KServe over REST. What a call is stands in inference.go;
// this is how it is read from a body and how its responses are written.
type v2Exchange struct {
	*Server
	w  http.ResponseWriter
	r  *http.Request
	at v2Path

	binary kserve.Binary // which outputs go out as bytes
}

// v2Call answers a call.
func (s *Server) v2Call(w http.ResponseWriter, r *http.Request, at v2Path) {
	ctx, cancel := context.WithCancel(context.Background())
	// The connection may be taken from net/http, whose context ends then.
	deaf := context.AfterFunc(r.Context(), cancel)
	v := &v2Exchange{Server: s, w: w, r: r, at: at}
	i, err := s.Open(ctx, &Arrival{
		Header: r.Header, Model: at.model, Several: at.verb == v2GenerateStream,
		Text: v.text, Tensors: v.tensors, exchange: exchangeOf(r),
	})
	if err != nil {
		deaf()
		cancel()
		s.v2Refuse(w, err)
		return
	}
	v.identify(i.job.x)
	if at.verb == v2GenerateStream {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		if d := s.detach(w, r, cancel); d != nil {
			deaf()
			go func() {
				defer cancel()
				defer d.end()
				defer s.recover(d, i.job.x)
				s.v2Stream(d, i)
			}()
			return
		}
	}
	defer cancel()
	defer deaf()
	if at.verb == v2GenerateStream {
		s.v2Stream(w, i)
	} else {
		v.unary(i)
	}
}

// identify tells the ids by which the call is known, which its body may have changed.
func (v *v2Exchange) identify(x *exchange) {
	h := v.w.Header()
	h["Request-Id"] = []string{x.id}
	h["X-Request-Id"] = []string{x.correlation}
}

// text reads the call of a model of text.
func (v *v2Exchange) text() (*kserve.Completion, error) {
	r, err := v.request()
	if err != nil {
		return nil, err
	}
	return kserve.DecodeCompletion(r, v.OpenAI)
}

// tensors reads the call of a model of tensors.
func (v *v2Exchange) tensors() (*kserve.Request, error) {
	if v.at.verb != v2Infer {
		return nil, refusal(http.StatusBadRequest, "Model '%s' takes tensors: ask it by infer, %s is for models of text", clip(v.at.model), v.at.verb)
	}
	return v.request()
}

// request reads the body.
func (v *v2Exchange) request() (r *kserve.Request, err error) {
	if v.at.verb != v2Infer {
		body, err := v.body(v.w, v.r)
		if err != nil {
			return nil, err
		}
		return kserve.FromGenerate(body, v.at.model, v.at.version, v.at.verb == v2GenerateStream)
	}
	header, read := -1, v.body
	if v.r.Header.Get("Content-Type") == "application/octet-stream" {
		read = v.payload // so one of Triton's clients calls its JSON
	}
	if length := v.r.Header.Get(v2HeaderLength); length != "" {
		// A body with bytes in it is no JSON, whatever it says.
		n, err := strconv.ParseUint(length, 10, 31)
		if err != nil {
			return nil, refusal(http.StatusBadRequest, "Failed to parse request: %s must be a number of bytes, got %s", v2HeaderLength, clip(length))
		}
		header, read = int(n), v.payload
	}
	body, err := read(v.w, v.r)
	switch {
	case err != nil:
		return nil, err
	case header == 0:
		r, err = v.bytes(body)
	default:
		r, v.binary, err = kserve.FromJSON(body, header)
	}
	if err != nil {
		return nil, err
	}
	r.Model, r.Version = v.at.model, v.at.version
	return r, nil
}

// bytes reads a body that is the data of the one input of its model.
func (v *v2Exchange) bytes(body []byte) (r *kserve.Request, err error) {
	model := v.names.primary(v.resolve(v.at.model))
	config, err := kserve.Config(model, v.Backend.Card(model))
	if err != nil {
		return nil, err
	}
	r, v.binary, err = kserve.FromBytes(body, config)
	return r, err
}

// v2HeaderLength is the header that tells how long the JSON is before the bytes.
const v2HeaderLength = "Inference-Header-Content-Length"

// unary answers with the one response. The record of the call is open until it is sent.
func (v *v2Exchange) unary(i *Inference) {
	for response, err := range i.Responses() {
		i.job.x.answered = true
		var text []byte
		var tail [][]byte
		if err == nil {
			if text, tail, err = v.encode(response); err != nil {
				err = i.Spoilt(err)
			}
		}
		if err != nil {
			v.v2Refuse(v.w, err)
			return
		}
		i.job.tell(v.w.Header().Set, &i.notes[0])
		if v.write(text, tail) != nil {
			return
		}
	}
}

func (v *v2Exchange) encode(r *kserve.Response) (text []byte, tail [][]byte, err error) {
	if v.at.verb == v2Infer {
		return kserve.ToJSON(nil, r, v.binary)
	}
	return kserve.AppendGenerated(nil, r), nil, nil
}

// write sends the JSON of a response and the bytes that follow it, none of which are
// copied.
func (v *v2Exchange) write(text []byte, tail [][]byte) error {
	if len(tail) == 0 {
		return v.respond(v.w, http.StatusOK, text)
	}
	length := len(text)
	for _, data := range tail {
		length += len(data)
	}
	h := v.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.Itoa(length))
	h.Set(v2HeaderLength, strconv.Itoa(len(text)))
	connection := http.NewResponseController(v.w)
	if v.Timing.Write > 0 {
		connection.SetWriteDeadline(time.Now().Add(v.Timing.Write)) //nolint:errcheck // not every connection has deadlines
	}
	v.w.WriteHeader(http.StatusOK)
	for _, part := range slices.Insert(tail, 0, text) {
		if _, err := v.w.Write(part); err != nil {
			return err
		}
	}
	return connection.Flush()
}

// v2Stream sends the responses as they come.
func (s *Server) v2Stream(w http.ResponseWriter, i *Inference) {
	// A permit is held until the last byte is written.
	s.stage.join()
	defer s.stage.leave()
	x := i.job.x
	x.answered = true
	out := sse.NewWriter(w, v2Frames{s}, x.arrived, *s.Timing, i.job.cancel)
	// A panic below must not leave a timer that writes to a dead answer.
	defer out.Fail(errPanicked)
	for response, err := range i.Responses() {
		if err != nil {
			if context.Cause(i.job.ctx) == engine.ErrClientGone && out.Opened() {
				out.Abandon()
				return
			}
			out.Fail(err)
			return
		}
		i.job.tell(out.SetHeader, &i.notes[0])
		if v2Send(out, response) != nil {
			return
		}
	}
	out.Close() //nolint:errcheck // the client has gone, and nothing is left to do
}

func v2Send(out *sse.Writer, r *kserve.Response) error {
	buf := buffers.Get().(*[]byte)
	defer release(buf)
	*buf = kserve.AppendGenerated(append((*buf)[:0], "data: "...), r)
	*buf = append(*buf, "\n\n"...)
	return out.Event(*buf)
}

// v2Frames is what surrounds the responses of a stream.
type v2Frames struct{ server *Server }

func (v2Frames) AppendOpening(dst []byte) []byte { return dst }

func (v2Frames) AppendEnd(dst []byte) []byte { return dst }

func (v2Frames) AppendPing(dst []byte) []byte { return append(dst, sse.Comment...) }

func (f v2Frames) AppendFailure(dst []byte, err error) []byte {
	dst = v2AppendError(append(dst, "data: "...), wire.ErrorOf(err, f.server.OverloadStatus))
	return append(dst, "\n\n"...)
}

func (f v2Frames) Refuse(w http.ResponseWriter, err error) { f.server.v2Refuse(w, err) }
