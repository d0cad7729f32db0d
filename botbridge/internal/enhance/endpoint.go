package enhance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxBody bounds an answer, maxHeader its headers, in bytes.
	maxBody   = 64 << 10
	maxHeader = 16 << 10
	// waitingPerCall is how many calls may wait for each that is made.
	waitingPerCall = 8
	// maxRest is how long the endpoint is left alone at most, restAfter after how many
	// failures in a row, and restFor for how long.
	maxRest   = 5 * time.Minute
	restAfter = 3
	restFor   = 30 * time.Second
)

// endpoint is an API as OpenAI's: how it is called, and when it is left alone.
type endpoint struct {
	url, key string
	timeout  time.Duration
	http     *http.Client

	turns   chan struct{} // holds one for each call under way
	waiting atomic.Int64

	mu     sync.Mutex
	failed int       // in a row
	until  time.Time // it is left alone
}

func newEndpoint(url, key string, timeout time.Duration, atOnce int, from *http.Transport) *endpoint {
	atOnce = cmp.Or(atOnce, 4)
	if from == nil {
		from = http.DefaultTransport.(*http.Transport)
	}
	transport := from.Clone()
	transport.MaxResponseHeaderBytes = maxHeader
	transport.MaxIdleConnsPerHost = atOnce
	return &endpoint{url: strings.TrimRight(url, "/"), key: key, timeout: timeout, turns: make(chan struct{}, atOnce), http: &http.Client{
		Transport: transport,
		// Another address may be anybody's: neither the key nor the words go there.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close drops idle connections.
func (e *endpoint) Close() { e.http.CloseIdleConnections() }

// turn makes calls when it is their turn, within the time that they may take together.
func (e *endpoint) turn(ctx context.Context, do func(ctx context.Context) error) error {
	if e.resting() {
		return ErrBusy
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	defer e.waiting.Add(-1)
	if e.waiting.Add(1) > int64(cap(e.turns)*(1+waitingPerCall)) {
		return ErrBusy
	}
	select {
	case e.turns <- struct{}{}:
	case <-ctx.Done():
		return ErrBusy
	}
	defer func() { <-e.turns }()
	err := do(ctx)
	e.settle(err)
	return err
}

// resting reports whether the endpoint is left alone.
func (e *endpoint) resting() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Before(e.until)
}

// settle notes how a call went. An endpoint that is down would hold up everybody who
// asks for as long as a call may take.
func (e *endpoint) settle(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if wait, ok := errors.AsType[*waitError](err); ok {
		e.until = time.Now().Add(min(wait.after, maxRest))
		return
	}
	if !errors.Is(err, ErrAway) {
		e.failed = 0
		return
	}
	if e.failed++; e.failed >= restAfter {
		e.failed, e.until = 0, time.Now().Add(restFor)
	}
}

// waitError is the endpoint's wish to be left alone.
type waitError struct{ after time.Duration }

func (e *waitError) Error() string { return ErrBusy.Error() }
func (e *waitError) Unwrap() error { return ErrBusy }

// post makes one call and returns the body of its answer.
func (e *endpoint) post(ctx context.Context, path, kind string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: the address cannot be used", ErrAway) // which may contain a secret
	}
	r.Header.Set("Content-Type", kind)
	r.Header.Set("Accept", "application/json")
	if e.key != "" {
		r.Header.Set("Authorization", "Bearer "+e.key)
	}
	response, err := e.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrAway, reason(err))
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if status := response.StatusCode; status != http.StatusOK {
		return nil, refusal(status, response.Header, text)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the answer broke off", ErrAway)
	case len(text) > maxBody:
		return nil, fmt.Errorf("%w: it is larger than %d bytes", ErrOdd, maxBody)
	}
	return text, nil
}

// refusal is the error for a status that is no success.
func refusal(status int, header http.Header, body []byte) error {
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && header.Get("Retry-After") != "":
		return &waitError{after: retryAfter(header.Get("Retry-After"), time.Now())}
	case status >= http.StatusInternalServerError:
		return fmt.Errorf("%w: status %d", ErrAway, status)
	case status >= http.StatusMultipleChoices && status < http.StatusBadRequest:
		return fmt.Errorf("%w: it redirects to another address (status %d), and redirects are not followed", ErrOdd, status)
	case status == http.StatusBadRequest:
		var said struct {
			Error struct {
				Param string `json:"param"`
			} `json:"error"`
		}
		if json.Unmarshal(body, &said) == nil && said.Error.Param == "max_tokens" {
			return errTokensName
		}
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fmt.Errorf("%w: it rejects the key (status %d)", ErrOdd, status)
	case status == http.StatusNotFound:
		return fmt.Errorf("%w: it does not know the model, or there is no API at this address (status %d)", ErrOdd, status)
	}
	return fmt.Errorf("%w: status %d", ErrOdd, status)
}

// retryAfter reads the header of that name: seconds, or a date. Without a usable one it
// is ten seconds.
func retryAfter(text string, now time.Time) time.Duration {
	const usual = 10 * time.Second
	if seconds, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && seconds >= 0 {
		return min(time.Duration(min(seconds, int(maxRest/time.Second)))*time.Second, maxRest)
	}
	if at, err := http.ParseTime(text); err == nil && at.After(now) {
		return min(at.Sub(now), maxRest)
	}
	return usual
}

// reason says why a call failed, without its URL, which may contain a secret.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return "no connection"
}
