package enhance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"path"
	"time"
)

var (
	// ErrLong means that a recording has more bytes than Transcribing.MaxBytes.
	ErrLong = errors.New("enhance: the recording is too long")
	// ErrSilent means that nothing is said in it.
	ErrSilent = errors.New("enhance: nothing is said in the recording")
)

// Transcribing says who writes down what people say. URL and Model are required.
type Transcribing struct {
	// URL, Key and Model are those of the endpoint, as in Options.
	URL, Key, Model string
	// Timeout bounds a call. Default: 60 s.
	Timeout time.Duration
	// AtOnce is how many calls are made at the same time. Default: 4.
	AtOnce int
	// MaxBytes bounds a recording. Default: 5 MiB, some twenty minutes.
	MaxBytes int64
	// Observe is called for each call. Optional.
	Observe func(Task, error, time.Duration)
	// HTTP makes the connections. Default: http.DefaultTransport's settings.
	HTTP *http.Transport
}

// Transcriber writes down what people say, by any endpoint that speaks OpenAI's audio
// transcriptions. It is safe for concurrent use.
type Transcriber struct {
	*endpoint
	o Transcribing
}

// NewTranscriber returns a Transcriber. Close it.
func NewTranscriber(o Transcribing) *Transcriber {
	o.MaxBytes = cmp.Or(o.MaxBytes, 5<<20)
	if o.Observe == nil {
		o.Observe = func(Task, error, time.Duration) {}
	}
	return &Transcriber{newEndpoint(o.URL, o.Key, cmp.Or(o.Timeout, time.Minute), o.AtOnce, o.HTTP), o}
}

// Words returns what is said in a recording, on one line, never empty. name is that of a file,
// which says what kind of recording it is.
func (t *Transcriber) Words(ctx context.Context, name string, recording io.Reader) (words string, err error) {
	begin := time.Now()
	err = t.turn(ctx, func(ctx context.Context) error {
		kind, body, err := t.form(name, recording)
		if err != nil {
			return err
		}
		text, err := t.post(ctx, "/audio/transcriptions", kind, body)
		if err != nil {
			return err
		}
		var answer struct{ Text string }
		if json.Unmarshal(text, &answer) != nil {
			return fmt.Errorf("%w: it is not JSON of the expected form", ErrOdd) // the error may quote it
		}
		if words = Clean(answer.Text); words == "" {
			return ErrSilent
		}
		return nil
	})
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	t.o.Observe(Transcribe, err, time.Since(begin))
	return words, err
}

// form returns the body of a call, in memory: some endpoints want to know its length.
func (t *Transcriber) form(name string, recording io.Reader) (kind string, body []byte, err error) {
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	for key, value := range map[string]string{"model": t.o.Model, "response_format": "json"} {
		if err := form.WriteField(key, value); err != nil {
			return "", nil, err
		}
	}
	part, err := form.CreateFormFile("file", path.Base(name))
	if err != nil {
		return "", nil, err
	}
	n, err := io.Copy(part, io.LimitReader(recording, t.o.MaxBytes+1))
	switch {
	case err != nil:
		return "", nil, fmt.Errorf("reading a recording: %w", err)
	case n > t.o.MaxBytes:
		return "", nil, ErrLong
	}
	err = form.Close()
	return form.FormDataContentType(), b.Bytes(), err
}
