package limits

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/url"
	"time"
)

// Results configures a service that judges every result before anybody sees it.
type Results struct {
	// Hook is its URL.
	Hook string `yaml:"hook"`
	// Timeout bounds a call. Default: 20 s.
	Timeout time.Duration `yaml:"timeout"`
	// Fail says what to do with a file that could not be judged: "closed" withholds it,
	// "open" shows it. Default: closed.
	Fail string `yaml:"fail"`
}

const (
	maxResultsTimeout = 2 * time.Minute
	// maxResult is the largest file that is sent to the service, in bytes; maxVerdict bounds
	// the answer.
	maxResult  = 20 << 20
	maxVerdict = 16 << 10
	// judgeWidth is how many files are held in memory at the same time.
	judgeWidth = 2
)

// Problems returns what is wrong with the configuration.
func (c Results) Problems() (list []error) {
	add := func(format string, args ...any) { list = append(list, fmt.Errorf("results: "+format, args...)) }
	if u, err := url.Parse(c.Hook); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		add("hook: this is not an http or https address")
	}
	if c.Timeout < 0 || c.Timeout > maxResultsTimeout {
		add("timeout: %v is not between 0s and %v", c.Timeout, maxResultsTimeout)
	}
	if c.Fail != "" && c.Fail != "open" && c.Fail != "closed" {
		add("fail: %q is neither open nor closed", c.Fail)
	}
	return list
}

// Made is a file that was made, with what was asked for.
type Made struct {
	// Name is the name of the file, Size its size in bytes.
	Name string
	Size int64
	// Words and Command are those of the request.
	Words, Command string
	// Read reads the file.
	Read func(ctx context.Context) ([]byte, error)
}

// Verdict is the service's answer.
type Verdict struct {
	// Verdict is "allow", "spoiler" (hidden until somebody reveals it) or "refuse".
	Verdict string `json:"verdict"`
	// Reason is for the user, in the service's words.
	Reason string `json:"reason"`
}

// The verdicts.
const (
	Allow   = "allow"
	Spoiler = "spoiler"
	Refuse  = "refuse"
)

// Judge asks the service. It is safe for concurrent use.
type Judge struct {
	c     Results
	http  *http.Client
	turns chan struct{}
}

// NewJudge returns a Judge, which makes its connections with a transport.
func NewJudge(c Results, transport http.RoundTripper) *Judge {
	c.Timeout = cmp.Or(c.Timeout, 20*time.Second)
	return &Judge{c: c, turns: make(chan struct{}, judgeWidth), http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// readTimeout bounds reading a file from the hub, which takes up one of the judgeWidth
// slots.
const readTimeout = time.Minute

// errNoVerdict means that the service gave no usable verdict.
var errNoVerdict = errors.New("the results hook gave no verdict")

// Judge returns the verdict on a file. Without an answer, it is what Fail says, and failed
// is the cause. The error comes from reading the file, or from a context that ended: it may
// be tried again.
func (j *Judge) Judge(ctx context.Context, m Made) (v Verdict, failed, err error) {
	select {
	case j.turns <- struct{}{}:
	case <-ctx.Done():
		return v, nil, ctx.Err()
	}
	defer func() { <-j.turns }()
	failed = fmt.Errorf("%w: the file is larger than %d bytes", errNoVerdict, int64(maxResult))
	if m.Size <= maxResult {
		reading, cancel := context.WithTimeout(ctx, readTimeout)
		data, err := m.Read(reading)
		cancel()
		if err != nil {
			return v, nil, err
		}
		if len(data) <= maxResult { // the size may not have been known
			v, failed = j.ask(ctx, m, data)
		}
		if failed == nil {
			return v, nil, nil
		}
	}
	if ctx.Err() != nil {
		return v, nil, ctx.Err()
	}
	if j.c.Fail == "open" {
		return Verdict{Verdict: Allow}, failed, nil
	}
	return Verdict{Verdict: Refuse}, failed, nil
}

func (j *Judge) ask(ctx context.Context, m Made, data []byte) (v Verdict, err error) {
	ctx, cancel := context.WithTimeout(ctx, j.c.Timeout)
	defer cancel()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	asked, err := json.Marshal(map[string]string{"words": m.Words, "command": m.Command, "name": m.Name})
	if err != nil {
		return v, err
	}
	if err := form.WriteField("request", string(asked)); err != nil {
		return v, err
	}
	part, err := form.CreateFormFile("file", m.Name)
	if err != nil {
		return v, err
	}
	if _, err := part.Write(data); err != nil {
		return v, err
	}
	if err := form.Close(); err != nil {
		return v, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, j.c.Hook, &body)
	if err != nil {
		return v, errNoVerdict // the error has the URL, which may contain a secret
	}
	r.Header.Set("Content-Type", form.FormDataContentType())
	response, err := j.http.Do(r)
	if err != nil {
		return v, fmt.Errorf("%w: no answer", errNoVerdict)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return v, fmt.Errorf("%w: status %d", errNoVerdict, response.StatusCode)
	}
	err = json.NewDecoder(http.MaxBytesReader(nil, response.Body, maxVerdict)).Decode(&v)
	if err != nil || v.Verdict != Allow && v.Verdict != Spoiler && v.Verdict != Refuse {
		return Verdict{}, fmt.Errorf("%w: the answer is not a verdict", errNoVerdict)
	}
	return v, nil
}
