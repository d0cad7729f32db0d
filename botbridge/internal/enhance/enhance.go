// Package enhance asks a language model for better words: a fuller description for a
// picture, or the same in English. It works with any endpoint that speaks OpenAI's chat
// completions.
//
// The endpoint is not trusted. It may be slow, wrong, down or hostile: each call is
// bounded in time and bytes, an endpoint that fails again and again is left alone for a
// while, and what comes back is plain text, whatever it looks like. Neither words nor the
// key are ever part of an error.
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

var (
	// ErrBusy means that the endpoint takes no more calls now, or that enough are under
	// way.
	ErrBusy = errors.New("enhance: the endpoint takes no more calls now")
	// ErrAway means that the endpoint did not answer in time, or failed.
	ErrAway = errors.New("enhance: the endpoint does not answer")
	// ErrOdd means that the endpoint's answer cannot be used.
	ErrOdd = errors.New("enhance: the endpoint's answer cannot be used")
	// ErrRefused means that the model does not want to work on these words.
	ErrRefused = errors.New("enhance: the model refuses")
)

// Options say whom to ask. URL and Model are required.
type Options struct {
	// URL is where the API begins, such as https://llm.example.com/v1.
	URL string
	// Key is sent as a bearer token; "" for none.
	Key string
	// Model is the model's name at the endpoint.
	Model string
	// Timeout bounds a call, the wait for its turn included. Default: 20 s.
	Timeout time.Duration
	// MaxTokens bounds the answer. Default: 400.
	MaxTokens int
	// AtOnce is how many calls are made at the same time; eight times as many may wait
	// for their turn. Default: 4.
	AtOnce int
	// Instructions say how to improve words. Default: ask for one paragraph that keeps
	// what was asked for and adds what is missing.
	Instructions string
	// English asks for improved words in English, whatever language they were in.
	English bool
	// Observe is called for each call. Optional.
	Observe func(Task, error, time.Duration)
	// HTTP makes the connections. Default: http.DefaultTransport's settings.
	HTTP *http.Transport
}

// Task is what to do with words.
type Task string

// The tasks.
const (
	// Improve makes a fuller description of words.
	Improve Task = "improve"
	// Translate says the same in English.
	Translate Task = "translate"
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

// Client asks one endpoint. It is safe for concurrent use.
type Client struct {
	o    Options
	http *http.Client

	turns   chan struct{} // holds one for each call under way
	waiting atomic.Int64
	// newName means that the endpoint knows max_tokens only by its newer name.
	newName atomic.Bool

	mu     sync.Mutex
	failed int       // in a row
	until  time.Time // the endpoint is left alone
}

// New returns a client. Close it.
func New(o Options) *Client {
	o.Timeout = cmp.Or(o.Timeout, 20*time.Second)
	o.MaxTokens = cmp.Or(o.MaxTokens, 400)
	o.AtOnce = cmp.Or(o.AtOnce, 4)
	if o.Observe == nil {
		o.Observe = func(Task, error, time.Duration) {}
	}
	if o.HTTP == nil {
		o.HTTP = http.DefaultTransport.(*http.Transport)
	}
	transport := o.HTTP.Clone()
	transport.MaxResponseHeaderBytes = maxHeader
	transport.MaxIdleConnsPerHost = o.AtOnce
	return &Client{o: o, turns: make(chan struct{}, o.AtOnce), http: &http.Client{
		Transport: transport,
		// Another address may be anybody's: neither the key nor the words go there.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// English reports whether improved words are in English.
func (c *Client) English() bool { return c.o.English }

// Ask returns words as the model would put them, on one line, never empty. The error is
// one of this package's, or that of a context that has ended.
func (c *Client) Ask(ctx context.Context, task Task, words string) (answer string, err error) {
	begin := time.Now()
	answer, err = c.ask(ctx, task, words)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	c.o.Observe(task, err, time.Since(begin))
	return answer, err
}

func (c *Client) ask(ctx context.Context, task Task, words string) (string, error) {
	if c.resting() {
		return "", ErrBusy
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	defer c.waiting.Add(-1)
	if c.waiting.Add(1) > int64(c.o.AtOnce*(1+waitingPerCall)) {
		return "", ErrBusy
	}
	select {
	case c.turns <- struct{}{}:
	case <-ctx.Done():
		return "", ErrBusy
	}
	defer func() { <-c.turns }()
	asked := chat{Model: c.o.Model, Messages: []message{{"system", c.instructions(task)}, {"user", words}}}
	text, err := c.call(ctx, asked)
	if errors.Is(err, errTokensName) && c.newName.CompareAndSwap(false, true) {
		text, err = c.call(ctx, asked)
	}
	c.settle(err)
	if errors.Is(err, errTokensName) {
		err = fmt.Errorf("%w: status 400", ErrOdd)
	}
	return text, err
}

// resting reports whether the endpoint is left alone.
func (c *Client) resting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.until)
}

// settle notes how a call went. An endpoint that is down would hold up everybody who
// asks for as long as a call may take.
func (c *Client) settle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wait, ok := errors.AsType[*waitError](err); ok {
		c.until = time.Now().Add(min(wait.after, maxRest))
		return
	}
	if !errors.Is(err, ErrAway) {
		c.failed = 0
		return
	}
	if c.failed++; c.failed >= restAfter {
		c.failed, c.until = 0, time.Now().Add(restFor)
	}
}

// chat is the body of a call.
type chat struct {
	Model     string    `json:"model"`
	Messages  []message `json:"messages"`
	MaxTokens int       `json:"max_tokens,omitempty"`
	// MaxCompletion is the newer name, which some endpoints insist on and others do not
	// know.
	MaxCompletion int `json:"max_completion_tokens,omitempty"`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// waitError is the endpoint's wish to be left alone.
type waitError struct{ after time.Duration }

func (e *waitError) Error() string { return ErrBusy.Error() }
func (e *waitError) Unwrap() error { return ErrBusy }

// errTokensName means that the endpoint does not know max_tokens.
var errTokensName = errors.New("enhance: the endpoint does not take max_tokens")

// call makes one call.
func (c *Client) call(ctx context.Context, asked chat) (string, error) {
	if c.newName.Load() {
		asked.MaxCompletion = c.o.MaxTokens
	} else {
		asked.MaxTokens = c.o.MaxTokens
	}
	body, err := json.Marshal(asked)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrOdd, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(c.o.URL, "/")+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("%w: the address cannot be used", ErrAway) // which may contain a secret
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	if c.o.Key != "" {
		r.Header.Set("Authorization", "Bearer "+c.o.Key)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return "", fmt.Errorf("%w: %s", ErrAway, reason(err))
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if status := response.StatusCode; status != http.StatusOK {
		return "", refusal(status, response.Header, text)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: the answer broke off", ErrAway)
	case len(text) > maxBody:
		return "", fmt.Errorf("%w: it is larger than %d bytes", ErrOdd, maxBody)
	}
	return read(text)
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
