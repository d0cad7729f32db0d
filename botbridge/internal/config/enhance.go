package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/enhance"
)

// API is an endpoint as OpenAI's.
type API struct {
	// URL is where it begins, such as https://llm.example.com/v1.
	URL string `yaml:"url"`
	// Key is sent as a bearer token. Default: none.
	Key Secret `yaml:"key"`
	// Model is the model's name there.
	Model string `yaml:"model"`
	// Timeout bounds a call. Default: see package enhance.
	Timeout time.Duration `yaml:"timeout"`
	// AtOnce is how many calls are made at the same time. Default: 4.
	AtOnce int `yaml:"at_once"`
	// PerDay is how often a user may cause one per day (UTC). Default: 50.
	PerDay int `yaml:"per_user_per_day"`
}

// Enhance is the section of that name: an endpoint that finds better words.
type Enhance struct {
	API `yaml:",inline"`
	// MaxTokens bounds an answer. Default: 400.
	MaxTokens int `yaml:"max_tokens"`
	// Instructions say how to improve words. Default: see package enhance.
	Instructions string `yaml:"instructions"`
	// Translate offers English words for those in another script.
	Translate bool `yaml:"translate"`
}

// Transcribe is the section of that name: an endpoint that writes down voice messages.
type Transcribe struct {
	API `yaml:",inline"`
	// MaxMB is the largest voice message, in MiB. Default: 5.
	MaxMB int64 `yaml:"max_mb"`
}

const (
	maxAPITimeout   = 2 * time.Minute
	maxTokens       = 8192
	maxAtOnce       = 64
	maxPerDay       = 10_000
	maxInstructions = 8000
	maxVoice        = 25 // MiB, of OpenAI's own
	defaultPerDay   = 50
)

// Daily returns how often a user may cause a call per day.
func (a *API) Daily() int {
	if a.PerDay == 0 {
		return defaultPerDay
	}
	return a.PerDay
}

// Options returns what package enhance needs. The key is read.
func (e *Enhance) Options(folder string) (enhance.Options, error) {
	key, err := e.Key.Read(folder)
	if err != nil {
		return enhance.Options{}, fmt.Errorf("enhance: key: %w", err)
	}
	return enhance.Options{
		URL: e.URL, Key: key, Model: e.Model, Timeout: e.Timeout, MaxTokens: e.MaxTokens, AtOnce: e.AtOnce,
		Instructions: e.Instructions, English: e.Translate,
	}, nil
}

// Options returns what package enhance needs. The key is read.
func (t *Transcribe) Options(folder string) (enhance.Transcribing, error) {
	key, err := t.Key.Read(folder)
	if err != nil {
		return enhance.Transcribing{}, fmt.Errorf("transcribe: key: %w", err)
	}
	return enhance.Transcribing{URL: t.URL, Key: key, Model: t.Model, Timeout: t.Timeout, AtOnce: t.AtOnce, MaxBytes: t.MaxMB << 20}, nil
}

// bound is a number of a section, and the most that it may be.
type bound struct {
	word        string
	value, most int
}

// problems returns what is wrong with the section that describes an endpoint. path is where its
// calls go, and bounds are of the section's own numbers.
func (a *API) problems(folder, section, path string, bounds ...bound) (list []error) {
	add := func(format string, args ...any) { list = append(list, fmt.Errorf(section+": "+format, args...)) }
	switch u, err := url.Parse(a.URL); {
	case !isAddress(a.URL):
		add("url: this is not an address such as https://llm.example.com/v1")
	case err == nil && (u.User != nil || u.RawQuery != "" || u.Fragment != ""):
		add("url: the address has a login, a query or a fragment; put a key under key")
	case err == nil && strings.HasSuffix(strings.TrimRight(u.Path, "/"), path):
		add("url: leave out %s at the end", path)
	}
	if a.Model == "" {
		add("model: no model is named")
	}
	key, err := a.Key.Read(folder)
	switch {
	case err != nil:
		add("key: %w", err)
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		add("key: a key has no spaces and only plain characters")
	}
	if a.Timeout < 0 || a.Timeout > maxAPITimeout {
		add("timeout: %v is not between 0s and %v", a.Timeout, maxAPITimeout)
	}
	for _, limit := range append(bounds, bound{"at_once", a.AtOnce, maxAtOnce}, bound{"per_user_per_day", a.PerDay, maxPerDay}) {
		if limit.value < 0 || limit.value > limit.most {
			add("%s: %d is not between 0 and %d", limit.word, limit.value, limit.most)
		}
	}
	return list
}

// apiProblems returns what is wrong with the sections that describe endpoints.
func (c *Config) apiProblems() (list []error) {
	if e := c.Enhance; e != nil {
		list = e.problems(c.Folder, "enhance", "/chat/completions", bound{"max_tokens", e.MaxTokens, maxTokens})
		if len(e.Instructions) > maxInstructions {
			list = append(list, fmt.Errorf("enhance: instructions: they are longer than %d bytes", maxInstructions))
		}
	}
	if t := c.Transcribe; t != nil {
		list = append(list, t.problems(c.Folder, "transcribe", "/audio/transcriptions", bound{"max_mb", int(t.MaxMB), maxVoice})...)
	}
	return list
}
