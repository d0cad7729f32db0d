package comfy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"hash"
	"io"
	"net/http"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/hub"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// appendTuple writes a queue item: [number, id, graph, extra_data, outputs].
// Strict clients unpack exactly these five.
func appendTuple(dst []byte, j job.Job, body job.Body) []byte {
	dst = append(dst, '[')
	dst = append(dst, j.Number...)
	dst = append(dst, ", "...)
	dst = pyjson.AppendString(dst, j.ID)
	dst = append(dst, ", "...)
	dst = append(dst, orEmpty(body.Prompt)...)
	dst = append(dst, ", "...)
	dst = append(dst, orEmpty(body.Extra)...)
	dst = append(dst, ", "...)
	dst = pyjson.Append(dst, pyjson.Strings(body.Outputs))
	return append(dst, ']')
}

func orEmpty(raw []byte) []byte {
	if len(raw) == 0 {
		return []byte("{}")
	}
	return raw
}

// listing is a list of jobs that is being made. What it is made of may be
// larger than memory: bodies that were sent compressed a thousand times, and ten
// thousand of them.
type listing struct {
	shared

	share  string
	buffer *intake.Buffer
	sum    hash.Hash
	err    error // the first one
}

func (l lists) newListing(a api.Requester) *listing {
	return &listing{shared: l.shared, share: a.Share(), buffer: l.Intake.NewBuffer(a.Share()), sum: sha256.New()}
}

func (l *listing) close() { l.buffer.Take().Close() }

// write adds whole tokens of JSON.
func (l *listing) write(p []byte) {
	if l.err == nil {
		p = pyjson.Strict(p)
		l.sum.Write(p)
		_, l.err = l.buffer.Write(p)
	}
}

func (l *listing) text(s string) { l.write([]byte(s)) }

// tuples writes a JSON list of queue items, with one body in memory at a time.
// A job whose body is gone has just ended: it is in the history by now, and has
// no place here.
func (l *listing) tuples(ctx context.Context, jobs []job.Job) error {
	keys := make([]string, len(jobs))
	byKey := make(map[string]job.Job, len(jobs))
	for n, j := range jobs {
		keys[n], byKey[j.Key] = j.Key, j
	}
	separator := ""
	l.text("[")
	err := l.hub.Jobs().EachBody(ctx, keys, func(stored hub.StoredBody) error {
		release, err := l.Intake.Reserve(ctx, l.share, 3*stored.Size())
		if err != nil {
			return err
		}
		defer release()
		body, err := stored.Read()
		if err != nil {
			l.Log().Error("a job's body cannot be read", "job", stored.Key, "error", err)
		}
		l.text(separator)
		l.write(appendTuple(nil, byKey[stored.Key], body))
		separator = ", "
		return l.err
	})
	l.text("]")
	return err
}

// answer sends the list, or what went wrong with it.
func (l *listing) answer(w http.ResponseWriter, r *http.Request, err error) {
	if err = cmp.Or(err, l.err); err != nil {
		l.RefuseBody(w, r, l.share, api.SmallBody, err)
		return
	}
	body := l.buffer.Take()
	if api.Unchanged(w, r, l.sum.Sum(nil)) {
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json; charset=utf-8")
	header.Set("Content-Length", strconv.FormatInt(body.Size(), 10))
	w.WriteHeader(http.StatusOK)
	_, _ = io.Copy(w, body.Reader()) // the visitor may be gone
}
