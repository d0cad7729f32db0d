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
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	// Transcribe writes down what is said in a recording.
	Transcribe Task = "transcribe"
)

// Client asks one endpoint. It is safe for concurrent use.
type Client struct {
	*endpoint
	o Options
	// newName means that the endpoint knows max_tokens only by its newer name.
	newName atomic.Bool
}

// New returns a client. Close it.
func New(o Options) *Client {
	o.Timeout = cmp.Or(o.Timeout, 20*time.Second)
	o.MaxTokens = cmp.Or(o.MaxTokens, 400)
	if o.Observe == nil {
		o.Observe = func(Task, error, time.Duration) {}
	}
	return &Client{endpoint: newEndpoint(o.URL, o.Key, o.Timeout, o.AtOnce, o.HTTP), o: o}
}

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

func (c *Client) ask(ctx context.Context, task Task, words string) (text string, err error) {
	asked := chat{Model: c.o.Model, Messages: []message{{"system", c.instructions(task)}, {"user", words}}}
	err = c.turn(ctx, func(ctx context.Context) error {
		text, err = c.call(ctx, asked)
		if errors.Is(err, errTokensName) && c.newName.CompareAndSwap(false, true) {
			text, err = c.call(ctx, asked)
		}
		return err
	})
	if errors.Is(err, errTokensName) {
		err = fmt.Errorf("%w: status 400", ErrOdd)
	}
	return text, err
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
	text, err := c.post(ctx, "/chat/completions", "application/json", body)
	if err != nil {
		return "", err
	}
	return read(text)
}
